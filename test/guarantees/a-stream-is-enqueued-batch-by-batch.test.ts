import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { type Kysely, sql } from 'kysely';
import { z } from 'zod';
import type { DB } from '../../generated/db.ts';
import { createEnqueuer, createRegistry, defineTask, queryExecutor } from '../../src/index.ts';
import { gate, test } from '../support/replica.ts';
import { allRows } from '../support/rows.ts';
import { recordStatements } from '../support/statements.ts';
import { enqueueMany, testTasks } from '../support/tasks.ts';
import { expect } from '../support/test.ts';

const BATCH = 1_000;

/** Yields `{ n }` up to `count`, and knows how far it was read and whether it was closed. */
function numbers(count: number, at: (n: number) => unknown = (n) => ({ n })) {
  const state = { yielded: 0, isClosed: false };
  function* generate() {
    try {
      while (state.yielded < count) {
        state.yielded += 1;
        yield at(state.yielded - 1) as { n: number };
      }
    } finally {
      state.isClosed = true;
    }
  }
  return { state, payloads: generate() };
}

async function countRows(db: Kysely<DB>): Promise<number> {
  const { count } = await db
    .selectFrom('async_tasks')
    .select(sql<number>`count(*)::int`.as('count'))
    .executeTakeFirstOrThrow();
  return count;
}

test('an iterable and an async iterable are enqueued in their order and answered with counts', async ({
  db,
}) => {
  async function* slowly() {
    for (const n of [3, 4]) yield { n };
  }
  const answers = await db
    .transaction()
    .execute(async (tx) => [
      await enqueueMany(tx, 'plain', new Set([{ n: 1 }, { n: 2 }])),
      await enqueueMany(tx, 'plain', slowly()),
      await enqueueMany(tx, 'plain', new Set<{ n: number }>()),
    ]);

  expect(answers).toEqual([
    { enqueued: 2, existing: 0, replaced: 0 },
    { enqueued: 2, existing: 0, replaced: 0 },
    { enqueued: 0, existing: 0, replaced: 0 },
  ]);
  expect((await allRows(db)).map((row) => row['payload'])).toEqual([{ n: 1 }, { n: 2 }, { n: 3 }, { n: 4 }]);
});

test('a stream with keys counts what was in the way and what was replaced', async ({ db }) => {
  const unique = { by: ['n'], while: 'live' } as const;
  const replace = { unique: { ...unique, onConflict: 'replace' } } as const;
  const counts = await db
    .transaction()
    .execute(async (tx) => [
      await enqueueMany(tx, 'plain', numbers(3).payloads, { unique }),
      await enqueueMany(tx, 'plain', numbers(2_000, (n) => ({ n: n % 5 })).payloads, { unique }),
      await enqueueMany(tx, 'plain', numbers(6).payloads, replace),
    ]);
  expect(counts).toEqual([
    { enqueued: 3, existing: 0, replaced: 0 },
    { enqueued: 2, existing: 1_998, replaced: 0 },
    { enqueued: 1, existing: 0, replaced: 5 },
  ]);
});

test('a batch ends at its bytes too: large payloads are not collected to a thousand', async ({ db }) => {
  const text = defineTask({ type: 'text', payload: z.string(), ceiling: '5m' });
  const enqueuer = createEnqueuer({ text: { definition: text, revision: 1 } });
  const sent = recordStatements();
  const inserts = () => sent.all.filter(({ text: statement }) => statement.startsWith('with "given"')).length;
  const insertsBefore: number[] = [];
  function* large() {
    for (let n = 0; n < 24; n += 1) {
      insertsBefore.push(inserts());
      yield 'x'.repeat(1_000_000);
    }
  }

  await db.transaction().execute((tx) => enqueuer.enqueueMany(tx, 'text', large()));

  // Eight of a megabyte fit into 8 MiB; the ninth is read before that shows.
  expect(insertsBefore).toEqual(Array.from({ length: 24 }, (_, n) => Math.max(0, Math.ceil(n / 8) - 1)));
  expect(inserts()).toBe(3);
});

test('a payload that does not fit fails the call with its index, closes the stream, and its transaction rolls back', async ({
  db,
}) => {
  const { state, payloads } = numbers(5_000, (n) => ({ n: n === 2_400 ? 0.5 : n }));
  const inserted: number[] = [];

  const enqueued = db.transaction().execute(async (tx) => {
    const failed = await enqueueMany(tx, 'plain', payloads).catch((error: unknown) => error);
    inserted.push(await countRows(tx));
    throw failed;
  });

  await expect(enqueued).rejects.toMatchObject({
    code: 'PAYLOAD_INVALID',
    message: expect.stringContaining('plain[2400]'),
  });
  expect(state).toEqual({ yielded: 2_401, isClosed: true });
  expect(inserted).toEqual([2 * BATCH]);
  expect(await allRows(db)).toEqual([]);
});

test('a stream is closed when the database refuses, and the error is the database its own', async ({
  db,
}) => {
  const { state, payloads } = numbers(5_000);
  await sql`alter table taskq.async_tasks add constraint no_1500 check (payload <> '{"n": 1500}')`.execute(
    db,
  );

  const enqueued = db.transaction().execute((tx) => enqueueMany(tx, 'plain', payloads));

  await expect(enqueued).rejects.toMatchObject({ code: '23514', constraint: 'no_1500' });
  expect(state).toEqual({ yielded: 2 * BATCH, isClosed: true });
});

test('what the stream throws passes through unchanged', async ({ db }) => {
  const broken = new Error('the cursor is gone');
  async function* stream() {
    yield { n: 1 };
    throw broken;
  }
  await expect(db.transaction().execute((tx) => enqueueMany(tx, 'plain', stream()))).rejects.toBe(broken);
  expect(await allRows(db)).toEqual([]);
});

test('a task in the way with onConflict error is named by its place in the stream', async ({ db }) => {
  const unique = { by: ['n'], while: 'live', onConflict: 'error' } as const;
  const { state, payloads } = numbers(3_000, (n) => ({ n: n === 1_700 ? 1_600 : n }));
  const enqueued = db.transaction().execute((tx) => enqueueMany(tx, 'plain', payloads, { unique }));

  await expect(enqueued).rejects.toMatchObject({
    code: 'TASK_EXISTS',
    message: expect.stringMatching(/^plain\[1700\]: task \d+ stands in the way/),
  });
  expect(state).toEqual({ yielded: 2 * BATCH, isClosed: true });
});

test('a stream outside of a transaction is refused unread; of another driver it is taken', async ({ db }) => {
  const { state, payloads } = numbers(1);
  await expect(enqueueMany(db, 'plain', payloads)).rejects.toMatchObject({
    code: 'OPTION_INVALID',
    message: expect.stringContaining('give it a transaction'),
  });
  expect(state.yielded).toBe(0);

  const foreign = queryExecutor(async (text, values) => {
    const { rows } = await db.executeQuery({ sql: text, parameters: values } as never);
    return rows as object[];
  });
  expect(await enqueueMany(foreign, 'plain', payloads)).toMatchObject({ enqueued: 1 });
});

test('what is no list of payloads is refused, text included', async ({ db }) => {
  for (const payloads of ['text', 5, null, undefined, { n: 1 }, { length: 1, 0: {} }]) {
    await expect(enqueueMany(db, 'plain', payloads as never)).rejects.toMatchObject({
      code: 'OPTION_INVALID',
      message: 'enqueueMany of plain: expected an array, an iterable or an async iterable of payloads',
    });
  }
});

test('a handler fans out 100,000 tasks holding no more than a batch of them, while other slots work', async ({
  db,
  startReplica,
}) => {
  setFlagsFromString('--expose-gc');
  const collectGarbage = runInNewContext('gc') as () => void;
  const CHILDREN = 100_000;
  const fan = defineTask({ type: 'fan', payload: z.object({}), ceiling: '5m' });
  const tasks = { ...testTasks, fan: { definition: fan, revision: 1 } };
  const enqueuer = createEnqueuer(tasks);
  const otherRan = gate();
  const bothSlotsRunChildren = gate();
  let childrenRunning = 0;
  let aheadMax = 0;
  let firstBatchAlive = -1;

  async function* children(tx: Kysely<DB>) {
    const firstBatch: WeakRef<object>[] = [];
    for (let n = 0; n < CHILDREN; n += 1) {
      if (n % BATCH === 0) aheadMax = Math.max(aheadMax, n - (await insertedIn(tx)));
      if (n === CHILDREN / 2) {
        // The other slot claims, runs and settles a task while this one is in the middle of its fan-out.
        await enqueuer.enqueue(db, 'brief', {});
        await otherRan.promise;
        collectGarbage();
        firstBatchAlive = firstBatch.filter((payload) => payload.deref() !== undefined).length;
      }
      const payload = { n };
      if (n < BATCH) firstBatch.push(new WeakRef(payload));
      yield payload;
    }
  }

  const registry = createRegistry(tasks, {
    sliced: async () => 'done',
    fragile: async () => 'done',
    brief: async () => otherRan.open(),
    async fan(_payload, context) {
      await db.transaction().execute(async (tx) => {
        const counts = await enqueuer.enqueueMany(tx, 'plain', children(tx));
        expect(counts).toEqual({ enqueued: CHILDREN, existing: 0, replaced: 0 });
        await context.complete(tx);
      });
    },
    async plain() {
      childrenRunning += 1;
      if (childrenRunning === 2) bothSlotsRunChildren.open();
      await bothSlotsRunChildren.promise;
    },
  });
  const replica = await startReplica({ registry, slots: 2 });
  await enqueuer.enqueue(db, 'fan', {});

  const { outcome } = await replica.events.first('settled', ({ task }) => task.type === 'fan');
  // Two slots, two children at once: the parent's slot was free again with its commit.
  await bothSlotsRunChildren.promise;

  expect(outcome).toBe('success');
  // Before the first of each thousand is yielded, all before it have been inserted.
  expect(aheadMax).toBe(0);
  expect(firstBatchAlive).toBe(0);
  await replica.app.stop();
});

/** Rows that the transaction has inserted so far, by the server's own count. */
async function insertedIn(tx: Kysely<DB>): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select n_tup_ins::int as count from pg_stat_xact_user_tables
    where schemaname = 'taskq' and relname = 'async_tasks'`.execute(tx);
  return rows[0]?.count ?? 0;
}
