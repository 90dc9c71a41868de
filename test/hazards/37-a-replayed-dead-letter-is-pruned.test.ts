import { sql } from 'kysely';
import { dropMany, replayMany } from '../../src/maintenance/dead-letters.ts';
import { pruneAll } from '../../src/maintenance/pruner.ts';
import { countTasks } from '../../src/statements/counts.ts';
import { replayDead } from '../../src/statements/dead.ts';
import { pruneDead } from '../../src/statements/prune.ts';
import { waitUntilBlocked } from '../support/locks.ts';
import { gate, test } from '../support/replica.ts';
import { allRows, findRow, insertRow, insertRows, readLaneOf, rowOf, writeLaneOf } from '../support/rows.ts';
import { expect } from '../support/test.ts';

// Hazard 37: a dead letter is replayed by hand, and the prune deletes it in the middle of the retry, because its old
// timestamps still say that it has been dead for long.

const DAY_S = 86_400;
const RETENTION_MS = 7 * DAY_S * 1_000;
const OLD_DEAD = { attemptCount: 20, attemptedSecondsAgo: 8 * DAY_S } as const;

test('a replayed dead letter is not pruned before its claim, during its run or in its backoff', async ({
  db,
  startReplica,
}) => {
  const write = writeLaneOf(db);
  await insertRows(db, 10_000, OLD_DEAD);
  const id = await insertRow(db, { ...OLD_DEAD, payload: { n: 1 } });

  expect(await replayDead(write, id)).toBe('written');
  expect(await pruneAll({ write, retentionMs: RETENTION_MS }), 'of the others').toBe(10_000);
  expect(await rowOf(db, id)).toMatchObject({ attempt_count: 0, exhausted: false, lease_token: null });

  const mayFail = gate();
  const { events } = await startReplica({
    handlers: {
      plain: async () => {
        await mayFail.promise;
        throw new Error('once more');
      },
    },
  });
  await events.first('claimed', ({ task }) => task.id === id);
  // As it was before the claim stamped it: the predicate, not the timestamp, is what keeps the row.
  await sql`update taskq.async_tasks set last_attempted_at = now() - interval '8 days'`.execute(db);
  expect(await pruneAll({ write, retentionMs: RETENTION_MS }), 'while it runs').toBe(0);

  mayFail.open();
  expect(await events.first('settled')).toMatchObject({
    task: { id, attempt: 1 },
    outcome: 'failure',
    dead: false,
  });
  await sql`update taskq.async_tasks set last_attempted_at = now() - interval '8 days'`.execute(db);
  expect(await pruneAll({ write, retentionMs: RETENTION_MS }), 'in its backoff').toBe(0);
  expect(await rowOf(db, id)).toMatchObject({ attempt_count: 1, last_error: 'once more' });
});

test('a replay that comes before the prune wins, and the row lives', async ({ db }) => {
  const id = await insertRow(db, OLD_DEAD);

  await db.transaction().execute(async (replaying) => {
    expect(await replayDead(writeLaneOf(replaying), id)).toBe('written');
    expect(await pruneDead(writeLaneOf(db), RETENTION_MS)).toMatchObject({ deleted: 0 });
  });

  expect(await pruneDead(writeLaneOf(db), RETENTION_MS)).toMatchObject({ deleted: 0 });
  expect(await rowOf(db, id)).toMatchObject({ attempt_count: 0 });
});

test('a replay that comes after the prune is refused, never answered as written for a row that is gone', async ({
  database,
  db,
}) => {
  const id = await insertRow(db, OLD_DEAD);
  let replay: Promise<string> | undefined;

  await db.transaction().execute(async (pruning) => {
    expect(await pruneDead(writeLaneOf(pruning), RETENTION_MS)).toMatchObject({ deleted: 1 });
    replay = replayDead(writeLaneOf(db), id);
    await waitUntilBlocked(database.url);
  });

  expect(await replay).toBe('refused');
  expect(await findRow(db, id)).toBeUndefined();
});

test('a bulk replay that comes before the prune wins, and none of its rows is pruned', async ({ db }) => {
  const ids = await insertRows(db, 10_000, OLD_DEAD);
  const write = writeLaneOf(db);

  await db.transaction().execute(async (replaying) => {
    const done = await replayMany(writeLaneOf(replaying), 'test', { type: 'plain' });
    expect(done).toMatchObject({ matched: 10_000, replayed: 10_000, changed: 0 });
    expect(await pruneAll({ write, retentionMs: RETENTION_MS })).toBe(0);
  });

  expect(await pruneAll({ write, retentionMs: RETENTION_MS })).toBe(0);
  expect((await allRows(db)).filter((row) => row.attempt_count !== 0)).toEqual([]);
  expect((await allRows(db)).length).toBe(ids.length);
});

test('a bulk replay or drop that comes after the prune counts its rows as changed, never as done', async ({
  db,
}) => {
  await insertRows(db, 10_000, OLD_DEAD);
  const recent = await insertRow(db, { ...OLD_DEAD, attemptedSecondsAgo: DAY_S });

  await db.transaction().execute(async (pruning) => {
    expect(await pruneAll({ write: writeLaneOf(pruning), retentionMs: RETENTION_MS })).toBe(10_000);
    const dropped = await dropMany(writeLaneOf(db), 'test', { olderThan: '2d' });
    expect(dropped).toMatchObject({ matched: 10_000, dropped: 0, changed: 10_000 });
    const done = await replayMany(writeLaneOf(db), 'test', {});
    expect(done).toMatchObject({ matched: 10_001, replayed: 1, changed: 10_000 });
  });

  expect((await allRows(db)).map(({ id }) => String(id))).toEqual([recent]);
  expect(await rowOf(db, recent)).toMatchObject({ attempt_count: 0 });
});

test('of 10,000 old dead letters each is either pruned or replayed when both go on at once', async ({
  db,
}) => {
  await insertRows(db, 10_000, OLD_DEAD);
  const write = writeLaneOf(db);

  const [done, pruned] = await Promise.all([
    replayMany(write, 'test', {}, { batch: 50 }),
    pruneAll({ write, retentionMs: RETENTION_MS }),
  ]);

  const left = await allRows(db);
  const replayed = left.filter(({ attempt_count: attempts }) => attempts === 0);
  expect(replayed.length, 'all that it says, and they live').toBe(done.replayed);
  expect(left.length).toBe(10_000 - pruned);
});

test('the prune deletes exactly what the gauge counts as dead and old', async ({ db }) => {
  await insertRows(db, 30, OLD_DEAD);
  await insertRows(db, 3, { ...OLD_DEAD, leasedSeconds: 60 });
  await insertRows(db, 4, { ...OLD_DEAD, attemptCount: 19 });
  await insertRows(db, 5, { ...OLD_DEAD, attemptedSecondsAgo: 6 * DAY_S });
  expect(await countTasks(readLaneOf(db))).toMatchObject([{ dead: 35, pending: 7, running: 3 }]);

  expect(await pruneAll({ write: writeLaneOf(db), retentionMs: RETENTION_MS })).toBe(30);

  expect(await countTasks(readLaneOf(db))).toMatchObject([{ dead: 5, pending: 7, running: 3 }]);
});
