import { beforeEach, expect, test } from 'vitest';
import { ALERTS } from './alerts.ts';
import { pathOf } from './files.ts';
import {
  AGEING,
  between,
  expectAlerts,
  type Firing,
  growing,
  idleWith,
  MAIL,
  REPORT,
  replica,
  seriesOf,
  shared,
} from './fleet.ts';
import { requirePromtool, testRules } from './promtool.ts';
import { prometheusAnnotations } from './render-alerts.ts';

beforeEach(requirePromtool);

/** Mail waits: for the fleet, its queue and its type. */
const MAIL_STARVES: Firing[] = [
  { name: 'TaskqStarvation' },
  { name: 'TaskqQueueStarving', labels: { queue: 'default' } },
  { name: 'TaskqTypeStarving', labels: { task_type: 'mail' } },
];
const REPORT_STARVES: Firing[] = [
  { name: 'TaskqStarvation' },
  { name: 'TaskqQueueStarving', labels: { queue: 'low' } },
  { name: 'TaskqTypeStarving', labels: { task_type: 'report' } },
];

const mailWaits = shared(`oldest_due_seconds{${MAIL}}`, AGEING);
const reportsWait = shared(`oldest_due_seconds{${REPORT}}`, AGEING);
/** A gauge without rows may have no series. */
const noneRuns = { ...shared(`running{${MAIL}}`, undefined), ...shared(`running{${REPORT}}`, undefined) };
const busy = (slots: number, instances = ['a', 'b']) => shared('slots_busy', between(slots), instances);

test('starvation fires when due tasks are old and slots are free, ten minutes after they were due', async () => {
  const values = { ...mailWaits, ...shared(`running{${MAIL}}`, between(1)), ...busy(1, ['a']) };
  await expectAlerts({ values, at: { '5m': [], '10m': [], '11m': MAIL_STARVES, '60m': MAIL_STARVES } });
});

test('starvation fires when nothing runs, and there is no series of running tasks at all', async () => {
  await expectAlerts({ values: { ...mailWaits, ...noneRuns }, at: { '11m': MAIL_STARVES } });
});

test('starvation fires when the fleet has no slots', async () => {
  const values = { ...mailWaits, ...shared('slots', between(0)) };
  await expectAlerts({ values, at: { '11m': MAIL_STARVES } });
});

test('one orphaned lease does not keep starvation from firing, not even in a fleet of one slot', async () => {
  const orphan = shared(`running{${REPORT}}`, between(1));
  await expectAlerts({ values: { ...mailWaits, ...orphan }, at: { '11m': MAIL_STARVES } });
  const oneSlot = {
    ...mailWaits,
    ...orphan,
    'slots{instance="a"}': between(1),
    'slots{instance="b"}': between(0),
  };
  await expectAlerts({ values: oneSlot, at: { '11m': MAIL_STARVES } });
});

test('starvation fires when every slot is held by a handler that overran its lease', async () => {
  const values = { ...mailWaits, ...busy(4), ...shared('slots_overrun', between(4)) };
  const overrun = ['a', 'b'].map((instance) => ({ name: 'TaskqSlotsOverrun', labels: { instance } }));
  await expectAlerts({ values, at: { '11m': [...MAIL_STARVES, ...overrun] } });
  await expectAlerts({ values: { ...values, ...noneRuns }, at: { '11m': [...MAIL_STARVES, ...overrun] } });
});

test('starvation is silent in a draining sweep, however old its tasks are', async () => {
  const values = { ...mailWaits, ...shared(`running{${MAIL}}`, between(8)), ...busy(4) };
  await expectAlerts({ values, at: { '11m': [], '60m': [] } });
});

test('starvation is silent in a draining sweep of short tasks, between which slots are free', async () => {
  const values = {
    ...mailWaits,
    ...shared(`running{${MAIL}}`, between(5)),
    ...busy(3),
    ...shared(`runs_total{${MAIL},outcome="success"}`, growing(20)),
  };
  await expectAlerts({ values, at: { '11m': [], '60m': [] } });
});

test('starvation fires for the type that nobody takes, beside a draining sweep of short tasks', async () => {
  const values = {
    ...mailWaits,
    ...reportsWait,
    ...shared(`running{${MAIL}}`, between(5)),
    ...busy(3),
    ...shared(`runs_total{${MAIL},outcome="success"}`, growing(20)),
  };
  await expectAlerts({ values, at: { '11m': REPORT_STARVES } });
});

test('starvation fires when tasks are run late by a fleet that is idle most of the time', async () => {
  const values = {
    ...shared(`oldest_due_seconds{${MAIL}}`, between(900)),
    ...busy(1),
    ...shared(`runs_total{${MAIL},outcome="success"}`, growing(1)),
  };
  await expectAlerts({ values, at: { '11m': MAIL_STARVES } });
});

test('every alert is silent in a rollout: replicas end and begin, counters start again, gauges are absent', async () => {
  const backlog = `0x39 300+15x12 60x400`;
  const only = {
    ...replica('a', { to: 12 }),
    ...replica('b', { to: 14 }),
    ...replica('c', { from: 13 }),
    ...replica('d', { from: 15 }),
    ...shared(`oldest_due_seconds{${MAIL}}`, backlog, ['a', 'b', 'c', 'd']),
    ...shared('slots_busy', between(2, { to: 13 }), ['a', 'b']),
    ...shared('listener_connected', `_x52 0x4 1x400`, ['c', 'd']),
    'database_up{instance="c"}': '_x52 0x2 1x400',
    [`runs_total{instance="a",${MAIL},outcome="success"}`]: '1000+15x48 stale',
    [`runs_total{instance="c",${MAIL},outcome="success"}`]: '_x52 0+15x400',
    'unregistered_tasks{instance="a",task_type="mail"}': '0x40 3x8 stale',
    'unregistered_tasks{instance="b",task_type="mail"}': '0x40 3x16 stale',
  };
  const minutes = Array.from({ length: 25 }, (_, index) => `${index + 10}m`);
  await expectAlerts({ only, at: Object.fromEntries(minutes.map((minute) => [minute, []])) });
});

test('every alert is silent when nothing is to be done', async () => {
  await expectAlerts({ at: { '15m': [], '60m': [], '5h': [] } });
});

test('every alert is silent while a database has no row, and the gauges of its tasks have no series', async () => {
  const names = ['pending', 'running', 'due', 'dead', 'completed', 'oldest_due_seconds'];
  const absent = names.flatMap((name) =>
    [MAIL, REPORT].map((labels) => shared(`${name}{${labels}}`, undefined)),
  );
  await expectAlerts({ values: Object.assign({}, ...absent), at: { '15m': [], '60m': [] } });
});

test('starvation is silent for a queue that an operator has paused, and told once that is long ago', async () => {
  const values = {
    ...reportsWait,
    ...shared(`due{${REPORT}}`, between(7)),
    ...shared('queue_paused{queue="low"}', between(1)),
  };
  const forgotten = [{ name: 'TaskqQueuePausedLong', labels: { queue: 'low' } }];
  await expectAlerts({ values, at: { '15m': [], '3h': [], '5h': forgotten } });
  await expectAlerts({ values: { ...values, ...mailWaits }, at: { '15m': MAIL_STARVES } });
});

test('a queue that always has due tasks, and drains, is not taken for a paused one', async () => {
  await expectAlerts({ values: shared(`due{${REPORT}}`, between(7)), at: { '5h': [] } });
});

test('a paused queue without due tasks is not told', async () => {
  await expectAlerts({ values: shared('queue_paused{queue="low"}', between(1)), at: { '5h': [] } });
});

test('the free slots of one fleet say nothing of another', async () => {
  const draining = { ...mailWaits, ...shared(`running{${MAIL}}`, between(8)), ...busy(4) };
  await expectAlerts({ values: draining, others: { staging: idleWith({}) }, at: { '15m': [] } });
  const starving = MAIL_STARVES.map((each) => ({ ...each, job: 'staging' }));
  await expectAlerts({ values: draining, others: { staging: idleWith(mailWaits) }, at: { '15m': starving } });
});

test('the page names what to look at', async () => {
  const [starvation] = ALERTS;
  expect(starvation?.name).toBe('TaskqStarvation');
  const annotations = prometheusAnnotations(starvation as (typeof ALERTS)[number]);
  const alert = {
    eval_time: '15m',
    alertname: 'TaskqStarvation',
    exp_alerts: [
      {
        exp_labels: { severity: 'page', job: 'workers' },
        exp_annotations: {
          ...annotations,
          summary: 'Due tasks of workers wait while workers are free',
          description: annotations['description']?.replace('{{ humanizeDuration $value }}', '15m 0s'),
        },
      },
    ],
  };
  const input = {
    interval: '15s',
    input_series: seriesOf('workers', idleWith(mailWaits)),
    alert_rule_test: [alert],
  };
  await testRules([pathOf('taskq-alerts.yml')], [input]);
});
