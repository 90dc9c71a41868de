import { metric } from './expressions.ts';

// docs/monitoring/grafana-dashboard.json. Each row answers one question of an operator, from left to right.

/** Everything of the chosen fleet, and of the chosen queues and types where a metric has them. */
const FLEET = 'job=~"$job"';
const BY_TYPE = `${FLEET}, queue=~"$queue", task_type=~"$task_type"`;
const TYPE_ALONE = `${FLEET}, task_type=~"$task_type"`;
const RATE = '$__rate_interval';

interface Target {
  readonly expression: string;
  readonly legend: string;
}

interface Panel {
  readonly title: string;
  readonly description: string;
  readonly kind: 'timeseries' | 'stat' | 'bargauge';
  readonly unit: string;
  readonly targets: readonly Target[];
  /** Of 24. */
  readonly width: number;
  readonly stacked?: boolean;
  /** From this value on it is orange, and red. */
  readonly thresholds?: readonly [number, number];
}

interface Row {
  readonly title: string;
  readonly panels: readonly Panel[];
}

/** Each replica reads the same gauges of the database: the maximum is the number, the sum is not. */
const counted = (key: 'pending' | 'running' | 'due' | 'dead' | 'completed') =>
  `max by (task_type, queue) (${metric(key)}{${BY_TYPE}})`;

const rateBy = (labels: string, selector: string) => `sum by (${labels}) (rate(${selector}[${RATE}]))`;

function quantiles(buckets: string, labels: string, legend: string): Target[] {
  return [0.5, 0.95, 0.99].map((quantile) => ({
    expression: `histogram_quantile(${quantile}, ${rateBy(labels === '' ? 'le' : `le, ${labels}`, buckets)})`,
    legend: `p${quantile * 100}${legend}`,
  }));
}

const QUEUES: Row = {
  title: 'Queues: does work wait?',
  panels: [
    {
      title: 'Oldest due task',
      description:
        'How long the longest-waiting due task has been due. It is old in a sweep too: look at the slots.',
      kind: 'timeseries',
      unit: 's',
      targets: [
        { expression: `max by (queue) (${metric('oldestDueSeconds')}{${BY_TYPE}})`, legend: '{{queue}}' },
      ],
      width: 8,
      thresholds: [60, 300],
    },
    {
      title: 'Slots at work',
      description:
        'Leases that live beside the slots there are. Free slots and old due tasks together are starvation.',
      kind: 'timeseries',
      unit: 'short',
      targets: [
        {
          expression: `sum(max by (job, task_type, queue) (${metric('running')}{${FLEET}})) or vector(0)`,
          legend: 'running (leases)',
        },
        { expression: `sum(${metric('slotsBusy')}{${FLEET}})`, legend: 'busy (slots)' },
        { expression: `sum(${metric('slots')}{${FLEET}})`, legend: 'slots' },
      ],
      width: 8,
    },
    {
      title: 'Due tasks',
      description: 'Tasks that could be claimed now, at the most 50,000 of a queue.',
      kind: 'timeseries',
      unit: 'short',
      targets: [{ expression: `sum by (queue) (${counted('due')})`, legend: '{{queue}}' }],
      width: 8,
      stacked: true,
    },
    {
      title: 'Pending tasks by type',
      description: 'Unfinished tasks: waiting, delayed, backing off or running.',
      kind: 'timeseries',
      unit: 'short',
      targets: [{ expression: `sum by (task_type) (${counted('pending')})`, legend: '{{task_type}}' }],
      width: 8,
      stacked: true,
    },
    {
      title: 'Running tasks by type',
      description: 'Under a live lease, of any replica, dead ones included.',
      kind: 'timeseries',
      unit: 'short',
      targets: [{ expression: `sum by (task_type) (${counted('running')})`, legend: '{{task_type}}' }],
      width: 8,
      stacked: true,
    },
    {
      title: 'Paused queues',
      description: '1 while an operator has paused the queue.',
      kind: 'bargauge',
      unit: 'short',
      targets: [
        {
          expression: `max by (queue) (${metric('queuePaused')}{${FLEET}, queue=~"$queue"})`,
          legend: '{{queue}}',
        },
      ],
      width: 4,
    },
    {
      title: 'Counts at their bound',
      description: 'The number of series that say "at least": a count that ends at its bound.',
      kind: 'stat',
      unit: 'short',
      targets: [
        { expression: `count(${metric('countsCapped')}{${BY_TYPE}}) or vector(0)`, legend: 'capped' },
      ],
      width: 4,
    },
  ],
};

const RUNS: Row = {
  title: 'Runs: does it succeed?',
  panels: [
    {
      title: 'Runs by outcome',
      description: 'Settled runs a second.',
      kind: 'timeseries',
      unit: 'ops',
      targets: [{ expression: rateBy('outcome', `${metric('runs')}{${BY_TYPE}}`), legend: '{{outcome}}' }],
      width: 8,
      stacked: true,
    },
    {
      title: 'Runs by type',
      description: 'Settled runs a second, whatever their outcome.',
      kind: 'timeseries',
      unit: 'ops',
      targets: [
        { expression: rateBy('task_type', `${metric('runs')}{${BY_TYPE}}`), legend: '{{task_type}}' },
      ],
      width: 8,
      stacked: true,
    },
    {
      title: 'Failed or timed out',
      description: 'Share of the runs that failed or timed out.',
      kind: 'timeseries',
      unit: 'percentunit',
      targets: [
        {
          expression:
            `${rateBy('task_type', `${metric('runs')}{${BY_TYPE}, outcome=~"failure|timeout"}`)}` +
            ` / ${rateBy('task_type', `${metric('runs')}{${BY_TYPE}, outcome=~"success|continued|failure|timeout"}`)}`,
          legend: '{{task_type}}',
        },
      ],
      width: 8,
      thresholds: [0.05, 0.2],
    },
  ],
};

const LATENCY: Row = {
  title: 'Latency: how long does it take?',
  panels: [
    {
      title: 'Wait from due to claim',
      description: 'By the clock of the database.',
      kind: 'timeseries',
      unit: 's',
      targets: quantiles(`${metric('wait', '_bucket')}{${BY_TYPE}}`, '', ''),
      width: 8,
    },
    {
      title: 'Run duration',
      description:
        'Of handlers that were started, p95 of each type: compare it with the ceiling of the type.',
      kind: 'timeseries',
      unit: 's',
      targets: [
        {
          expression: `histogram_quantile(0.95, ${rateBy('le, task_type', `${metric('runDuration', '_bucket')}{${TYPE_ALONE}}`)})`,
          legend: '{{task_type}}',
        },
      ],
      width: 8,
    },
    {
      title: 'Claim',
      description: 'From sending a claim to its answer.',
      kind: 'timeseries',
      unit: 's',
      targets: quantiles(`${metric('claimDuration', '_bucket')}{${FLEET}}`, '', ''),
      width: 4,
    },
    {
      title: 'Settlement',
      description: "From a handler's return to the answer, retries included.",
      kind: 'timeseries',
      unit: 's',
      targets: quantiles(`${metric('settleDuration', '_bucket')}{${FLEET}}`, '', ''),
      width: 4,
    },
  ],
};

const byInstance = (
  key: 'slotsBusy' | 'slotsOverrun' | 'clockOffset' | 'eventLoopDelay' | 'listenerConnected',
) => `max by (instance) (${metric(key)}{${FLEET}})`;

const REPLICAS: Row = {
  title: 'Replicas: are the workers well?',
  panels: [
    {
      title: 'Busy slots by replica',
      description: 'Slots that hold a task.',
      kind: 'timeseries',
      unit: 'short',
      targets: [{ expression: byInstance('slotsBusy'), legend: '{{instance}}' }],
      width: 8,
      stacked: true,
    },
    {
      title: 'Overrun slots',
      description: 'Held by handlers that are past their deadline and have not returned.',
      kind: 'timeseries',
      unit: 'short',
      targets: [{ expression: byInstance('slotsOverrun'), legend: '{{instance}}' }],
      width: 8,
      thresholds: [1, 2],
    },
    {
      title: 'Event loop',
      description: 'The longest block of the last minute. Handlers that compute belong into threads.',
      kind: 'timeseries',
      unit: 's',
      targets: [{ expression: byInstance('eventLoopDelay'), legend: '{{instance}}' }],
      width: 8,
    },
    {
      title: 'Clock offset',
      description: 'Clock of the database minus that of the replica.',
      kind: 'timeseries',
      unit: 's',
      targets: [{ expression: byInstance('clockOffset'), legend: '{{instance}}' }],
      width: 8,
    },
    {
      title: 'Listening for wakes',
      description: '1 while the replica listens; at 0 it finds tasks by its poll alone.',
      kind: 'timeseries',
      unit: 'short',
      targets: [
        { expression: byInstance('listenerConnected'), legend: '{{instance}}' },
        {
          expression: `sum(increase(${metric('listenerReconnects')}{${FLEET}}[${RATE}]))`,
          legend: 'reconnects of all',
        },
      ],
      width: 8,
    },
    {
      title: 'Wakes and empty claims',
      description: 'Notifications received, and claims that another replica was faster at.',
      kind: 'timeseries',
      unit: 'ops',
      targets: [
        { expression: `sum(rate(${metric('wakes')}{${FLEET}}[${RATE}]))`, legend: 'wakes' },
        { expression: `sum(rate(${metric('claimsEmpty')}{${FLEET}}[${RATE}]))`, legend: 'empty claims' },
        {
          expression: `sum(rate(${metric('middlewareFailures')}{${FLEET}}[${RATE}]))`,
          legend: 'middleware failures',
        },
      ],
      width: 8,
    },
  ],
};

const DEAD_LETTERS: Row = {
  title: 'Dead letters: was work given up?',
  panels: [
    {
      title: 'Dead letters',
      description: 'By type, at the most 10,000 of a type in a queue.',
      kind: 'timeseries',
      unit: 'short',
      targets: [{ expression: `sum by (task_type) (${counted('dead')})`, legend: '{{task_type}}' }],
      width: 8,
      stacked: true,
    },
    {
      title: 'New dead letters',
      description: 'Per hour, without those whose worker died on the final attempt.',
      kind: 'timeseries',
      unit: 'short',
      targets: [
        {
          expression: `sum by (task_type) (increase(${metric('deadLetters')}{${BY_TYPE}}[1h]))`,
          legend: '{{task_type}}',
        },
      ],
      width: 8,
    },
    {
      title: 'Tasks that nobody registers',
      description: 'Unfinished tasks of a type, or of a newer payload revision, that no replica registers.',
      kind: 'timeseries',
      unit: 'short',
      targets: [
        {
          expression: `min by (task_type) (${metric('unregisteredTasks')}{${TYPE_ALONE}})`,
          legend: '{{task_type}}',
        },
      ],
      width: 4,
    },
    {
      title: 'Kept records',
      description: 'Finished tasks whose record is kept.',
      kind: 'timeseries',
      unit: 'short',
      targets: [{ expression: `sum by (task_type) (${counted('completed')})`, legend: '{{task_type}}' }],
      width: 4,
    },
  ],
};

const CRON: Row = {
  title: 'Cron: did it tick?',
  panels: [
    {
      title: 'Ticks by entry and outcome',
      description: 'Per hour. Missed ticks passed while no scheduler ran.',
      kind: 'timeseries',
      unit: 'short',
      targets: [
        {
          expression: `sum by (entry, outcome) (increase(${metric('cronTicks')}{${FLEET}}[1h]))`,
          legend: '{{entry}} {{outcome}}',
        },
      ],
      width: 12,
    },
    {
      title: 'Lag of ticks',
      description: 'From a tick to the enqueue of its task, p95.',
      kind: 'timeseries',
      unit: 's',
      targets: [
        {
          expression: `histogram_quantile(0.95, ${rateBy('le, entry', `${metric('cronLag', '_bucket')}{${FLEET}}`)})`,
          legend: '{{entry}}',
        },
      ],
      width: 12,
    },
  ],
};

const DATABASE: Row = {
  title: 'Database: does it answer?',
  panels: [
    {
      title: 'Gauges are read',
      description: '1 when a replica reads the gauges; at 0 the panels above are empty.',
      kind: 'timeseries',
      unit: 'short',
      targets: [{ expression: `max by (job) (${metric('databaseUp')}{${FLEET}})`, legend: '{{job}}' }],
      width: 8,
    },
    {
      title: 'Age of the gauges',
      description: 'Since they were last read, by the replica that read them last.',
      kind: 'timeseries',
      unit: 's',
      targets: [{ expression: `min by (job) (${metric('gaugesAgeSeconds')}{${FLEET}})`, legend: '{{job}}' }],
      width: 8,
    },
    {
      title: 'Unanswered statements',
      description: 'What the database did not answer, each try, a second.',
      kind: 'timeseries',
      unit: 'ops',
      targets: [
        { expression: rateBy('during', `${metric('databaseErrors')}{${FLEET}}`), legend: '{{during}}' },
      ],
      width: 8,
    },
  ],
};

const ROWS: readonly Row[] = [QUEUES, RUNS, LATENCY, REPLICAS, DEAD_LETTERS, CRON, DATABASE];

const DATASOURCE = { type: 'prometheus', uid: '$datasource' };
const WIDTH = 24;
const HEIGHT = 8;

function renderRows(): object[] {
  const rendered: object[] = [];
  let y = 0;
  let id = 0;
  for (const { title, panels } of ROWS) {
    id += 1;
    rendered.push({
      id,
      type: 'row',
      title,
      collapsed: false,
      panels: [],
      gridPos: { x: 0, y, w: WIDTH, h: 1 },
    });
    y += 1;
    let x = 0;
    for (const panel of panels) {
      if (x + panel.width > WIDTH) {
        x = 0;
        y += HEIGHT;
      }
      id += 1;
      rendered.push(renderPanel(panel, id, { x, y, w: panel.width, h: HEIGHT }));
      x += panel.width;
    }
    y += HEIGHT;
  }
  return rendered;
}

function renderPanel(panel: Panel, id: number, gridPos: object): object {
  const { title, description, kind, unit, targets, stacked = false, thresholds } = panel;
  const steps = [
    { color: 'green', value: null },
    ...(thresholds === undefined
      ? []
      : [
          { color: 'orange', value: thresholds[0] },
          { color: 'red', value: thresholds[1] },
        ]),
  ];
  const custom = {
    fillOpacity: stacked ? 30 : 10,
    stacking: { mode: stacked ? 'normal' : 'none', group: 'A' },
    thresholdsStyle: { mode: thresholds === undefined ? 'off' : 'line' },
  };
  return {
    id,
    type: kind,
    title,
    description,
    datasource: DATASOURCE,
    gridPos,
    fieldConfig: {
      defaults: {
        unit,
        min: 0,
        thresholds: { mode: 'absolute', steps },
        ...(kind === 'timeseries' ? { custom } : {}),
      },
      overrides: [],
    },
    options: {},
    targets: targets.map(({ expression, legend }, index) => ({
      refId: String.fromCharCode('A'.charCodeAt(0) + index),
      datasource: DATASOURCE,
      expr: expression,
      legendFormat: legend,
      // A bar or a number is of now, a line of the time that is shown.
      ...(kind === 'timeseries' ? { range: true } : { instant: true }),
    })),
  };
}

const labelVariable = (name: string, label: string, query: string) => ({
  name,
  label,
  type: 'query',
  datasource: DATASOURCE,
  query: { query, refId: name },
  definition: query,
  multi: true,
  includeAll: true,
  allValue: '.*',
  current: { selected: true, text: ['All'], value: ['$__all'] },
  refresh: 2,
  sort: 1,
});

/** What the variables choose from. */
export const VARIABLE_QUERIES = {
  job: `label_values(${metric('databaseUp')}, job)`,
  queue: `label_values(${metric('pending')}{${FLEET}}, queue)`,
  task_type: `label_values(${metric('pending')}{${FLEET}, queue=~"$queue"}, task_type)`,
} as const;

/** The dashboard as Grafana imports it, or as a file of its provisioning. */
export function renderDashboard(): string {
  const dashboard = {
    uid: 'taskq',
    title: 'taskq',
    description: 'Queues, runs, latency, replicas, dead letters, cron and database of taskq.',
    tags: ['taskq'],
    schemaVersion: 39,
    version: 1,
    editable: true,
    graphTooltip: 1,
    timezone: 'browser',
    refresh: '30s',
    time: { from: 'now-3h', to: 'now' },
    templating: {
      list: [
        { name: 'datasource', label: 'Data source', type: 'datasource', query: 'prometheus', refresh: 1 },
        labelVariable('job', 'Fleet', VARIABLE_QUERIES.job),
        labelVariable('queue', 'Queue', VARIABLE_QUERIES.queue),
        labelVariable('task_type', 'Task type', VARIABLE_QUERIES.task_type),
      ],
    },
    annotations: { list: [] },
    panels: renderRows(),
  };
  return `${JSON.stringify(dashboard, undefined, 2)}\n`;
}
