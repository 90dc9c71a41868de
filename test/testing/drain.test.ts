import { sql } from 'kysely';
import { expect } from 'vitest';
import { createTestClock, drain } from '../../src/testing/index.ts';
import { allRecords, claimRow, findRow, insertRow, rowOf } from '../support/rows.ts';
import { enqueue, enqueueMany, handlersFor } from '../support/tasks.ts';
import { test } from '../support/test.ts';

test('drains until nothing is claimable, oldest first, tasks that handlers enqueue included', async ({
  db,
}) => {
  const handlers = handlersFor({
    plain: async ({ n }) => {
      if (n === 2) await enqueue(db, 'fragile', {});
    },
  });
  const tasks = await enqueueMany(db, 'plain', [{ n: 1 }, { n: 2 }, { n: 3 }]);

  const runs = await drain({ db, handlers });

  expect(runs.map(({ type, outcome }) => [type, outcome])).toEqual([
    ['plain', 'success'],
    ['plain', 'success'],
    ['plain', 'success'],
    ['fragile', 'success'],
  ]);
  expect(runs.slice(0, 3).map(({ id }) => id)).toEqual(tasks.map(({ id }) => id));
  expect(runs[3]).toEqual({
    id: runs[3]?.id,
    type: 'fragile',
    queue: 'fragile',
    attempt: 1,
    outcome: 'success',
    error: undefined,
    thrown: undefined,
    dead: false,
  });
  expect(await drain({ db, handlers })).toEqual([]);
});

test('a task that is kept leaves its record, in the transaction of the test', async ({ db }) => {
  const handlers = handlersFor({ plain: async ({ n }, { result }) => result({ n }) });
  await db.transaction().execute(async (tx) => {
    await enqueue(tx, 'plain', { n: 7 }, { retention: '1d' });
    await drain({ db: tx, handlers });
    expect(await allRecords(tx)).toMatchObject([{ task_type: 'plain', result: { n: 7 } }]);
  });
});

test('a task that fails is not retried before its backoff has ended', async ({ database, db }) => {
  const boom = new Error('boom');
  const handlers = handlersFor({
    fragile: async (_payload, { attempt }) => {
      if (attempt < 3) throw boom;
    },
  });
  const clock = await createTestClock(database.connection);
  const { id } = await enqueue(db, 'fragile', {});
  const drained = () => drain({ database: clock.connection, handlers });

  expect(await drained()).toMatchObject([
    { id, attempt: 1, outcome: 'failure', error: 'boom', thrown: boom },
  ]);
  expect(await drained()).toEqual([]);
  await clock.advance('2s');
  expect(await drained()).toMatchObject([{ id, attempt: 2, outcome: 'failure', dead: false }]);
  // The second backoff is twice the first.
  await clock.advance('2s');
  expect(await drained()).toEqual([]);
  await clock.advance('2s');
  expect(await drained()).toMatchObject([{ id, attempt: 3, outcome: 'success' }]);
});

test('a sliced task goes on to its end, a run for each slice', async ({ db }) => {
  const handlers = handlersFor({
    async sliced({ pages }, { cursor, advanceCursor }) {
      const page = cursor?.page ?? 0;
      if (page === pages) return 'done';
      await advanceCursor({ page: page + 1 });
      return 'continue';
    },
  });
  await enqueue(db, 'sliced', { pages: 2 });

  const runs = await drain({ db, handlers });

  expect(runs.map(({ outcome, attempt }) => [outcome, attempt])).toEqual([
    ['continued', 1],
    ['continued', 1],
    ['success', 1],
  ]);
});

test('a handler that enqueues itself for ever meets maxTasks, which says what ran', async ({ db }) => {
  const handlers = handlersFor({ plain: async () => void (await enqueue(db, 'plain', {})) });
  await enqueue(db, 'plain', {});

  await expect(drain({ db, handlers, maxTasks: 5 })).rejects.toThrow(
    'drain: 5 runs (5 × plain success), and more is claimable.',
  );
});

test('a queue of exactly maxTasks is drained', async ({ db }) => {
  await enqueueMany(db, 'plain', [{}, {}, {}]);

  expect(await drain({ db, handlers: handlersFor(), maxTasks: 3 })).toHaveLength(3);
});

test('until stops after the run it says', async ({ db }) => {
  await enqueueMany(db, 'plain', [{}, {}, {}]);

  const runs = await drain({ db, handlers: handlersFor(), until: ({ outcome }) => outcome === 'success' });

  expect(runs).toHaveLength(1);
  expect(await drain({ db, handlers: handlersFor(), until: 'empty' })).toHaveLength(2);
});

test('what is due later, held, dead, locked by another or of another queue is left alone', async ({ db }) => {
  const left = [
    await insertRow(db, { runAtSeconds: 60 }),
    await insertRow(db, { leasedSeconds: 60 }),
    await insertRow(db, { attemptCount: 20 }),
    await insertRow(db, { queue: 'other' }),
    await insertRow(db),
  ];
  const { id } = await enqueue(db, 'plain', {});
  const handlers = handlersFor();

  await db.transaction().execute(async (tx) => {
    await sql`select 1 from taskq.async_tasks where id = ${left[4]} for update`.execute(tx);
    const runs = await drain({ db, handlers, queues: ['default'] });
    expect(runs.map((run) => run.id)).toEqual([id]);
  });

  for (const each of left) expect(await findRow(db, each)).toBeDefined();
});

test('in a transaction it runs what was enqueued there, and a rollback takes all of it back', async ({
  db,
}) => {
  const before = await enqueue(db, 'fragile', {});
  const handlers = handlersFor({
    fragile: () => {
      throw new Error('boom');
    },
  });
  const tx = await db.startTransaction().execute();
  const { id } = await enqueue(tx, 'plain', {});

  const runs = await drain({ db: tx, handlers });
  await tx.rollback().execute();

  expect(runs).toMatchObject([
    { id: before.id, outcome: 'failure' },
    { id, outcome: 'success' },
  ]);
  expect(await findRow(db, id)).toBeUndefined();
  expect(await rowOf(db, before.id)).toMatchObject({ attempt_count: 0, last_error: null });
});

test('a handler that completes in its own transaction is drained', async ({ db }) => {
  const handlers = handlersFor({
    plain: (_payload, { complete }) => db.transaction().execute((tx) => complete(tx)),
  });
  await enqueue(db, 'plain', {});

  expect(await drain({ db, handlers })).toMatchObject([{ outcome: 'success' }]);
  expect(await drain({ db, handlers })).toEqual([]);
});

test('a run that lost its lease is lost', async ({ db }) => {
  const handlers = handlersFor({
    plain: async (_payload, context) => {
      await sql`update taskq.async_tasks set lease_expires_at = now()`.execute(db);
      await claimRow(db, context.id);
    },
  });
  await enqueue(db, 'plain', {});

  expect(await drain({ db, handlers })).toMatchObject([{ outcome: 'lost', dead: false }]);
});

test('a settlement that cannot be written is thrown, not retried for as long as the lease', async ({
  db,
}) => {
  const handlers = handlersFor({
    plain: async () => {
      await sql`alter table taskq.async_tasks rename to elsewhere`.execute(db);
    },
  });
  const { id } = await enqueue(db, 'plain', {});

  await expect(drain({ db, handlers })).rejects.toThrow(
    new RegExp(`^drain: task ${id} \\(plain\\) could not be settled: .*async_tasks.* does not exist`),
  );
});

test('neither or both of db and database, and a maxTasks of none, are refused', async ({ database, db }) => {
  const handlers = handlersFor();
  const wrong = { handlers } as unknown as Parameters<typeof drain>[0];
  const refused = { code: 'OPTION_INVALID' };

  await expect(drain(wrong)).rejects.toMatchObject(refused);
  await expect(drain({ ...wrong, db, database: database.url } as never)).rejects.toMatchObject(refused);
  await expect(drain({ handlers, db, maxTasks: 0 })).rejects.toMatchObject(refused);
});
