import { sql } from 'kysely';
import { expect, onTestFinished } from 'vitest';
import { ManualClock } from '../support/clock.ts';
import type { TestDatabase } from '../support/databases.ts';
import { FaultProxy } from '../support/fault-proxy.ts';
import { BEAT_MS, pulsedRegistry } from '../support/pulsed.ts';
import { gate, type StartReplica, test } from '../support/replica.ts';
import { insertRow, rowOf, wakeReplicas } from '../support/rows.ts';
import { waitFor } from '../support/wait.ts';

type Db = Parameters<typeof insertRow>[0];

test('a worker that can no longer connect stops its handler one heartbeat before the lease ends', async ({
  database,
  db,
  startReplica,
}) => {
  const { proxy, clock, signal, events } = await startCutOff(database, db, startReplica);
  proxy.mode = 'refuse';
  proxy.resetAll();

  clock.advance(BEAT_MS);
  await events.first('heartbeat_failed');
  clock.advance(BEAT_MS - 1);
  expect(signal.aborted).toBe(false);
  clock.advance(1);

  expect(signal.reason).toMatchObject({ code: 'LEASE_LOST' });
  expect(events.of('lease_lost')).toMatchObject([{ reason: expect.stringContaining('in time') }]);
  clock.advance(BEAT_MS);
  expect(await settledAfter(clock, events)).toMatchObject({ outcome: 'lost' });
});

test('a worker that hears no answer any more stops its handler one heartbeat before the lease ends', async ({
  database,
  db,
  startReplica,
}) => {
  const { proxy, clock, signal, events } = await startCutOff(database, db, startReplica);
  proxy.mode = 'blackhole';

  clock.advance(2 * BEAT_MS - 1);
  expect(signal.aborted).toBe(false);
  clock.advance(1);

  expect(signal.reason).toMatchObject({ code: 'LEASE_LOST' });
  proxy.mode = 'refuse';
  proxy.resetAll();
  clock.advance(BEAT_MS);
  expect(await settledAfter(clock, events)).toMatchObject({ outcome: 'lost' });
});

test('one heartbeat without an answer costs nothing: the next goes out on another connection', async ({
  database,
  db,
  startReplica,
}) => {
  const { clock, signal, id } = await startCutOff(database, db, startReplica);
  const before = await rowOf(db, id);
  await db.transaction().execute(async (blocker) => {
    await sql`select 1 from taskq.async_tasks where id = ${id} for update`.execute(blocker);
    clock.advance(BEAT_MS);
    await waitFor(() => waiting(db, 1), { what: 'the heartbeat to wait' });
    clock.advance(BEAT_MS / 3);
    await waitFor(() => waiting(db, 2), { what: 'another heartbeat to wait' });
  });
  await waitFor(async () => (await rowOf(db, id)).lease_expires_at !== before.lease_expires_at, {
    what: 'the heartbeats to be written',
  });
  expect(signal.aborted).toBe(false);
});

test('a claim that was answered when no heartbeat could keep its lease any more starts no handler', async ({
  db,
  startReplica,
}) => {
  const clock = new ManualClock({ wall: Date.now() });
  const started: string[] = [];
  const { events } = await startReplica({
    clock,
    timers: clock,
    slots: 1,
    registry: pulsedRegistry(async (_payload, { id }) => void started.push(id)),
  });
  const id = await insertRow(db, { type: 'pulsed' });
  await db.transaction().execute(async (blocker) => {
    // Reads pass, and so does the discovery; the claim's row locks do not.
    await sql`lock table taskq.async_tasks in exclusive mode`.execute(blocker);
    await wakeReplicas(db);
    await waitFor(() => waiting(db, 1), { what: 'the claim to wait for the table' });
    clock.advance(2 * BEAT_MS);
  });

  expect(await events.first('settled')).toMatchObject({ outcome: 'timeout', ranMs: undefined });
  expect(await rowOf(db, id)).toMatchObject({ attempt_count: 1, lease_token: null });
  expect(started).toEqual([]);
});

/** A replica behind a proxy, with a running handler that throws once its signal aborts. */
async function startCutOff(database: TestDatabase, db: Db, startReplica: StartReplica) {
  const proxy = await FaultProxy.start(database.connection);
  onTestFinished(() => proxy.stop());
  const clock = new ManualClock({ wall: Date.now() });
  const started = gate<AbortSignal>();
  const { events } = await startReplica({
    database: proxy.connection,
    clock,
    timers: clock,
    slots: 1,
    registry: pulsedRegistry(async (_payload, { signal }) => {
      started.open(signal);
      await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    }),
  });
  const id = await insertRow(db, { type: 'pulsed' });
  await wakeReplicas(db);
  return { proxy, clock, events, id, signal: await started.promise };
}

/** Retries wait on the manual clock: it is moved until the settlement has been given up. */
async function settledAfter(clock: ManualClock, events: Awaited<ReturnType<StartReplica>>['events']) {
  await waitFor(
    async () => {
      await clock.advanceAsync(100);
      return events.of('settled').length > 0;
    },
    { what: 'the settlement to be given up' },
  );
  return events.first('settled');
}

/** Whether as many sessions of the database wait for a lock. */
async function waiting(db: Db, count: number): Promise<boolean> {
  const { rows } = await sql<{ waiting: number }>`
    select count(*)::int as waiting from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'`.execute(db);
  return (rows[0]?.waiting ?? 0) >= count;
}
