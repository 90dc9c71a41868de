import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { DeadLetterFilter } from '../../src/domain/dead-letter-filter.ts';
import type { TaskId } from '../../src/domain/ids.ts';
import { DEAD_BATCH_MAX, DEAD_SCAN } from '../../src/domain/limits.ts';
import { dropMany, previewMany, type ReplayedMany, replayMany } from '../../src/maintenance/dead-letters.ts';
import { listDead, replayDead } from '../../src/statements/dead.ts';
import { matchedStatement } from '../../src/statements/dead-bulk.ts';
import { recordFailure } from '../../src/statements/settle.ts';
import { auditRows, insertDead, waitingIds } from '../support/dead.ts';
import { holdTransaction } from '../support/held-transaction.ts';
import { gate, test } from '../support/replica.ts';
import { allRows, claimRow, findRow, readLaneOf, rowOf, writeLaneOf } from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/schema.ts';
import { betweenAnswerAndUse } from '../support/statements.ts';
import { enqueue } from '../support/tasks.ts';
import { describe, expect } from '../support/test.ts';
import { hearWakes } from '../support/wakes.ts';

const ACTOR = 'test:ada';

const replay = (
  db: Kysely<DB>,
  filter: DeadLetterFilter = {},
  options: Parameters<typeof replayMany>[3] = {},
) => replayMany(writeLaneOf(db), ACTOR, filter, options);

const drop = (db: Kysely<DB>, filter: DeadLetterFilter = {}) => dropMany(writeLaneOf(db), ACTOR, filter);

test('12,000 dead letters are replayed page by page: attempts from the start, history kept, one wake a batch', async ({
  database,
  db,
}) => {
  const dead = await insertDead(db, 12_000);
  const running = await insertDead(db, 1, { leasedSeconds: 60 });
  const before = await rowOf(db, running[0] as TaskId);
  const wakes = await hearWakes(database);
  const progress: ReplayedMany[] = [];

  const done = await replay(db, {}, { onProgress: (soFar) => progress.push(soFar) });

  expect(done).toEqual({ looked: 12_001, matched: 12_000, replayed: 12_000, keyTaken: 0, changed: 0 });
  expect(await wakes.count()).toBe(12_000 / DEAD_BATCH_MAX);
  expect(progress.map(({ looked }) => looked)).toEqual([2_000, 4_000, 6_000, 8_000, 10_000, 12_000, 12_001]);
  expect(await waitingIds(db)).toEqual(dead);
  expect(await rowOf(db, running[0] as TaskId), 'it runs').toEqual(before);
  const rows = (await allRows(db)).slice(0, -1);
  const now = Date.now() + 60_000;
  const isFresh = (row: (typeof rows)[number]) =>
    row.attempt_count === 0 &&
    row.errors.length === 1 &&
    row.last_error === 'no such customer' &&
    Date.parse(String(row['run_at'])) <= now;
  expect(rows.filter((row) => !isFresh(row))).toEqual([]);
  const batches = await auditRows(db);
  expect(batches.every(({ detail }) => detail.ids?.length === DEAD_BATCH_MAX)).toBe(true);
  expect(batches.flatMap(({ detail }) => detail.ids)).toEqual(dead);
});

test('a retired dead letter is none any more, and runs', async ({ db, startReplica }) => {
  const [id] = await insertDead(db, 1, { attemptCount: 1 });
  await db.updateTable('async_tasks').set({ retired: true }).execute();
  const ran = gate();
  await startReplica({ handlers: { plain: async () => ran.open() } });

  expect(await replay(db)).toMatchObject({ matched: 1, replayed: 1 });

  await ran.promise;
  expect(await findRow(db, id as TaskId)).not.toMatchObject({ retired: true });
});

describe('the filter', () => {
  test.for([
    [{ type: 'brief' }, [1]],
    [{ queue: 'low' }, [2]],
    [{ olderThan: '1d' }, [3]],
    [{ newerThan: '30m' }, [4]],
    [{ olderThan: '30m', newerThan: '2h' }, [0, 1, 2, 5, 6, 7]],
    [{ error: 'TIMED' }, [5]],
    [{ error: '100%' }, [6]],
    [{ error: '0% o' }, [6]],
    [{ error: 'a_b' }, [7]],
    [{ error: '%' }, [6]],
    [{ error: '_' }, [7]],
    [{ error: '\\' }, [7]],
    [{ type: 'plain', queue: 'default', error: 'no such' }, [0, 3, 4]],
    [{ type: "x' or '1'='1" }, []],
    [{}, [0, 1, 2, 3, 4, 5, 6, 7, 8]],
  ] as const)('%j matches those, and text in it is no pattern', async ([filter, expected], { db }) => {
    const ids = [
      ...(await insertDead(db, 1)),
      ...(await insertDead(db, 1, { type: 'brief' })),
      ...(await insertDead(db, 1, { queue: 'low' })),
      ...(await insertDead(db, 1, { attemptedSecondsAgo: 2 * 86_400 })),
      ...(await insertDead(db, 1, { attemptedSecondsAgo: 60 })),
      ...(await insertDead(db, 1, { error: 'the call Timed out' })),
      ...(await insertDead(db, 1, { error: '100% of 1000 failed' })),
      ...(await insertDead(db, 1, { error: 'a_b and aXb, C:\\temp' })),
      ...(await insertDead(db, 1, { error: null, attemptedSecondsAgo: 3 * 3_600 })),
    ];
    const matching = expected.map((place) => ids[place] as TaskId);
    const checked = { type: null, queue: null, olderThanMs: null, newerThanMs: null, error: null };

    const preview = await previewMany(readLaneOf(db), filter);
    expect(preview).toMatchObject({ looked: 9, matched: expected.length });
    const done = await replay(db, filter);

    expect(done).toMatchObject({ looked: 9, matched: expected.length, replayed: expected.length });
    expect(await waitingIds(db)).toEqual(matching);
    const left = await listDead(readLaneOf(db), { limit: 20, filter: checked });
    expect(left.map(({ id }) => id)).toEqual(ids.filter((id) => !matching.includes(id)).reverse());
  });

  test.for([
    [{ error: '' }, 'OPTION_INVALID'],
    [{ error: 'a\0b' }, 'OPTION_INVALID'],
    [{ type: '' }, 'OPTION_INVALID'],
    [{ queue: 'a\nb' }, 'OPTION_INVALID'],
    [{ olderThan: 'yesterday' as '1d' }, 'DURATION_INVALID'],
    [{ olderThan: '2h', newerThan: '1h' }, 'OPTION_INVALID'],
  ] as const)('%j is refused before anything is done', async ([filter, code], { db }) => {
    await insertDead(db, 1);
    for (const refused of [replay(db, filter), drop(db, filter), previewMany(readLaneOf(db), filter)])
      await expect(refused).rejects.toMatchObject({ code });
    expect(await waitingIds(db)).toEqual([]);
  });

  test('a list is in the order of the ids as numbers, not as text, with a filter and without', async ({
    db,
  }) => {
    const newestFirst = (await insertDead(db, 101)).toReversed();
    const none = { type: null, queue: null, olderThanMs: null, newerThanMs: null, error: null };
    for (const filter of [none, { ...none, error: 'no such' }]) {
      const first = await listDead(readLaneOf(db), { limit: 3, filter });
      expect(first.map(({ id }) => id)).toEqual(newestFirst.slice(0, 3));
      const page = { limit: 100, filter, beforeId: newestFirst[2] as TaskId };
      expect((await listDead(readLaneOf(db), page)).map(({ id }) => id)).toEqual(newestFirst.slice(3));
    }
  });

  test('a list by filter goes on past thousands that do not match, page by page', async ({ db }) => {
    const old = await insertDead(db, 3, { error: 'rare' });
    await insertDead(db, 2 * DEAD_SCAN + 10);
    const filter = { type: null, queue: null, olderThanMs: null, newerThanMs: null, error: 'rare' };
    const list = async (limit: number, beforeId?: TaskId) => {
      const page = beforeId === undefined ? { limit, filter } : { limit, filter, beforeId };
      return (await listDead(readLaneOf(db), page)).map(({ id }) => id);
    };

    expect(await list(2)).toEqual([old[2], old[1]]);
    expect(await list(2, old[1])).toEqual([old[0]]);
    expect(await list(2, old[0])).toEqual([]);
  });
});

describe('what somebody else does meanwhile', () => {
  test('a dead letter that another session is replaying is left to it, and counted', async ({ db }) => {
    const [first, locked, last] = (await insertDead(db, 3)) as [TaskId, TaskId, TaskId];
    await using other = await holdTransaction(db);
    expect(await replayDead(writeLaneOf(other.tx), locked)).toBe('written');

    const counts = { looked: 3, matched: 3, keyTaken: 0, changed: 1 };
    expect(await replay(db)).toEqual({ ...counts, replayed: 2 });
    expect(await waitingIds(db)).toEqual([first, last]);

    await other.tx.commit().execute();
    expect(await drop(db)).toMatchObject({ matched: 0, dropped: 0 });
    expect(await waitingIds(db)).toEqual([first, locked, last]);
  });

  test('one that was replayed and claimed between the look and the write runs once, under its first claim', async ({
    db,
  }) => {
    const [id] = (await insertDead(db, 1)) as [TaskId];
    const { sql: look } = matchedStatement.compile(TEST_SCHEMA);
    betweenAnswerAndUse(
      (text) => text === look,
      async () => {
        await replayDead(writeLaneOf(db), id);
        await claimRow(db, id);
      },
    );

    expect(await replay(db)).toMatchObject({ matched: 1, replayed: 0, changed: 1 });

    expect(await rowOf(db, id)).toMatchObject({ attempt_count: 1, lease_token: expect.any(String) });
  });

  test.for(['replay', 'drop'] as const)(
    'one that was replayed and died again between the look and the write is a new dead letter, which the %s leaves alone',
    async (deed, { db }) => {
      const [id] = (await insertDead(db, 1, { attemptCount: 1, maxAttempts: 1 })) as [TaskId];
      const { sql: look } = matchedStatement.compile(TEST_SCHEMA);
      betweenAnswerAndUse(
        (text) => text === look,
        async () => {
          await replayDead(writeLaneOf(db), id);
          await dieAgain(db, id);
        },
      );

      const done = deed === 'replay' ? await replay(db) : await drop(db);

      expect(done).toMatchObject({ matched: 1, changed: 1 });
      expect(await rowOf(db, id)).toMatchObject({ exhausted: true, last_error: 'again' });
    },
  );

  test('one that dies again behind the walk is not replayed twice', async ({ db }) => {
    const ids = await insertDead(db, DEAD_SCAN + 1, { attemptCount: 1, maxAttempts: 1 });
    const first = ids[0] as TaskId;
    let died: Promise<void> | undefined;
    const onProgress = () => {
      died ??= dieAgain(db, first);
    };
    // The rest of the walk waits for it: no statement is between the end of a page and the next.
    betweenAnswerAndUse(
      (text) => text.includes('max(page.id)') && died !== undefined,
      async () => died,
    );

    const done = await replay(db, {}, { onProgress });

    expect(done).toMatchObject({ looked: DEAD_SCAN + 1, replayed: DEAD_SCAN + 1 });
    expect(await rowOf(db, first)).toMatchObject({ exhausted: true, last_error: 'again' });
  });

  test('a dead letter that dies for the first time after the walk has begun is not a part of it', async ({
    db,
  }) => {
    await insertDead(db, 2);
    let late: TaskId | undefined;
    betweenAnswerAndUse(
      (text) => text.includes('as "until_id"'),
      async () => {
        [late] = await insertDead(db, 1);
      },
    );

    expect(await replay(db)).toMatchObject({ looked: 2, replayed: 2 });
    expect(await rowOf(db, late as TaskId)).toMatchObject({ exhausted: true });
  });

  test('two bulk replays at once replay each once, with keys or without, and meet no deadlock', async ({
    db,
  }) => {
    const plain = await insertDead(db, 2_500);
    const keyed = await insertDead(db, 1_500, { key: (n) => `key ${n * 7919}` });

    const both = await Promise.all([replay(db), replay(db, {}, { batch: 70 })]);

    for (const { matched, replayed, keyTaken, changed } of both) {
      expect(replayed + keyTaken + changed).toBe(matched);
    }
    const again = await replay(db);
    const [left, right] = both as [ReplayedMany, ReplayedMany];
    expect(left.replayed + right.replayed + again.replayed).toBe(4_000);
    expect(await waitingIds(db)).toEqual([...plain, ...keyed]);
    const named = (await auditRows(db)).flatMap(
      ({ detail, subject }): readonly (string | null)[] => detail.ids ?? [subject],
    );
    expect(new Set(named).size).toBe(4_000);
    expect(named.length).toBe(4_000);
    expect(await deadlocks(db)).toBe('0');
  });

  test('an abort ends it after the batch under way, with the counts so far', async ({ db }) => {
    await insertDead(db, DEAD_SCAN + 500);
    const stop = new AbortController();

    const done = await replay(db, {}, { signal: stop.signal, onProgress: () => stop.abort() });

    expect(done).toMatchObject({ looked: DEAD_SCAN, matched: DEAD_SCAN, replayed: DEAD_SCAN });
    expect((await waitingIds(db)).length).toBe(DEAD_SCAN);
    expect(await replay(db, {}, { signal: AbortSignal.abort() })).toMatchObject({ looked: 0, replayed: 0 });
  });
});

describe('unique keys', () => {
  test('those whose key a live task has stay, and of several of one key the first is replayed', async ({
    db,
  }) => {
    const options = { attemptCount: 20 } as const;
    const blocked = await insertDead(db, 2, { ...options, key: 'taken' });
    const twins = await insertDead(db, 3, { ...options, key: 'twins' });
    const free = await insertDead(db, 1);
    const unique = { key: 'taken', while: 'live' } as const;
    const rival = await enqueue(db, 'plain', {}, { unique });
    const preview = await previewMany(readLaneOf(db), {});
    expect(preview).toMatchObject({ matched: 6, keyTaken: 4 });

    expect(await replay(db)).toEqual({ looked: 6, matched: 6, replayed: 2, keyTaken: 4, changed: 0 });

    expect(await waitingIds(db)).toEqual([twins[0], free[0], rival.id].sort((a, b) => Number(a) - Number(b)));
    for (const id of blocked) expect(await rowOf(db, id)).toMatchObject({ exhausted: true });
    const again = { unique: { key: 'twins', while: 'live' } } as const;
    expect(await enqueue(db, 'plain', {}, again), 'the key is its own again').toEqual({
      id: twins[0],
      status: 'existing',
    });
  });

  test('a key that an enqueuer has locked is waited for by nobody: its dead letter counts as changed', async ({
    db,
  }) => {
    await insertDead(db, 2);
    const [locked] = (await insertDead(db, 1, { key: 'locked' })) as [TaskId];
    const others = await insertDead(db, 5, { key: (n) => `other ${n}` });
    await using enqueuing = await holdTransaction(db);
    const unique = { key: 'locked', while: 'live' } as const;
    const rival = await enqueue(enqueuing.tx, 'plain', { n: 2 }, { unique });

    expect(await replay(db)).toEqual({ looked: 8, matched: 8, replayed: 7, keyTaken: 0, changed: 1 });
    // The enqueuer holds one key and asks for the others: had the replay waited with those locked, one would have died.
    for (const [n] of others.entries()) {
      const mode = { key: `other ${n}`, while: 'live' } as const;
      expect(await enqueue(enqueuing.tx, 'plain', {}, { unique: mode })).toMatchObject({
        status: 'existing',
      });
    }
    await enqueuing.tx.commit().execute();

    expect(await replay(db)).toMatchObject({ matched: 1, replayed: 0, keyTaken: 1 });
    expect(await rowOf(db, locked)).toMatchObject({ exhausted: true });
    expect(await rowOf(db, rival.id)).toMatchObject({ exhausted: false });
    expect(await deadlocks(db)).toBe('0');
  });

  test('an enqueue whose snapshot is older than a bulk replay of its key fails with 40001', async ({
    db,
  }) => {
    const [id] = (await insertDead(db, 1, { key: 'k' })) as [TaskId];
    await using late = await holdTransaction(db, 'repeatable read');
    await rowOf(late.tx, id);
    expect(await replay(db)).toMatchObject({ replayed: 1 });

    const unique = { key: 'k', while: 'live' } as const;
    await expect(enqueue(late.tx, 'plain', {}, { unique })).rejects.toMatchObject({ code: '40001' });
  });
});

describe('a bulk drop', () => {
  test('deletes what matches and nothing else, and ends the windows of their keys', async ({ db }) => {
    const unique = { key: 'window', while: { window: '30d' } } as const;
    const { id } = await enqueue(db, 'plain', {}, { unique, maxAttempts: 1 });
    await dieAgain(db, id);
    const others = await insertDead(db, 3, { queue: 'low' });
    const running = await insertDead(db, 1, { leasedSeconds: 60 });

    expect(await drop(db, { queue: 'default' })).toEqual({ looked: 5, matched: 1, dropped: 1, changed: 0 });

    expect((await allRows(db)).map((row) => String(row['id']))).toEqual([...others, ...running]);
    expect(await enqueue(db, 'plain', {}, { unique })).toMatchObject({ status: 'enqueued' });
  });
});

describe('a preview', () => {
  test('counts by type and first line of the error, the most frequent first, and writes nothing', async ({
    db,
  }) => {
    await insertDead(db, 5, { error: 'refused\r\n  at once' });
    await insertDead(db, 7, { type: 'brief', error: null });
    await insertDead(db, 2, { error: `${'x'.repeat(200)}\nsecond` });
    for (let kind = 0; kind < 19; kind += 1) await insertDead(db, 1, { error: `kind ${kind}` });
    const before = await allRows(db);

    const preview = await previewMany(readLaneOf(db), {});

    expect(preview).toMatchObject({ looked: 33, matched: 33, keyTaken: 0, others: 2 });
    expect(preview.groups.length).toBe(20);
    expect(preview.groups.slice(0, 3)).toEqual([
      { type: 'brief', error: undefined, count: 7, keyTaken: 0 },
      { type: 'plain', error: 'refused', count: 5, keyTaken: 0 },
      { type: 'plain', error: 'x'.repeat(120), count: 2, keyTaken: 0 },
    ]);
    expect(await allRows(db)).toEqual(before);
    expect(await auditRows(db)).toEqual([]);
  });

  test('adds up over pages, with a bound on what it tells apart', async ({ db }) => {
    await insertDead(db, DEAD_SCAN, { error: 'same' });
    const ids = await insertDead(db, 1_500, { error: 'same' });
    const table = sql.table(`${TEST_SCHEMA}.async_tasks`);
    await sql`update ${table} set last_error = 'task ' || id where id > ${ids[99]}`.execute(db);

    const preview = await previewMany(readLaneOf(db), {});

    expect(preview.matched).toBe(DEAD_SCAN + 1_500);
    expect(preview.groups[0]).toMatchObject({ error: 'same', count: DEAD_SCAN + 100 });
    expect(preview.others + preview.groups.reduce((sum, { count }) => sum + count, 0)).toBe(preview.matched);
  });
});

/** Claims the task and lets it fail for good, as a worker would. */
async function dieAgain(db: Kysely<DB>, id: TaskId): Promise<void> {
  const { lease } = await claimRow(db, id);
  await recordFailure(writeLaneOf(db), lease, { attempt: 1, outcome: 'failure', message: 'again' }, 0);
}

async function deadlocks(db: Kysely<DB>): Promise<string | undefined> {
  const { rows } = await sql<{ deadlocks: string }>`
    select deadlocks::text from pg_stat_database where datname = current_database()`.execute(db);
  return rows[0]?.deadlocks;
}
