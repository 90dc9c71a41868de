import { setTimeout as delay } from 'node:timers/promises';
import { SkipRetry } from '../../src/index.ts';
import { DATABASE_WORK } from '../../src/metrics/names.ts';
import { test as cronTest, lookAgain } from '../support/cron.ts';
import { FaultProxy } from '../support/fault-proxy.ts';
import { scrape, testMetrics } from '../support/metrics.ts';
import { gate, test, whenIdle } from '../support/replica.ts';
import { insertRow, wakeReplicas } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { expect, onTestFinished } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

const PLAIN = { task_type: 'plain', queue: 'default' };

test('counters of what is registered are there at zero before anything has happened', async ({
  startReplica,
}) => {
  const metrics = testMetrics();

  await startReplica({ metrics });

  const { value } = await scrape(metrics);
  for (const outcome of ['success', 'failure', 'timeout', 'cancelled', 'continued', 'lost']) {
    expect(value('taskq_runs_total', { ...PLAIN, outcome })).toBe(0);
    expect(value('taskq_runs_total', { task_type: 'fragile', queue: 'fragile', outcome })).toBe(0);
  }
  expect(value('taskq_dead_letters_total', PLAIN)).toBe(0);
  for (const during of DATABASE_WORK) {
    expect(value('taskq_database_errors_total', { during })).toBe(0);
  }
  for (const name of ['claims_empty', 'wakes', 'listener_reconnects', 'middleware_failures']) {
    expect(value(`taskq_${name}_total`)).toBeDefined();
  }
});

test('a run is counted by its outcome, and timed', async ({ db, startReplica }) => {
  const metrics = testMetrics();
  const { events } = await startReplica({
    metrics,
    handlers: {
      plain: async () => {
        await delay(20);
      },
      fragile: async () => {
        throw new Error('broken');
      },
    },
  });

  await enqueue(db, 'plain', {});
  await enqueue(db, 'plain', {}, { queue: 'quick' });
  await enqueue(db, 'fragile', {});
  await events.atLeast(3, 'settled');

  const { value } = await scrape(metrics);
  expect(value('taskq_runs_total', { ...PLAIN, outcome: 'success' })).toBe(1);
  expect(value('taskq_runs_total', { task_type: 'plain', queue: 'quick', outcome: 'success' })).toBe(1);
  expect(value('taskq_runs_total', { task_type: 'fragile', outcome: 'failure' })).toBe(1);
  expect(value('taskq_run_duration_seconds_count', { task_type: 'plain', outcome: 'success' })).toBe(2);
  expect(value('taskq_run_duration_seconds_sum', { task_type: 'plain', outcome: 'success' })).toBeGreaterThan(
    0.03,
  );
  expect(value('taskq_wait_seconds_count', PLAIN)).toBe(1);
  expect(value('taskq_claim_duration_seconds_count')).toBeGreaterThanOrEqual(1);
  expect(value('taskq_claim_duration_seconds_sum')).toBeGreaterThan(0);
  expect(value('taskq_settle_duration_seconds_count')).toBe(3);
  expect(value('taskq_settle_duration_seconds_sum')).toBeGreaterThan(0);
  expect(value('taskq_clock_offset_seconds')).toBeDefined();
});

test('the wait is from when a task was due to its claim', async ({ db, startReplica }) => {
  const metrics = testMetrics();
  await insertRow(db, { runAtSeconds: -600 });

  const { events } = await startReplica({ metrics });
  await events.first('settled');

  const { value } = await scrape(metrics);
  expect(value('taskq_wait_seconds_bucket', { ...PLAIN, le: '300' })).toBe(0);
  expect(value('taskq_wait_seconds_bucket', { ...PLAIN, le: '900' })).toBe(1);
});

test('a task that is made a dead letter is counted, one that will be retried is not', async ({
  db,
  startReplica,
}) => {
  const metrics = testMetrics();
  const { events } = await startReplica({
    metrics,
    handlers: {
      plain: async ({ n }) => {
        throw n === 0 ? new Error('try again') : new SkipRetry('in vain');
      },
    },
  });

  await enqueue(db, 'plain', { n: 0 });
  await enqueue(db, 'plain', { n: 1 });
  await insertRow(db, { attemptCount: 19 });
  await wakeReplicas(db);
  await events.atLeast(3, 'settled');

  const { value } = await scrape(metrics);
  expect(value('taskq_dead_letters_total', PLAIN)).toBe(2);
});

test('slots, busy slots and overrun slots are shown as they are', async ({ db, startReplica }) => {
  const metrics = testMetrics();
  const hold = gate();
  const { events, app } = await startReplica({
    metrics,
    slots: 3,
    pollInterval: '100ms',
    handlers: { brief: () => hold.promise, plain: () => hold.promise },
  });
  expect((await scrape(metrics)).value('taskq_slots')).toBe(3);
  expect((await scrape(metrics)).value('taskq_slots_busy')).toBe(0);

  await enqueue(db, 'brief', {});
  await enqueue(db, 'plain', {});
  await events.atLeast(2, 'claimed');
  expect((await scrape(metrics)).value('taskq_slots_busy')).toBe(2);
  // The handler of `brief` does not listen to its signal, and its ceiling is a second.
  await events.first('handler_overrun');

  const { value } = await scrape(metrics);
  expect(value('taskq_slots')).toBe(3);
  expect(value('taskq_slots_overrun')).toBe(1);
  hold.open();
  await app.stop();
  expect((await scrape(metrics)).value('taskq_slots'), 'a stopped replica is no capacity').toBeUndefined();
});

test('wakes are counted, and the claims that found their candidates taken', async ({ db, startReplica }) => {
  const metrics = testMetrics();
  const replica = await startReplica({ metrics, slots: 1 });
  await whenIdle(replica);
  const before = await scrape(metrics);

  await enqueue(db, 'plain', {});
  await replica.events.first('settled');

  const after = await scrape(metrics);
  expect(after.value('taskq_wakes_total')).toBe(Number(before.value('taskq_wakes_total')) + 1);
  expect(after.value('taskq_claims_empty_total')).toBe(replica.events.of('claim_empty').length);
});

test('a lost LISTEN connection shows at once, and its return is counted', async ({
  database,
  startReplica,
}) => {
  const metrics = testMetrics();
  const proxy = await FaultProxy.start(database.connection);
  onTestFinished(() => proxy.stop());
  const { events } = await startReplica({ metrics, listenDatabase: proxy.url });
  expect((await scrape(metrics)).value('taskq_listener_connected')).toBe(1);

  proxy.mode = 'refuse';
  proxy.resetAll();
  await events.first('listener_lost');
  const lost = await scrape(metrics);
  proxy.mode = 'pass';
  await events.first('listener_connected', ({ again }) => again);

  const back = await scrape(metrics);
  expect(lost.value('taskq_listener_connected')).toBe(0);
  expect(lost.value('taskq_listener_reconnects_total')).toBe(0);
  expect(lost.value('taskq_database_errors_total', { during: 'listen' })).toBe(1);
  expect(back.value('taskq_listener_connected')).toBe(1);
  expect(back.value('taskq_listener_reconnects_total')).toBe(1);
});

test('what the database does not answer is counted by what was asked of it', async ({
  database,
  db,
  startReplica,
}) => {
  const metrics = testMetrics();
  const proxy = await FaultProxy.start(database.connection);
  onTestFinished(() => proxy.stop());
  const running = gate();
  const { events } = await startReplica({
    metrics,
    slots: 2,
    database: proxy.url,
    listenDatabase: database.url,
    pollInterval: '100ms',
    handlers: { plain: () => running.promise },
  });
  await enqueue(db, 'plain', {});
  await events.first('claimed');

  proxy.mode = 'refuse';
  proxy.resetAll();
  running.open();
  await events.first('settlement_retried');
  await events.first('database_failed');

  const { value } = await scrape(metrics);
  expect(value('taskq_database_errors_total', { during: 'settle' })).toBeGreaterThanOrEqual(1);
  expect(value('taskq_database_errors_total', { during: 'claim' })).toBeGreaterThanOrEqual(1);
  proxy.mode = 'pass';
  await events.first('settled');
});

test('a middleware that throws is counted', async ({ db, startReplica }) => {
  const metrics = testMetrics();
  const { events } = await startReplica({
    metrics,
    middleware: [
      async () => {
        throw new Error('broken middleware');
      },
    ],
  });

  await enqueue(db, 'plain', {});
  await events.first('settled');

  expect((await scrape(metrics)).value('taskq_middleware_failures_total')).toBe(1);
});

test('a blocked event loop shows for a minute', async ({ startReplica }) => {
  const metrics = testMetrics();
  await startReplica({ metrics });

  const shown = async () => Number((await scrape(metrics)).value('taskq_event_loop_delay_seconds'));

  // A block right after a look is seen by how late the next one is, if it is: so there are several.
  const isShown = async () => {
    const until = performance.now() + 300;
    while (performance.now() < until);
    return (await shown()) > 0.25;
  };
  await waitFor(isShown, { what: 'the block to show' });
  expect(await shown(), 'seen by a second scrape').toBeGreaterThan(0.25);
  metrics.refresh();
  await waitFor(async () => (await shown()) < 0.25, { what: 'the block to be forgotten' });
});

cronTest('cron ticks are counted by entry and outcome, with their lag', async ({ time, startScheduler }) => {
  const metrics = testMetrics();
  const scheduler = await startScheduler([{ name: 'often', task: 'plain', schedule: '@every 1m' }], {
    metrics,
  });
  const at = (outcome: string) => ({ entry: 'often', outcome });
  expect((await scrape(metrics)).value('taskq_cron_ticks_total', at('enqueued'))).toBe(0);

  await time.advance('1m');
  await lookAgain(scheduler);
  const taken = await scrape(metrics);
  await time.advance('10m');
  await lookAgain(scheduler);

  const late = await scrape(metrics);
  expect(taken.value('taskq_cron_ticks_total', at('enqueued'))).toBe(1);
  expect(taken.value('taskq_cron_lag_seconds_count', { entry: 'often' })).toBe(1);
  expect(taken.value('taskq_cron_lag_seconds_sum', { entry: 'often' })).toBeGreaterThan(20);
  expect(late.value('taskq_cron_ticks_total', at('missed'))).toBeGreaterThanOrEqual(9);
  expect(late.value('taskq_slots'), 'it has no slots').toBe(0);
  expect(late.value('taskq_listener_connected'), 'and does not listen').toBeUndefined();
});
