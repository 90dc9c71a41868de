import { Kysely, PostgresDialect, sql } from 'kysely';
import pg from 'pg';
import { expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { advanceCursor } from '../../src/statements/settle.ts';
import { ManualClock } from '../support/clock.ts';
import type { TestDatabase } from '../support/databases.ts';
import { waitUntilBlocked } from '../support/locks.ts';
import { BEAT_MS, pulsedRegistry, startBeats } from '../support/pulsed.ts';
import { gate, test } from '../support/replica.ts';
import { insertRow, rowOf, wakeReplicas, writeLaneOf } from '../support/rows.ts';

test('no heartbeat is sent after an advanced cursor has given the row back, and the handler runs on', async ({
  db,
  startReplica,
}) => {
  const clock = new ManualClock({ wall: Date.now() });
  const [advanced, end] = [gate<AbortSignal>(), gate()];
  const { events } = await startReplica({
    clock,
    timers: clock,
    slots: 1,
    registry: pulsedRegistry(async (_payload, { cursor, advanceCursor, signal }) => {
      if (cursor !== undefined) return 'done';
      await advanceCursor({ page: 2 });
      advanced.open(signal);
      await end.promise;
      return 'continue';
    }),
  });
  await insertRow(db, { type: 'pulsed' });
  await wakeReplicas(db);
  const signal = await advanced.promise;

  clock.advance(10 * BEAT_MS);
  // A beat that was sent all the same would be refused by now.
  await sql`select pg_sleep(0.2)`.execute(db);

  expect(signal.aborted).toBe(false);
  end.open();
  expect(await events.first('settled')).toMatchObject({ outcome: 'continued' });
  expect(await events.first('settled', ({ outcome }) => outcome === 'success')).toBeDefined();
  expect(events.of('lease_lost')).toEqual([]);
});

test('a heartbeat that is refused beside the write that gives the row back says nothing; after it none is sent', async ({
  database,
  db,
}) => {
  await withNarrowPool(database, async (narrow) => {
    const clock = new ManualClock();
    const id = await insertRow(db, { type: 'pulsed' });
    const { held, beats, lost } = await startBeats(db, id, clock, { write: writeLaneOf(narrow) });

    expect(await beats.whileGivingBack(async () => 'refused')).toBe('refused');
    expect(clock.pendingCount).toBe(1);
    const write = await beats.whileGivingBack(async () => {
      await advanceCursor(writeLaneOf(db), held.task.lease, '{"page":2}');
      clock.advance(BEAT_MS);
      // Connections are given out in turn: the beat has been refused when this is answered.
      await sql`select 1`.execute(narrow);
      return 'written';
    });

    expect(write).toBe('written');
    expect(clock.pendingCount).toBe(0);
    expect(lost).toEqual([]);
  });
});

test('a heartbeat that is refused because the cursor was written before it does not abort the handler', async ({
  database,
  db,
  startReplica,
}) => {
  const clock = new ManualClock({ wall: Date.now() });
  const [started, advance] = [gate(), gate()];
  const { events } = await startReplica({
    clock,
    timers: clock,
    slots: 1,
    registry: pulsedRegistry(async (_payload, { cursor, advanceCursor, signal }) => {
      if (cursor !== undefined) return 'done';
      started.open();
      await advance.promise;
      await advanceCursor({ page: 2 });
      // Both answers are in by now, whichever came first.
      await sql`select pg_sleep(0.2)`.execute(db);
      signal.throwIfAborted();
      return 'continue';
    }),
  });
  const id = await insertRow(db, { type: 'pulsed' });
  await wakeReplicas(db);
  await started.promise;
  await db.transaction().execute(async (blocker) => {
    await sql`select 1 from taskq.async_tasks where id = ${id} for update`.execute(blocker);
    advance.open();
    await waitUntilBlocked(database.url, 1);
    clock.advance(BEAT_MS);
    await waitUntilBlocked(database.url, 2);
  });

  expect(await events.first('settled')).toMatchObject({ outcome: 'continued', error: undefined });
  expect(events.of('lease_lost')).toEqual([]);
});

test('no heartbeat is sent after the handler has returned, not even one that waited for a connection', async ({
  database,
  db,
}) => {
  await withNarrowPool(database, async (narrow) => {
    const clock = new ManualClock();
    const id = await insertRow(db, { type: 'pulsed' });
    const { beats, lost } = await startBeats(db, id, clock, { write: writeLaneOf(narrow) });
    const before = await rowOf(db, id);

    await narrow.connection().execute(async () => {
      clock.advance(BEAT_MS);
      beats.cancel();
    });
    // Connections are given out in turn: the beat has had its own when this is answered.
    await sql`select 1`.execute(narrow);

    expect(await rowOf(db, id)).toEqual(before);
    expect(clock.pendingCount).toBe(0);
    expect(lost).toEqual([]);
  });
});

/** A pool of one connection. */
async function withNarrowPool(database: TestDatabase, use: (narrow: Kysely<DB>) => Promise<void>) {
  const pool = new pg.Pool({ ...database.connection, max: 1 });
  const narrow = new Kysely<DB>({ dialect: new PostgresDialect({ pool }) });
  try {
    await use(narrow);
  } finally {
    await narrow.destroy();
  }
}
