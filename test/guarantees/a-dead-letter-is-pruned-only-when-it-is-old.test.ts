import { expect } from 'vitest';
import { PRUNE_BATCH } from '../../src/domain/limits.ts';
import { pruneAll } from '../../src/maintenance/pruner.ts';
import { pruneDead } from '../../src/statements/prune.ts';
import { ManualClock } from '../support/clock.ts';
import { test } from '../support/replica.ts';
import { allRows, insertRow, insertRows, lapseLease, writeLaneOf } from '../support/rows.ts';

const DAY_S = 86_400;
const RETENTION_MS = 7 * DAY_S * 1_000;

test('a dead letter is never pruned under a live lease', async ({ db }) => {
  const write = writeLaneOf(db);
  // On its final attempt, and with a last attempt so long ago as a slow clock could make it.
  const id = await insertRow(db, { attemptCount: 20, leasedSeconds: 60, attemptedSecondsAgo: 8 * DAY_S });
  const before = await allRows(db);

  expect(await pruneAll({ write, retentionMs: RETENTION_MS })).toBe(0);
  expect(await allRows(db)).toEqual(before);

  await lapseLease(db, id);
  expect(await pruneAll({ write, retentionMs: RETENTION_MS })).toBe(1);
});

test('prune deletes dead letters past their retention and nothing else', async ({ db }) => {
  const day = (days: number) => ({ attemptedSecondsAgo: days * DAY_S, runAtSeconds: -days * DAY_S });
  await insertRows(db, 3, { attemptCount: 20, ...day(7.01) });
  const kept = [
    await insertRow(db, { attemptCount: 20, ...day(6.99) }),
    await insertRow(db, { attemptCount: 19, ...day(30) }),
    await insertRow(db, { attemptCount: 0, runAtSeconds: -30 * DAY_S }),
  ];

  expect(await pruneAll({ write: writeLaneOf(db), retentionMs: RETENTION_MS })).toBe(3);
  expect((await allRows(db)).map((row) => String(row['id']))).toEqual(kept);
});

test('prune deletes in bounded batches and gets to the end of them', async ({ db }) => {
  const write = writeLaneOf(db);
  await insertRows(db, 2 * PRUNE_BATCH + 10, { attemptCount: 20, attemptedSecondsAgo: 8 * DAY_S });

  const first = await pruneDead(write, RETENTION_MS);
  expect(first.deleted).toBe(PRUNE_BATCH);
  expect(await allRows(db)).toHaveLength(PRUNE_BATCH + 10);

  const progress: number[] = [];
  await pruneAll({ write, retentionMs: RETENTION_MS }, undefined, (deleted) => progress.push(deleted));
  expect(progress).toEqual([PRUNE_BATCH, PRUNE_BATCH + 10]);
  expect(await allRows(db)).toEqual([]);
});

test('a dead letter that somebody has locked is left for the next hour', async ({ db }) => {
  const write = writeLaneOf(db);
  const [locked] = await insertRows(db, 2, { attemptCount: 20, attemptedSecondsAgo: 8 * DAY_S });

  await db.transaction().execute(async (operator) => {
    await operator
      .selectFrom('async_tasks')
      .select('id')
      .where('id', '=', locked as never)
      .forUpdate()
      .execute();
    expect(await pruneAll({ write, retentionMs: RETENTION_MS })).toBe(1);
  });

  expect(await pruneAll({ write, retentionMs: RETENTION_MS })).toBe(1);
});

test('a replica prunes within minutes of its start, and every hour from then on', async ({
  db,
  startReplica,
}) => {
  const clock = new ManualClock();
  await insertRows(db, 2, { attemptCount: 20, attemptedSecondsAgo: 8 * DAY_S });
  const { events } = await startReplica({ roles: ['prune'], clock, timers: clock });

  clock.advance(300_000);
  expect(await events.first('pruned')).toMatchObject({ deleted: 2 });

  await insertRows(db, 1, { attemptCount: 20, attemptedSecondsAgo: 8 * DAY_S });
  const again = events.next('pruned');
  // Spread by a tenth, so that replicas do not stay in step.
  clock.advance(1.1 * 3_600_000);
  expect(await again).toMatchObject({ deleted: 1 });
});
