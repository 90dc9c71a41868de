import { sql } from 'kysely';
import type { TaskId } from '../../src/domain/ids.ts';
import { dropMany, replayMany } from '../../src/maintenance/dead-letters.ts';
import { pruneAll } from '../../src/maintenance/pruner.ts';
import { countTasks } from '../../src/statements/counts.ts';
import { dropDead, replayDead } from '../../src/statements/dead.ts';
import { administer } from '../support/databases.ts';
import { test } from '../support/replica.ts';
import { allRows, insertRows, readLaneOf, writeLaneOf } from '../support/rows.ts';
import { enqueueMany } from '../support/tasks.ts';
import { expect, inject } from '../support/test.ts';

// Hazard 42: maintenance on several replicas deadlocks with itself or with the workers.

const DAY_S = 86_400;
const RETENTION_MS = 7 * DAY_S * 1_000;
const TASKS = 1_200;
const PAGE = 40;
const BULK = 600;

test('three replicas that prune, count, replay, drop, claim and settle at once meet no deadlock and lose nothing', async ({
  database,
  db,
  startReplica,
}) => {
  await administer(inject('serverUrl'), `alter database ${database.name} set deadlock_timeout = '100ms'`);
  const old = await insertRows(db, 10_000, { attemptCount: 20, attemptedSecondsAgo: 8 * DAY_S });
  const recent = await insertRows(db, 10_000, { attemptCount: 20, attemptedSecondsAgo: DAY_S });
  const bulk = { attemptCount: 20, attemptedSecondsAgo: DAY_S, queue: 'bulk' } as const;
  await insertRows(db, BULK, bulk);
  const runs = new Map<string, number>();
  const plain = async (_payload: object, { id }: { id: string }) =>
    void runs.set(id, (runs.get(id) ?? 0) + 1);
  const replicas = await Promise.all([1, 2, 3].map(() => startReplica({ slots: 4, handlers: { plain } })));

  let busy = true;
  const maintain = async () => {
    for (let deleted = 0; ; ) {
      deleted += await pruneAll({ write: writeLaneOf(db), retentionMs: RETENTION_MS });
      await countTasks(readLaneOf(db));
      if (!busy) return deleted;
    }
  };
  /** Page by page, each in one transaction and newest first, as a list shows them: against the prune's order. */
  const inPages = async (ids: readonly TaskId[], write: typeof replayDead) => {
    const written: TaskId[] = [];
    const newestFirst = ids.toReversed();
    for (let from = 0; from < newestFirst.length; from += PAGE) {
      await db.transaction().execute(async (tx) => {
        for (const id of newestFirst.slice(from, from + PAGE)) {
          if ((await write(writeLaneOf(tx), id)) === 'written') written.push(id);
        }
      });
    }
    return written;
  };
  const enqueued = async () => {
    for (let n = 0; n < TASKS; n += 100)
      await enqueueMany(
        db,
        'plain',
        Array.from({ length: 100 }, () => ({})),
      );
  };
  const maintenance = Promise.all([maintain(), maintain(), maintain()]);
  const inBulk = { type: 'plain', queue: 'bulk' } as const;
  const [replayed, dropped, , first, second, third] = await Promise.all([
    inPages([...recent.slice(0, 400), ...old.slice(-800)], replayDead),
    inPages([...recent.slice(200, 600), ...old.slice(-1_200, -400)], dropDead),
    enqueued(),
    replayMany(writeLaneOf(db), 'one', inBulk, { batch: 25 }),
    replayMany(writeLaneOf(db), 'another', inBulk, { batch: 40 }),
    dropMany(writeLaneOf(db), 'a third', inBulk, { batch: 10 }),
  ]);
  const replayedInBulk = first.replayed + second.replayed;
  const expected = TASKS + replayed.length + replayedInBulk;
  while (replicas.flatMap(({ events }) => events.of('settled')).length < expected) {
    await Promise.race(replicas.map(({ events }) => events.next('settled')));
  }
  busy = false;
  const pruned = (await maintenance).reduce((sum, deleted) => sum + deleted, 0);

  expect([...runs.values()].filter((times) => times !== 1)).toEqual([]);
  expect(runs.size).toBe(expected);
  const left = await allRows(db);
  expect(left.length).toBe(
    20_000 + BULK - replayed.length - replayedInBulk - dropped.length - third.dropped - pruned,
  );
  expect(
    left.every(({ last_attempted_at: at }) => Date.parse(String(at)) > Date.now() - 2 * DAY_S * 1_000),
  ).toBe(true);
  for (const { events } of replicas) {
    for (const kind of ['database_failed', 'settlement_retried', 'slot_failed'] as const) {
      expect(events.of(kind)).toEqual([]);
    }
    expect(events.of('settled', ({ outcome }) => outcome !== 'success')).toEqual([]);
  }
  const { rows } = await sql<{ deadlocks: string }>`
    select deadlocks::text from pg_stat_database where datname = current_database()`.execute(db);
  expect(rows).toEqual([{ deadlocks: '0' }]);
});
