import { OUTCOMES } from '../domain/outcome.ts';

// Every metric there is: its name without the prefix, its labels and what it says. The recorder, the gauges, the
// documentation and the alerts follow this table, so a name or a label changes here or nowhere.
// Label values come from closed sets: registered task types, queues, entries of the cron list, and the lists below.
// What the table of tasks holds beside these is capped: see `BoundedLabels`.

/** Where a value comes from: what this process counts, its state at the scrape, or a read of the database. */
export type MetricSource = 'process' | 'database';

export interface MetricDescription {
  readonly kind: 'counter' | 'gauge' | 'histogram';
  /** Without the prefix. */
  readonly name: string;
  readonly source: MetricSource;
  readonly labels: readonly string[];
  readonly help: string;
  /** Upper bounds in seconds, of a histogram. */
  readonly buckets?: readonly number[];
}

/** What is in front of every name unless another prefix is given. */
export const PREFIX_DEFAULT = 'taskq_';

/** Values of `during`: what could not be asked of, or written to, the database. */
export const DATABASE_WORK = [
  'claim',
  'settle',
  'heartbeat',
  'listen',
  'cron',
  'prune',
  'report',
  'gauges',
] as const;
export type DatabaseWork = (typeof DATABASE_WORK)[number];

/** Values of `outcome` of a cron tick. */
export const TICK_OUTCOMES = ['enqueued', 'skipped', 'missed', 'failed'] as const;
export type TickOutcome = (typeof TICK_OUTCOMES)[number];

/** Values of `gauge`: the counts that end at a bound. */
export const CAPPED_GAUGES = ['pending', 'due', 'dead', 'completed'] as const;
export type CappedGauge = (typeof CAPPED_GAUGES)[number];

/** The label value that stands for all names beyond the cap. */
export const OTHER = 'other';

/** From a task that does nothing to one that fills a ceiling of an hour. */
const RUN_BUCKETS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600];
/** From a wake to a backlog of a night; 300 s is where the starvation alert begins. */
const WAIT_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 900, 3600, 21600];
/** One statement, from a local server to one that is in trouble. */
const STATEMENT_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
/** From a tick taken on time to one taken after an outage. */
const LAG_BUCKETS = [0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 3600];

export const METRICS = {
  pending: {
    kind: 'gauge',
    name: 'pending',
    source: 'database',
    labels: ['task_type', 'queue'],
    help: 'Unfinished tasks: waiting, backing off or running, those on their final attempt included.',
  },
  running: {
    kind: 'gauge',
    name: 'running',
    source: 'database',
    labels: ['task_type', 'queue'],
    help: 'Tasks under a live lease, of any replica; a subset of pending.',
  },
  due: {
    kind: 'gauge',
    name: 'due',
    source: 'database',
    labels: ['task_type', 'queue'],
    help: 'Tasks that could be claimed now.',
  },
  dead: {
    kind: 'gauge',
    name: 'dead',
    source: 'database',
    labels: ['task_type', 'queue'],
    help: 'Dead letters.',
  },
  completed: {
    kind: 'gauge',
    name: 'completed',
    source: 'database',
    labels: ['task_type', 'queue'],
    help: 'Finished tasks whose record is kept.',
  },
  oldestDueSeconds: {
    kind: 'gauge',
    name: 'oldest_due_seconds',
    source: 'database',
    labels: ['task_type', 'queue'],
    help: 'How long the longest-waiting due task has been due; 0 when none is.',
  },
  unregisteredTasks: {
    kind: 'gauge',
    name: 'unregistered_tasks',
    source: 'database',
    labels: ['task_type'],
    help: 'Unfinished tasks of a type, or of a newer payload revision, that this replica does not register.',
  },
  queuePaused: {
    kind: 'gauge',
    name: 'queue_paused',
    source: 'database',
    labels: ['queue'],
    help: '1 while an operator has paused the queue.',
  },
  countsCapped: {
    kind: 'gauge',
    name: 'counts_capped',
    source: 'database',
    labels: ['gauge', 'task_type', 'queue'],
    help: '1 where the count that `gauge` names has ended at its bound: there are at least so many. Absent otherwise.',
  },
  databaseUp: {
    kind: 'gauge',
    name: 'database_up',
    source: 'database',
    labels: [],
    help: '1 when the last read of the database gauges was answered, 0 when it was not: the gauges are absent then.',
  },
  gaugesAgeSeconds: {
    kind: 'gauge',
    name: 'gauges_age_seconds',
    source: 'database',
    labels: [],
    help: 'How long ago the database gauges were last read.',
  },
  slots: {
    kind: 'gauge',
    name: 'slots',
    source: 'process',
    labels: [],
    help: 'Slots of this replica; the sum over the replicas is the capacity of the fleet.',
  },
  slotsBusy: {
    kind: 'gauge',
    name: 'slots_busy',
    source: 'process',
    labels: [],
    help: 'Slots that hold a task now.',
  },
  slotsOverrun: {
    kind: 'gauge',
    name: 'slots_overrun',
    source: 'process',
    labels: [],
    help: 'Slots held by handlers that are past their deadline and have not returned; a subset of busy.',
  },
  runs: {
    kind: 'counter',
    name: 'runs_total',
    source: 'process',
    labels: ['task_type', 'queue', 'outcome'],
    help: `Settled runs by outcome: ${OUTCOMES.join(', ')}.`,
  },
  runDuration: {
    kind: 'histogram',
    name: 'run_duration_seconds',
    source: 'process',
    labels: ['task_type', 'outcome'],
    help: 'How long handlers ran. No sample for a task whose handler was not started.',
    buckets: RUN_BUCKETS,
  },
  wait: {
    kind: 'histogram',
    name: 'wait_seconds',
    source: 'process',
    labels: ['task_type', 'queue'],
    help: 'From when a task was due to its claim, by the clock of the database.',
    buckets: WAIT_BUCKETS,
  },
  claimDuration: {
    kind: 'histogram',
    name: 'claim_duration_seconds',
    source: 'process',
    labels: [],
    help: 'From sending a claim to its answer. One claim may serve several slots.',
    buckets: STATEMENT_BUCKETS,
  },
  settleDuration: {
    kind: 'histogram',
    name: 'settle_duration_seconds',
    source: 'process',
    labels: [],
    help: "From a handler's return to the answer of the settlement, retries included.",
    buckets: STATEMENT_BUCKETS,
  },
  claimsEmpty: {
    kind: 'counter',
    name: 'claims_empty_total',
    source: 'process',
    labels: [],
    help: 'Claims that had candidates and got no row: another replica was faster, or the read lane lags.',
  },
  wakes: {
    kind: 'counter',
    name: 'wakes_total',
    source: 'process',
    labels: [],
    help: 'Notifications received.',
  },
  listenerConnected: {
    kind: 'gauge',
    name: 'listener_connected',
    source: 'process',
    labels: [],
    help: '1 while this replica listens for wakes; at 0 it finds tasks by its poll alone.',
  },
  listenerReconnects: {
    kind: 'counter',
    name: 'listener_reconnects_total',
    source: 'process',
    labels: [],
    help: 'Times that the LISTEN connection was made again after it had been lost.',
  },
  clockOffset: {
    kind: 'gauge',
    name: 'clock_offset_seconds',
    source: 'process',
    labels: [],
    help: 'Clock of the database minus that of this process, as measured by the last claim.',
  },
  eventLoopDelay: {
    kind: 'gauge',
    name: 'event_loop_delay_seconds',
    source: 'process',
    labels: [],
    help: 'The longest block of the event loop within the last minute.',
  },
  cronTicks: {
    kind: 'counter',
    name: 'cron_ticks_total',
    source: 'process',
    labels: ['entry', 'outcome'],
    help: `Cron ticks decided by this replica: ${TICK_OUTCOMES.join(', ')} (failed ones are tried again).`,
  },
  cronLag: {
    kind: 'histogram',
    name: 'cron_lag_seconds',
    source: 'process',
    labels: ['entry'],
    help: 'From a cron tick to the enqueue of its task, by the clock of the database.',
    buckets: LAG_BUCKETS,
  },
  deadLetters: {
    kind: 'counter',
    name: 'dead_letters_total',
    source: 'process',
    labels: ['task_type', 'queue'],
    help: 'Tasks that a settlement made dead letters. Not those whose worker died on the final attempt: see dead.',
  },
  databaseErrors: {
    kind: 'counter',
    name: 'database_errors_total',
    source: 'process',
    labels: ['during'],
    help: `What the database did not answer, each try: ${DATABASE_WORK.join(', ')}.`,
  },
  middlewareFailures: {
    kind: 'counter',
    name: 'middleware_failures_total',
    source: 'process',
    labels: [],
    help: 'Times that a middleware threw; the run went on without it.',
  },
} as const satisfies Readonly<Record<string, MetricDescription>>;

export type MetricKey = keyof typeof METRICS;

/** The keys of one kind of metric. */
export type KeyOf<Kind extends MetricDescription['kind']> = {
  [Key in MetricKey]: (typeof METRICS)[Key]['kind'] extends Kind ? Key : never;
}[MetricKey];

/** The labels of a metric, each with its value. */
export type LabelsOf<Key extends MetricKey> = {
  readonly [Label in (typeof METRICS)[Key]['labels'][number]]: string;
};

/** The table of all metrics for the documentation, as Markdown. */
export function renderMetricsTable(): string {
  const rows = Object.values(METRICS).map(({ kind, name, source, labels, help }: MetricDescription) => {
    const shownLabels = labels.map((label) => `\`${label}\``).join(', ');
    return `| \`${PREFIX_DEFAULT}${name}\` | ${kind} | ${source} | ${shownLabels} | ${help} |`;
  });
  return ['| metric | kind | from | labels | meaning |', '| --- | --- | --- | --- | --- |', ...rows].join(
    '\n',
  );
}
