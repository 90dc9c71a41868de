import { type Kysely, sql } from 'kysely';
import { expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { PRUNE_BATCH } from '../../src/domain/limits.ts';
import { pruneAllCompleted } from '../../src/maintenance/pruner.ts';
import { openOperator } from '../../src/operator.ts';
import { pruneCompleted } from '../../src/statements/completed.ts';
import { ManualClock } from '../support/clock.ts';
import { test } from '../support/replica.ts';
import { allRecords, insertRows, writeLaneOf } from '../support/rows.ts';

/** Records whose time is over after `seconds`; ids from `first` on. */
const insertRecords = (db: Kysely<DB>, first: number, count: number, seconds: number) =>
  sql`insert into taskq.async_completed_tasks (id, queue, task_type, payload, payload_revision, headers,
        attempt_count, errors, created_at, keep_until)
      select n, 'default', 'plain', '{}', 1, '{}', 1, '[]', now(), now() + ${seconds}::float8 * interval '1 second'
      from generate_series(${first}::int, ${first + count - 1}::int) n`.execute(db);

const ids = async (db: Kysely<DB>) => (await allRecords(db)).map(({ id }) => id);

test('a record is kept to the end of its time, and pruned after that', async ({ db }) => {
  await insertRecords(db, 1, 2, -1);
  await insertRecords(db, 3, 1, 60);

  expect(await pruneAllCompleted(writeLaneOf(db))).toBe(2);
  expect(await ids(db)).toEqual([3]);
});

test('records are pruned in bounded batches, to the end of them', async ({ db }) => {
  const write = writeLaneOf(db);
  // All of one moment, and with them some of another: a batch ends in the middle of equals.
  await insertRecords(db, 1, 2 * PRUNE_BATCH, -100);
  await insertRecords(db, 2 * PRUNE_BATCH + 1, 10, -50);

  expect(await pruneCompleted(write)).toMatchObject({ deleted: PRUNE_BATCH });
  const progress: number[] = [];
  await pruneAllCompleted(write, undefined, (deleted) => progress.push(deleted));
  expect(progress).toEqual([PRUNE_BATCH, PRUNE_BATCH + 10]);
  expect(await ids(db)).toEqual([]);
});

test('a record that somebody has locked is left for the next hour', async ({ db }) => {
  await insertRecords(db, 1, 2, -1);

  await db.transaction().execute(async (reader) => {
    await sql`select from taskq.async_completed_tasks where id = 1 for update`.execute(reader);
    expect(await pruneAllCompleted(writeLaneOf(db))).toBe(1);
  });
  expect(await pruneAllCompleted(writeLaneOf(db))).toBe(1);
});

test('a replica prunes records, and says how many beside the dead letters', async ({ db, startReplica }) => {
  const clock = new ManualClock();
  await insertRecords(db, 1, 3, -1);
  const { events } = await startReplica({ roles: ['prune'], clock, timers: clock });

  clock.advance(300_000);
  expect(await events.first('pruned')).toEqual({ kind: 'pruned', deleted: 0, completed: 3 });
});

test('an operator prunes both, and hears of both', async ({ database, db }) => {
  await insertRecords(db, 1, 3, -1);
  await insertRows(db, 2, { attemptCount: 20, attemptedSecondsAgo: 3_600 });
  const operator = await openOperator({ database: database.url });
  const progress: number[] = [];
  const pruned = await operator.prune({ retentionMs: 1_000, onProgress: (sum) => progress.push(sum) });
  await operator.close();

  expect(pruned).toEqual({ deadLetters: 2, completed: 3 });
  expect(progress).toEqual([2, 5]);
});
