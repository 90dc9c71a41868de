import { type Kysely, sql } from 'kysely';
import pg from 'pg';
import type { DB } from '../../generated/db.ts';
import { GAUGE_READ_MS_MAX } from '../../src/domain/limits.ts';
import { openOperator } from '../../src/operator.ts';
import { migrateUp } from '../../src/statements/migrate.ts';
import { openApplicationPool } from '../support/application-pool.ts';
import { administer } from '../support/databases.ts';
import { FaultProxy } from '../support/fault-proxy.ts';
import { scrape, testMetrics } from '../support/metrics.ts';
import { gate, test } from '../support/replica.ts';
import { startReplicaPair } from '../support/replica-pair.ts';
import { insertRow, insertRows } from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/schema.ts';
import { recordStatements } from '../support/statements.ts';
import { enqueue } from '../support/tasks.ts';
import { expect, onTestFinished } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

const PLAIN = { task_type: 'plain', queue: 'default' };
/** Rows stay as they are: nothing is served here. */
const idle = { queues: ['no_such_queue'] };

const isGaugeRead = ({ text }: { readonly text: string }) => text.includes('"exhausted_part"');

test('each gauge is the number of rows in its state', async ({ db, startReplica }) => {
  const metrics = testMetrics();
  await startReplica({ metrics, ...idle });
  await insertRows(db, 2);
  await insertRow(db, { runAtSeconds: -400 });
  await insertRow(db, { runAtSeconds: 600 });
  await insertRow(db, { runAtSeconds: 600, attemptCount: 1 });
  await insertRow(db, { leasedSeconds: 60, attemptCount: 1 });
  await insertRow(db, { leasedSeconds: 60, attemptCount: 20 });
  await insertRow(db, { leasedSeconds: -1, attemptCount: 1, runAtSeconds: -5 });
  await insertRow(db, { leasedSeconds: -1, attemptCount: 20 });
  await insertRows(db, 3, { attemptCount: 20, queue: 'low' });

  const { value } = await scrape(metrics);

  expect(value('taskq_pending', PLAIN), 'unfinished, a final attempt that is running included').toBe(8);
  expect(value('taskq_running', PLAIN), 'under a live lease').toBe(2);
  expect(value('taskq_due', PLAIN), 'due, not leased, attempts left').toBe(4);
  expect(value('taskq_dead', PLAIN), 'a worker died on the final attempt').toBe(1);
  expect(value('taskq_dead', { task_type: 'plain', queue: 'low' })).toBe(3);
  const oldest = Number(value('taskq_oldest_due_seconds', PLAIN));
  expect(oldest).toBeGreaterThanOrEqual(400);
  expect(oldest).toBeLessThan(460);
  expect(value('taskq_database_up')).toBe(1);
  expect(value('taskq_gauges_age_seconds')).toBeLessThan(60);
});

test('a record of a finished task is counted as completed', async ({ db, startReplica }) => {
  const metrics = testMetrics();
  const { events } = await startReplica({ metrics });

  await enqueue(db, 'plain', {}, { retention: '1h' });
  await events.first('settled');

  expect((await scrape(metrics)).value('taskq_completed', PLAIN)).toBe(1);
});

test('a registered type without a row is there at zero, another one is not', async ({ db, startReplica }) => {
  const metrics = testMetrics();
  await startReplica({ metrics, ...idle });
  const id = await insertRow(db, { type: 'stranger' });
  const before = await scrape(metrics);
  await sql`delete from ${sql.table(`${TEST_SCHEMA}.async_tasks`)} where id = ${id}`.execute(db);
  metrics.refresh();

  const after = await scrape(metrics);

  for (const gauge of ['pending', 'running', 'due', 'dead', 'completed', 'oldest_due_seconds']) {
    expect(after.value(`taskq_${gauge}`, PLAIN)).toBe(0);
    expect(after.value(`taskq_${gauge}`, { task_type: 'fragile', queue: 'fragile' })).toBe(0);
    expect(before.value(`taskq_${gauge}`, { task_type: 'stranger' })).toBeDefined();
    expect(after.value(`taskq_${gauge}`, { task_type: 'stranger' }), 'no stale series').toBeUndefined();
  }
});

test('tasks that this replica does not register are shown by type', async ({ db, startReplica }) => {
  const metrics = testMetrics();
  await startReplica({ metrics, ...idle });
  await insertRows(db, 3, { type: 'stranger' });
  await insertRow(db, { type: 'stranger', attemptCount: 20 });
  await insertRows(db, 2, { revision: 2 });
  await insertRows(db, 4);

  const { value } = await scrape(metrics);

  expect(value('taskq_unregistered_tasks', { task_type: 'stranger' }), 'dead letters wait for nobody').toBe(
    3,
  );
  expect(value('taskq_unregistered_tasks', { task_type: 'plain' }), 'of a newer revision').toBe(2);
  expect(value('taskq_unregistered_tasks', { task_type: 'fragile' })).toBe(0);
});

test('a paused queue is shown', async ({ database, startReplica }) => {
  const metrics = testMetrics();
  await startReplica({ metrics, ...idle });
  const operator = await openOperator({ database: database.url });
  onTestFinished(() => operator.close());
  await operator.pauseQueue('default');

  const { value } = await scrape(metrics);

  expect(value('taskq_queue_paused', { queue: 'default' })).toBe(1);
  expect(value('taskq_queue_paused', { queue: 'fragile' })).toBe(0);
});

test('scrapes within the interval, and scrapes at once, share one read', async ({ startReplica }) => {
  const metrics = testMetrics();
  await startReplica({ metrics, ...idle });
  const sent = recordStatements();

  await Promise.all([scrape(metrics), scrape(metrics), scrape(metrics)]);
  await scrape(metrics);
  expect(sent.all.filter(isGaugeRead)).toHaveLength(1);
  metrics.refresh();
  await Promise.all([scrape(metrics), scrape(metrics)]);

  expect(sent.all.filter(isGaugeRead)).toHaveLength(2);
});

test('without a scrape nothing is read', async ({ db, startReplica }) => {
  const sent = recordStatements();
  const { events } = await startReplica({ metrics: testMetrics() });

  await enqueue(db, 'plain', {});
  await events.first('settled');

  expect(sent.all.filter(isGaugeRead)).toHaveLength(0);
});

test('the gauges are read on the read lane', async ({ database, startReplica }) => {
  const proxy = await FaultProxy.start(database.connection);
  onTestFinished(() => proxy.stop());
  const metrics = testMetrics();
  await startReplica({ metrics, readDatabase: proxy.url, ...idle });

  proxy.mode = 'refuse';
  proxy.resetAll();

  expect((await scrape(metrics)).value('taskq_database_up')).toBe(0);
});

test('a standby is read as well, whatever isolation the database defaults to', async ({ startReplica }) => {
  const pair = await startReplicaPair();
  onTestFinished(() => pair.stop());
  await migrateUp(pair.primary.url(), { schema: TEST_SCHEMA });
  const db = openApplicationPool(pair.primary.connection()) as unknown as Kysely<DB>;
  await insertRow(db);
  await pair.caughtUp();
  const name = pg.escapeIdentifier(pair.primary.connection().database);
  await administer(
    pair.primary.url(),
    `alter database ${name} set default_transaction_isolation = 'serializable'`,
  );
  // A standby refuses what has no level of its own, as soon as it has heard of the default.
  const isRefused = () =>
    administer(pair.replica.url(), 'select 1').then(
      () => false,
      () => true,
    );
  await waitFor(isRefused, { what: 'the default to reach the standby' });
  const metrics = testMetrics();

  await startReplica({
    metrics,
    database: pair.primary.url(),
    readDatabase: pair.replica.url(),
    ...idle,
  });

  expect((await scrape(metrics)).value('taskq_pending', PLAIN)).toBe(1);
});

test('while the database is down the gauges of it are absent, and say so', async ({
  database,
  db,
  startReplica,
}) => {
  const proxy = await FaultProxy.start(database.connection);
  onTestFinished(() => proxy.stop());
  const metrics = testMetrics();
  await startReplica({ metrics, database: proxy.url, listenDatabase: database.url, ...idle });
  await insertRow(db);
  expect((await scrape(metrics)).value('taskq_pending', PLAIN)).toBe(1);

  proxy.mode = 'refuse';
  proxy.resetAll();
  metrics.refresh();
  const down = await scrape(metrics);
  proxy.mode = 'pass';
  metrics.refresh();
  const up = await scrape(metrics);
  const later = await scrape(metrics);

  expect(up.value('taskq_database_up')).toBe(1);
  expect(down.value('taskq_database_up')).toBe(0);
  expect(down.value('taskq_gauges_age_seconds'), 'since the read that was answered').toBeGreaterThan(3_000);
  for (const gauge of [
    'pending',
    'running',
    'due',
    'dead',
    'completed',
    'oldest_due_seconds',
    'queue_paused',
  ]) {
    expect(down.of(`taskq_${gauge}`)).toEqual([]);
  }
  expect(down.value('taskq_slots'), 'what the process knows is there').toBe(4);
  // A counter is read while the gauges are still waited for.
  expect(later.value('taskq_database_errors_total', { during: 'gauges' })).toBe(1);
  expect(up.value('taskq_pending', PLAIN)).toBe(1);
  expect(up.value('taskq_database_up')).toBe(1);
});

test('a database that went silent holds up one scrape for its time limit, and the next ones not at all', async ({
  database,
  startReplica,
}) => {
  const proxy = await FaultProxy.start(database.connection);
  onTestFinished(() => proxy.stop());
  const metrics = testMetrics();
  await startReplica({ metrics, readDatabase: proxy.url, ...idle });
  expect((await scrape(metrics)).value('taskq_database_up')).toBe(1);

  proxy.mode = 'blackhole';
  metrics.refresh();
  const startedAt = performance.now();
  const first = await scrape(metrics);
  const firstMs = performance.now() - startedAt;
  const sent = recordStatements();
  metrics.refresh();
  const second = await scrape(metrics);
  const secondMs = performance.now() - startedAt - firstMs;

  expect(first.value('taskq_database_up')).toBe(0);
  expect(first.of('taskq_pending')).toEqual([]);
  expect(second.value('taskq_database_up')).toBe(0);
  expect(sent.all.filter(isGaugeRead), 'no second read behind the one that hangs').toHaveLength(0);
  expect(firstMs).toBeGreaterThan(GAUGE_READ_MS_MAX - 100);
  expect(secondMs).toBeLessThan(GAUGE_READ_MS_MAX - 100);
  // What hangs is given up with its connection, so that the replica can stop.
  proxy.resetAll();
});

test('two queues of one process are added, and told apart by a name where they have one', async ({
  database,
  db,
  startReplica,
}) => {
  const registry = testMetrics().registry;
  const hold = gate();
  await insertRow(db, { queue: 'low' });
  const first = testMetrics({ registry, app: 'first' });
  const second = testMetrics({ registry, app: 'second' });
  const handlers = { plain: () => hold.promise };
  const { events } = await startReplica({ metrics: first, slots: 2, queues: ['low'], handlers });
  await startReplica({ metrics: second, slots: 3, ...idle });
  await events.first('claimed');

  const named = await scrape(first);

  expect(named.value('taskq_slots', { app: 'first' })).toBe(2);
  expect(named.value('taskq_slots_busy', { app: 'first' })).toBe(1);
  expect(named.value('taskq_slots', { app: 'second' })).toBe(3);
  expect(named.value('taskq_slots_busy', { app: 'second' })).toBe(0);
  expect(named.text.match(/^# TYPE taskq_slots gauge$/gm), 'registered once').toHaveLength(1);

  const unnamed = testMetrics();
  const again = { metrics: unnamed, slots: 2, ...idle };
  await startReplica(again);
  await startReplica({ ...again, database: database.connection });
  const together = await scrape(unnamed);
  expect(together.value('taskq_slots')).toBe(4);
  expect(together.value('taskq_pending', { task_type: 'plain', queue: 'low' }), 'of one database').toBe(1);
  hold.open();
});
