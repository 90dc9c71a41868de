import { beforeEach, test } from 'vitest';
import {
  between,
  expectAlerts,
  type Firing,
  growing,
  idleWith,
  MAIL,
  REPORT,
  replica,
  shared,
  type Values,
} from './fleet.ts';
import { requirePromtool } from './promtool.ts';

beforeEach(requirePromtool);

const runs = (outcome: string, labels: string, values: string, instance = 'a'): Values => ({
  [`runs_total{instance="${instance}",${labels},outcome="${outcome}"}`]: values,
});

const MAIL_FAILS: Firing[] = [
  { name: 'TaskqTypeFailing', labels: { task_type: 'mail' } },
  { name: 'TaskqQueueFailing', labels: { queue: 'default' } },
];

test.each(['failure', 'timeout'])('a rate of %s fires, by type and by queue', async (outcome) => {
  const values = { ...runs(outcome, MAIL, growing(0.1)), ...runs('success', MAIL, growing(0.2)) };
  await expectAlerts({ values, at: { '20m': MAIL_FAILS, '60m': MAIL_FAILS } });
});

test('failures of many types, each too rare by itself, fire for their queue', async () => {
  const types = ['one', 'two', 'three', 'four'].map((type) => `task_type="${type}",queue="low"`);
  const values = Object.assign({}, ...types.map((labels) => runs('failure', labels, growing(0.005))));
  await expectAlerts({ values, at: { '30m': [{ name: 'TaskqQueueFailing', labels: { queue: 'low' } }] } });
});

test('failures are silent while they are a small share of the runs', async () => {
  const values = { ...runs('failure', MAIL, growing(0.1)), ...runs('success', MAIL, growing(1)) };
  await expectAlerts({ values, at: { '20m': [], '60m': [] } });
});

test('one task that fails again and again is silent, though every run of its type fails', async () => {
  const secondsOfAttempts = [0, 15, 45, 105, 225, 465, 945, 1_545, 2_145];
  const counts = Array.from(
    { length: 200 },
    (_, step) => secondsOfAttempts.filter((second) => second <= step * 15).length,
  );
  await expectAlerts({
    values: runs('failure', MAIL, counts.join(' ')),
    at: { '10m': [], '16m': [], '20m': [], '40m': [] },
  });
});

test('a slice that continues is a run that went well; releases and lost leases say nothing', async () => {
  const few = {
    ...runs('failure', MAIL, growing(0.1)),
    ...runs('continued', MAIL, growing(1)),
  };
  await expectAlerts({ values: few, at: { '20m': [], '60m': [] } });
  const none = { ...runs('cancelled', MAIL, growing(1)), ...runs('lost', MAIL, growing(1)) };
  await expectAlerts({ values: none, at: { '20m': [], '60m': [] } });
  await expectAlerts({
    values: { ...none, ...runs('failure', MAIL, growing(0.1)) },
    at: { '20m': MAIL_FAILS },
  });
});

test('a service that was away for a minute is silent', async () => {
  const values = { ...runs('failure', MAIL, '0x3 10 20 30 40x2000'), ...runs('success', MAIL, growing(1)) };
  await expectAlerts({ values, at: { '1m': [], '2m': [], '3m': [], '8m': [] } });
});

test('failures are over when they are over', async () => {
  const values = runs('failure', MAIL, '0+1.5x80 120x400');
  await expectAlerts({ values, at: { '20m': MAIL_FAILS, '40m': [] } });
});

const MAIL_DIES: Firing[] = [
  { name: 'TaskqDeadLettersGrowing', labels: { task_type: 'mail', queue: 'default' } },
];
const died = (labels: string, values: string): Values => ({
  [`dead_letters_total{instance="a",${labels}}`]: values,
});

test('one dead letter fires, for an hour', async () => {
  const values = { ...died(MAIL, '0x40 1x2000'), ...shared(`dead{${MAIL}}`, '0x40 1x2000') };
  await expectAlerts({ values, at: { '12m': [], '20m': MAIL_DIES, '65m': MAIL_DIES, '90m': [] } });
});

test('a task whose worker died on the final attempt fires too, which no replica has counted', async () => {
  await expectAlerts({ values: shared(`dead{${MAIL}}`, '7x40 8x2000'), at: { '20m': MAIL_DIES, '90m': [] } });
});

test('dead letters beyond the bound of their count still fire', async () => {
  const values = { ...died(MAIL, growing(0.01)), ...shared(`dead{${MAIL}}`, between(10_000)) };
  await expectAlerts({ values, at: { '20m': MAIL_DIES } });
});

test('dead letters that are there, and no more, are silent; so are those that are pruned', async () => {
  const values = { ...shared(`dead{${MAIL}}`, between(500)), ...shared(`dead{${REPORT}}`, '500-1x400') };
  await expectAlerts({ values, at: { '20m': [], '60m': [] } });
});

test('dead letters are over when all of them have been replayed', async () => {
  const values = { ...died(MAIL, '0x40 9x2000'), ...shared(`dead{${MAIL}}`, '0x40 9x40 0x2000') };
  await expectAlerts({ values, at: { '20m': MAIL_DIES, '22m': [] } });
});

test.each([3.5, -3.5])('a clock that is %d s off fires, of its replica', async (offset) => {
  const values = { 'clock_offset_seconds{instance="b"}': between(offset) };
  await expectAlerts({
    values,
    at: { '5m': [], '15m': [{ name: 'TaskqClockOffset', labels: { instance: 'b' } }] },
  });
});

test('one slow claim that measures the clock wrongly is silent', async () => {
  const values = { 'clock_offset_seconds{instance="b"}': '0x40 5x8 0x2000' };
  await expectAlerts({ values, at: { '12m': [], '20m': [], '25m': [] } });
});

test('a handler that does not return after its deadline fires, of its replica', async () => {
  const values = { 'slots_overrun{instance="b"}': between(1), 'slots_busy{instance="b"}': between(1) };
  await expectAlerts({
    values,
    at: { '4m': [], '10m': [{ name: 'TaskqSlotsOverrun', labels: { instance: 'b' } }] },
  });
});

test('handlers that unwind for some seconds after their deadlines are silent', async () => {
  const values = { 'slots_overrun{instance="b"}': Array.from({ length: 30 }, () => '1x3 0x3').join(' ') };
  await expectAlerts({ values, at: { '10m': [], '20m': [] } });
});

test('nobody listens fires, and is silent as long as one replica does', async () => {
  const nobody = shared('listener_connected', between(0));
  await expectAlerts({ values: nobody, at: { '4m': [], '10m': [{ name: 'TaskqNobodyListens' }] } });
  await expectAlerts({
    values: { ...nobody, 'listener_connected{instance="b"}': between(1) },
    at: { '10m': [] },
  });
});

test('a restart of the database is silent: nobody listens, and no gauge is read, for three minutes', async () => {
  const values = {
    ...shared('listener_connected', '1x40 0x12 1x2000'),
    ...shared('database_up', '1x40 0x12 1x2000'),
    ...shared(`oldest_due_seconds{${MAIL}}`, '0x40 _x12 200-15x13 0x2000'),
  };
  await expectAlerts({ values, at: { '12m': [], '14m': [], '16m': [], '20m': [] } });
});

test('gauges that no replica can read fire, and are silent as long as one can', async () => {
  const down = shared('database_up', between(0));
  await expectAlerts({ values: down, at: { '4m': [], '10m': [{ name: 'TaskqDatabaseGaugesGone' }] } });
  await expectAlerts({ values: { ...down, 'database_up{instance="b"}': between(1) }, at: { '10m': [] } });
});

test('a fleet of which nothing is scraped any more fires', async () => {
  const only = { ...replica('a', { to: 20 }), ...replica('b', { to: 20 }) };
  const gone: Firing[] = [{ name: 'TaskqMetricsGone' }];
  await expectAlerts({ only, others: { staging: idleWith({}) }, at: { '25m': [], '35m': gone, '100m': [] } });
});

test('a Prometheus that has never seen a fleet fires', async () => {
  await expectAlerts({ only: {}, at: { '5m': [], '15m': [{ name: 'TaskqMetricsGone', job: '' }] } });
});

test('a fleet that is recreated is silent', async () => {
  const only = { ...replica('a', { to: 20 }), ...replica('c', { from: 26 }) };
  await expectAlerts({ only, at: { '25m': [], '30m': [], '40m': [] } });
});

test('tasks that no replica registers fire, and are silent as long as one registers them', async () => {
  const unknown = shared('unregistered_tasks{task_type="gone"}', between(3));
  const fires = [{ name: 'TaskqUnregisteredTasks', labels: { task_type: 'gone' } }];
  await expectAlerts({ values: unknown, at: { '10m': [], '20m': fires } });
  const known = { ...unknown, 'unregistered_tasks{instance="b",task_type="gone"}': between(0) };
  await expectAlerts({ values: known, at: { '20m': [] } });
});
