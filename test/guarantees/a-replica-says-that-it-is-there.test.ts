import { sql } from 'kysely';
import { REPLICA_ALIVE_MS, REPLICA_KEPT_MS, REPLICA_REPORT_MS } from '../../src/domain/limits.ts';
import { listReplicas, type Replica } from '../../src/statements/replicas.ts';
import { ManualClock } from '../support/clock.ts';
import { gate, test } from '../support/replica.ts';
import { insertRow, wakeReplicas, writeLaneOf } from '../support/rows.ts';
import { recordStatements } from '../support/statements.ts';
import { expect, TEST_SCHEMA } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

const replicasTable = sql.table(`${TEST_SCHEMA}.async_replicas`);

test('a replica says what it is, what it runs and what it has settled, and takes its row away at its stop', async ({
  db,
  startReplica,
}) => {
  const clock = new ManualClock();
  const release = gate();
  await insertRow(db);
  const slow = await insertRow(db, { payload: { n: 1 } });
  const replica = await startReplica({
    clock,
    timers: clock,
    slots: 3,
    queues: { default: 2, low: 1 },
    handlers: {
      plain: async ({ n }) => {
        if (n === 1) await release.promise;
        return 'done';
      },
    },
  });
  await replica.events.first('settled');
  await replica.events.atLeast(2, 'claimed');
  const report = () => waitFor(async () => (await listReplicas(writeLaneOf(db)))[0]);
  expect(await report()).toMatchObject({
    pid: process.pid,
    roles: ['processor'],
    queues: ['default', 'low'],
    slots: 3,
    isAlive: true,
  });
  // A report sleeps only once it has been answered: the clock is moved again if it was moved too soon.
  let told: Replica | undefined;
  while (told === undefined) {
    clock.advance(REPLICA_REPORT_MS * 1.1);
    told = await waitFor(async () => (await listReplicas(writeLaneOf(db))).find(({ busy }) => busy === 1), {
      timeoutMs: 1_000,
    }).catch(() => undefined);
  }
  expect(told).toMatchObject({
    running: [{ id: slow, type: 'plain', queue: 'default', attempt: 1 }],
    settled: { outcomes: { success: 1 }, waited: 2, ran: 1 },
  });
  expect(told.clockOffsetMs).toBeTypeOf('number');
  release.open();
  await replica.app.stop();
  expect(await listReplicas(writeLaneOf(db))).toEqual([]);
});

test('a replica that died is known by its silence, and forgotten after a day', async ({
  db,
  startReplica,
}) => {
  const row = (id: number, secondsAgo: number) =>
    sql`insert into ${replicasTable}
    (id, host, pid, version, roles, slots, busy, overrun, running, settled, seen_at)
    values (${`00000000-0000-4000-8000-00000000000${id}`}, 'h', ${id}, '0.1.0', '{}', 1, 0, 0, '[]',
      '{"intervalMs": 0, "outcomes": {}, "waitMs": 0, "waited": 0, "ranMs": 0, "ran": 0}',
      now() - ${secondsAgo}::float8 * interval '1 second')`.execute(db);
  await row(1, REPLICA_KEPT_MS / 1_000 + 60);
  await row(2, REPLICA_ALIVE_MS / 1_000 + 5);
  await row(3, 1);
  await startReplica({});
  const replicas = await waitFor(async () => {
    const all = await listReplicas(writeLaneOf(db));
    return all.some(({ pid }) => pid === process.pid) ? all : undefined;
  });
  const alive = replicas.filter(({ pid }) => pid <= 3).map(({ pid, isAlive }) => [pid, isAlive]);
  expect(alive.sort()).toEqual([
    [2, false],
    [3, true],
  ]);
});

test('an idle replica says so with one heap-only update in a quarter of a minute', async ({
  db,
  startReplica,
}) => {
  const clock = new ManualClock();
  const sent = recordStatements();
  const replica = await startReplica({ clock, timers: clock });
  const reports = () => sent.all.filter(({ text }) => text.startsWith('with forgotten')).length;
  await waitFor(async () => (await listReplicas(writeLaneOf(db))).length === 1);
  expect(reports()).toBe(1);
  await waitFor(() => {
    clock.advance(REPLICA_REPORT_MS);
    return reports() > 20;
  });
  await replica.app.stop();
  const statistics = await waitFor(async () => {
    const { rows } = await sql<{
      updated: string;
      hot: string;
    }>`select n_tup_upd::text as updated, n_tup_hot_upd::text as hot
      from pg_stat_user_tables where relname = 'async_replicas'`.execute(db);
    return Number(rows[0]?.updated) >= 19 ? rows[0] : undefined;
  });
  expect(statistics.hot).toBe(statistics.updated);
});

test('a report that the database does not take is said once, and the next one tells of the whole time', async ({
  db,
  startReplica,
}) => {
  const clock = new ManualClock();
  const replica = await startReplica({ clock, timers: clock });
  await waitFor(async () => (await listReplicas(writeLaneOf(db))).length === 1);
  await sql`alter table ${replicasTable} rename to hidden`.execute(db);
  await waitFor(() => clock.nextInMs !== undefined);
  clock.advance(REPLICA_REPORT_MS * 1.1);
  await replica.events.first('database_failed', ({ during }) => during === 'report');
  clock.advance(REPLICA_REPORT_MS * 1.1);
  await insertRow(db);
  await wakeReplicas(db);
  await replica.events.first('settled');
  await sql`alter table ${sql.table(`${TEST_SCHEMA}.hidden`)} rename to async_replicas`.execute(db);
  const hasRecovered = () =>
    replica.events.of('database_recovered', ({ during }) => during === 'report').length > 0;
  while (!hasRecovered()) {
    clock.advance(REPLICA_REPORT_MS * 1.1);
    await waitFor(hasRecovered, { timeoutMs: 1_000 }).catch(() => undefined);
  }
  expect(replica.events.of('database_failed', ({ during }) => during === 'report')).toHaveLength(1);
  const [told] = await listReplicas(writeLaneOf(db));
  expect(told?.settled.outcomes).toEqual({ success: 1 });
});
