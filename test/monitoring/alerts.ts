import { LABELS_OF_A_FLEET, metric } from './expressions.ts';

// The alerts, once. docs/monitoring/taskq-alerts.yml and grafana-alerts.yml are written from here
// (`npm run monitoring`), and every metric is named by its key, so that no name can drift from the code.
//
// A fleet is what one Prometheus job scrapes: the replicas of one queue. `namespace` and `app` tell fleets of one job
// apart where they are set; where they are not, they are empty and change nothing.

/** Only a page wakes somebody: tasks wait while workers are free. Everything else can wait for the morning. */
export type Severity = 'page' | 'ticket';

export interface Alert {
  readonly name: string;
  readonly severity: Severity;
  /** Answers the series that are in alarm; their values are never negative. */
  readonly expression: string;
  readonly for: string;
  /** Why it is that expression, and that duration: a comment in the rules. */
  readonly reason: string;
  readonly summary: string;
  /** `{VALUE}` is the value of the expression, put through the template function of `unit`. */
  readonly description: string;
  readonly unit?: 'humanizeDuration' | 'humanizePercentage' | 'humanize';
}

const FLEET = LABELS_OF_A_FLEET.join(', ');
const OF_TYPE = '{{ $labels.task_type }}';
const OF_QUEUE = '{{ $labels.queue }}';

/** How long a due task may wait before somebody is called, in seconds: a deploy, a burst and a failover fit in. */
const OLD_SECONDS = 300;

const slots = `sum by (${FLEET}) (${metric('slots')})`;

// Every replica reads the same gauges of the database, so their maximum is the number and their sum is not. Where
// nothing runs there may be no series of `running`, and a comparison with nothing is nothing: zero takes its place.
const running = `(
  sum by (${FLEET}) (max by (${FLEET}, task_type, queue) (${metric('running')}))
  or 0 * ${slots}
)`;

// The leases in the database say how much of the fleet is at work: a handler that overran its lease holds a slot and
// does not count. The replicas' own count comes second, for leases whose worker is dead: they count as running for as
// long as their ceiling, and no slot holds them.
const hasFreeCapacity = `(
  ${indent(running)} < ${slots}
  or sum by (${FLEET}) (max_over_time(${metric('slotsBusy')}[5m])) < ${slots}
  or ${slots} == 0
)`;

const VERDICTS = 'success|continued|failure|timeout';

// Between two tasks of milliseconds a slot is free for a moment, and at a scrape some slot always is. So a type that is
// being run, by a fleet that is at work more than half of the time, is being drained.
const drained = `(
  sum by (${FLEET}, task_type, queue) (rate(${metric('runs')}{outcome=~"${VERDICTS}"}[5m]))
    > on (${FLEET}) group_left () (0.01 * ${slots})
  and on (${FLEET})
    sum by (${FLEET}) (avg_over_time(${metric('slotsBusy')}[5m])) >= 0.5 * ${slots}
)`;

const paused = `max by (${FLEET}, queue) (${metric('queuePaused')}) == 1`;

/** How long the oldest due task of each type and queue has waited, without those that somebody holds back or drains. */
const waiting = `(
  max by (${FLEET}, task_type, queue) (${metric('oldestDueSeconds')})
  unless on (${FLEET}, queue) (${paused})
  unless on (${FLEET}, task_type, queue) ${indent(drained)}
)`;

const starvation = (by: string) => `max by (${by}) ${waiting} > ${OLD_SECONDS}
and on (${FLEET}) ${hasFreeCapacity}`;

// A task that fails is tried some seven times in a quarter of an hour; ten failures are not one bad task.
const failures = (by: string) => {
  const runs = (outcomes: string) =>
    `sum by (${FLEET}, ${by}) (increase(${metric('runs')}{outcome=~"${outcomes}"}[15m]))`;
  return `${runs('failure|timeout')} / ${runs(VERDICTS)} > 0.2
and ${runs('failure|timeout')} >= 10`;
};

const PER_DEAD_LETTER = `${FLEET}, task_type, queue`;
const dead = `max by (${PER_DEAD_LETTER}) (${metric('dead')})`;

const STARVING_NEXT =
  '`taskq stats` and `taskq queue list` show which tasks wait, `taskq doctor` why nobody takes them.';

export const ALERTS: readonly Alert[] = [
  {
    name: 'TaskqStarvation',
    severity: 'page',
    expression: starvation(FLEET),
    for: '5m',
    reason:
      'Old work alone is no alarm: a sweep that fills every slot drains for minutes. It is one when slots are free ' +
      'as well. A rollout has replaced its replicas within five minutes, and their gauges have been read again.',
    summary: 'Due tasks of {{ $labels.job }} wait while workers are free',
    description: `The oldest due task has waited {VALUE}, and not every slot is busy. ${STARVING_NEXT}`,
    unit: 'humanizeDuration',
  },
  {
    name: 'TaskqQueueStarving',
    severity: 'ticket',
    expression: starvation(`${FLEET}, queue`),
    for: '5m',
    reason: 'TaskqStarvation, told by queue: a queue that no worker serves, or that weighs too little.',
    summary: `Due tasks of queue ${OF_QUEUE} wait while workers are free`,
    description: `Its oldest due task has waited {VALUE}. \`taskq queue list\` shows the queue, \`taskq stats\` its types.`,
    unit: 'humanizeDuration',
  },
  {
    name: 'TaskqTypeStarving',
    severity: 'ticket',
    expression: starvation(`${FLEET}, task_type`),
    for: '5m',
    reason: 'TaskqStarvation, told by task type: a type that no worker registers any more.',
    summary: `Due tasks of type ${OF_TYPE} wait while workers are free`,
    description: `Its oldest due task has waited {VALUE}. \`taskq stats\` shows the type, \`taskq doctor\` who registers it.`,
    unit: 'humanizeDuration',
  },
  {
    name: 'TaskqTypeFailing',
    severity: 'ticket',
    expression: failures('task_type'),
    for: '5m',
    reason:
      'More than a fifth of the runs, ten at the least, still so five minutes later: not a blip of a service.',
    summary: `Runs of ${OF_TYPE} fail or time out`,
    description: `{VALUE} of the runs of the last 15 minutes. \`taskq dead list --type ${OF_TYPE}\` shows the errors of those given up; the log line "task settled" has all.`,
    unit: 'humanizePercentage',
  },
  {
    name: 'TaskqQueueFailing',
    severity: 'ticket',
    expression: failures('queue'),
    for: '5m',
    reason: 'TaskqTypeFailing, told by queue: of many types, each too rare to be seen by itself.',
    summary: `Runs in queue ${OF_QUEUE} fail or time out`,
    description: `{VALUE} of the runs of the last 15 minutes. \`taskq dead list --queue ${OF_QUEUE}\` shows the errors of those given up; the log line "task settled" has all.`,
    unit: 'humanizePercentage',
  },
  {
    name: 'TaskqDeadLettersGrowing',
    severity: 'ticket',
    // The counter does not see a worker that dies on a final attempt, and the gauge ends at its bound: either will do.
    // Once all are replayed or dropped it is over, though the hour is not.
    expression: `(
  sum by (${PER_DEAD_LETTER}) (increase(${metric('deadLetters')}[1h])) > 0
  or ${dead} - min_over_time((${dead})[1h:1m]) > 0
)
and on (${PER_DEAD_LETTER}) ${dead} > 0`,
    for: '5m',
    reason:
      'A dead letter is work that nobody will do unless somebody looks. Five minutes, for a bulk replay under way.',
    summary: `${OF_TYPE} gained dead letters in queue ${OF_QUEUE}`,
    description: `About {VALUE} in the last hour. \`taskq dead list --type ${OF_TYPE}\` shows them with their errors, \`taskq dead replay\` puts them back.`,
    unit: 'humanize',
  },
  {
    name: 'TaskqClockOffset',
    severity: 'ticket',
    expression: `max by (${FLEET}, instance) (abs(${metric('clockOffset')})) > 3`,
    for: '10m',
    reason:
      'A tenth of the margin of a lease. One slow claim measures too much; ten minutes of it is a clock that is wrong.',
    summary: 'The clock of {{ $labels.instance }} is wrong, or that of the database',
    description:
      'They are {VALUE} apart. Deadlines are counted in one frame and leases in the other. `taskq doctor` measures it again; then look at the time service of both machines.',
    unit: 'humanizeDuration',
  },
  {
    name: 'TaskqSlotsOverrun',
    severity: 'ticket',
    expression: `max by (${FLEET}, instance) (${metric('slotsOverrun')}) > 0`,
    for: '5m',
    reason: 'A handler may unwind for some seconds after its deadline; for minutes it ignores its signal.',
    summary: 'Handlers of {{ $labels.instance }} do not stop at their deadline',
    description:
      '{VALUE} slots are lost to them until they return, and their tasks run a second time elsewhere. The log line "handler is past its deadline and holds its slot" names them; `taskq task show <id>` shows one.',
    unit: 'humanize',
  },
  {
    name: 'TaskqNobodyListens',
    severity: 'ticket',
    expression: `max by (${FLEET}) (${metric('listenerConnected')}) == 0`,
    for: '5m',
    reason:
      'A restart of the database is over by then. Until somebody listens, work is found by the poll alone.',
    summary: 'No replica of {{ $labels.job }} listens for wakes',
    description:
      'Tasks start up to one poll later. `taskq doctor` says whether LISTEN works on that connection: a pooler in transaction mode does not pass it on.',
  },
  {
    name: 'TaskqDatabaseGaugesGone',
    severity: 'ticket',
    expression: `max by (${FLEET}) (${metric('databaseUp')}) == 0`,
    for: '5m',
    reason:
      'Without the gauges no alert above can tell. One replica that still reads them is enough for all.',
    summary: 'No replica of {{ $labels.job }} can read the gauges from the database',
    description:
      'The alerts on the queue are blind, and claims may fail too. `taskq doctor` says what it cannot reach.',
  },
  {
    name: 'TaskqMetricsGone',
    severity: 'ticket',
    expression: `group by (${FLEET}) (last_over_time(${metric('databaseUp')}[1h]))
  unless group by (${FLEET}) (${metric('databaseUp')})
or absent(${metric('databaseUp')})`,
    for: '10m',
    reason:
      'What is not scraped cannot starve, as far as the rules can see. Ten minutes, for a fleet that is recreated; a ' +
      'fleet that was removed for good is forgotten after an hour, unless it was the only one.',
    summary: 'No replica of {{ $labels.job }} is scraped any more',
    description:
      'Either all workers are gone, or their /metrics is. `taskq stats` says whether tasks wait; then look at the deployment and at the targets of Prometheus.',
  },
  {
    name: 'TaskqUnregisteredTasks',
    severity: 'ticket',
    // Each replica counts what it does not register, and one that does register it says zero.
    expression: `min by (${FLEET}, task_type) (${metric('unregisteredTasks')}) > 0`,
    for: '15m',
    reason:
      'In a rollout the new code enqueues before the last old worker is gone; a quarter of an hour is no rollout.',
    summary: `No worker of {{ $labels.job }} runs ${OF_TYPE}`,
    description:
      '{VALUE} tasks wait for a worker that registers the type, or its newer payload revision. `taskq doctor` names them; deploy that worker.',
    unit: 'humanize',
  },
  {
    name: 'TaskqQueuePausedLong',
    severity: 'ticket',
    expression: `sum by (${FLEET}, queue) (max by (${FLEET}, task_type, queue) (${metric('due')})) > 0
and on (${FLEET}, queue) (${paused})`,
    for: '4h',
    reason:
      'Whoever pauses a queue wants its tasks to wait, so it does not starve. Half a working day looks forgotten.',
    summary: `Queue ${OF_QUEUE} is still paused, and tasks wait in it`,
    description: `{VALUE} tasks wait. \`taskq queue list\` shows since when, \`taskq audit\` who paused it, \`taskq queue resume ${OF_QUEUE}\` ends it.`,
    unit: 'humanize',
  },
];

function indent(expression: string): string {
  return expression.replaceAll('\n', '\n  ');
}
