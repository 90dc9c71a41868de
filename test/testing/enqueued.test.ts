import { sql } from 'kysely';
import pg from 'pg';
import { expect } from 'vitest';
import { queryExecutor } from '../../src/index.ts';
import { drain, enqueuedIn, expectEnqueued } from '../../src/testing/index.ts';
import { enqueue, enqueueMany, handlersFor, testTasks } from '../support/tasks.ts';
import { test } from '../support/test.ts';

test('enqueuedIn answers what this transaction has enqueued, decoded, in order, savepoints included', async ({
  db,
}) => {
  await enqueue(db, 'plain', { n: 0 });
  const other = await db.startTransaction().execute();
  await enqueue(other, 'plain', { n: -1 });

  await db.transaction().execute(async (tx) => {
    expect(await enqueuedIn(tx)).toEqual([]);
    await enqueue(tx, 'plain', { n: 1 }, { headers: { trace: 'abc' } });
    await sql`savepoint kept`.execute(tx);
    await enqueue(tx, 'fragile', {}, { runAt: '2030-01-31T12:00:00Z' });
    await sql`savepoint dropped`.execute(tx);
    await enqueue(tx, 'plain', { n: 3 });
    await sql`rollback to savepoint dropped`.execute(tx);
    await enqueueMany(tx, 'plain', [{ n: 4 }, {}]);

    const tasks = await enqueuedIn(tx);

    expect(tasks.map(({ type, payload }) => [type, payload])).toEqual([
      ['plain', { n: 1 }],
      ['fragile', {}],
      ['plain', { n: 4 }],
      ['plain', {}],
    ]);
    expect(tasks[0]).toMatchObject({ queue: 'default', maxAttempts: 20, headers: { trace: 'abc' } });
    expect(tasks[1]).toMatchObject({
      queue: 'fragile',
      maxAttempts: 3,
      runAt: new Date('2030-01-31T12:00:00Z'),
    });
  });
  await other.rollback().execute();
});

test('enqueuedIn answers every task for a Kysely that is no transaction, and in a transaction when asked', async ({
  db,
}) => {
  await enqueue(db, 'plain', { n: 0 });

  expect(await enqueuedIn(db)).toMatchObject([{ payload: { n: 0 } }]);
  expect(await enqueuedIn(db, { scope: 'transaction' })).toEqual([]);
  await db.transaction().execute(async (tx) => {
    expect(await enqueuedIn(tx)).toEqual([]);
    expect(await enqueuedIn(tx, { scope: 'visible' })).toHaveLength(1);
  });
});

test('enqueuedIn works in the transaction of another library', async ({ database, db }) => {
  await enqueue(db, 'plain', { n: 0 });
  const client = new pg.Client(database.connection);
  await client.connect();
  const tx = queryExecutor(async (text, values) => (await client.query(text, [...values])).rows);
  try {
    await client.query('begin');
    await enqueue(tx, 'plain', { n: 1 });

    expect(await enqueuedIn(tx)).toMatchObject([{ payload: { n: 1 } }]);
    await client.query('rollback');
    expect(await enqueuedIn(tx)).toEqual([]);
  } finally {
    await client.end();
  }
});

test('a task that was drained in the same transaction and failed is no longer an enqueued one', async ({
  db,
}) => {
  const handlers = handlersFor({
    plain: () => {
      throw new Error('boom');
    },
  });

  await db.transaction().execute(async (tx) => {
    await enqueue(tx, 'plain', {});
    await drain({ db: tx, handlers });
    expect(await enqueuedIn(tx)).toEqual([]);
  });
});

test('expectEnqueued takes a type or a definition, a payload or a predicate or neither, and a number', async ({
  db,
}) => {
  await db.transaction().execute(async (tx) => {
    await enqueueMany(tx, 'plain', [{ n: 1 }, { n: 2 }, { n: 1 }]);

    expect(await expectEnqueued(tx, 'plain')).toHaveLength(3);
    expect(await expectEnqueued(tx, 'plain', { n: 1 })).toHaveLength(2);
    await expectEnqueued(tx, 'plain', { n: 1 }, 2);
    await expectEnqueued(tx, 'plain', { n: 2, left: undefined }, { times: 1 });
    await expectEnqueued(tx, testTasks.plain.definition, ({ n }) => n === 2, 1);
    await expectEnqueued(tx, 'fragile', undefined, 0);
  });
});

test('expectEnqueued says what was enqueued instead, and where each payload differs', async ({ db }) => {
  await db.transaction().execute(async (tx) => {
    const [first] = await enqueueMany(tx, 'sliced', [{ pages: 2 }]);
    const second = await enqueue(tx, 'fragile', {});

    const message = await rejection(expectEnqueued(tx, testTasks.sliced.definition, { pages: 3 }));

    expect(message).toBe(
      `expected a task of type 'sliced' with the payload { pages: 3 }, found none in this transaction. Enqueued were:
  #${first?.id} sliced { pages: 2 }
      payload.pages: expected 3, received 2
  #${second.id} fragile {}`,
    );
  });
});

test('expectEnqueued marks those that match when their number is wrong', async ({ db }) => {
  await db.transaction().execute(async (tx) => {
    await enqueueMany(tx, 'plain', [{ n: 1 }, { n: 2 }]);

    expect(await rejection(expectEnqueued(tx, 'plain', { n: 2 }, 2))).toMatch(
      /^expected 2 tasks of type 'plain' with the payload \{ n: 2 \}, found 1 in this transaction\. Enqueued were:\n {2}#\d+ plain \{ n: 1 \}\n {6}payload\.n: expected 2, received 1\n✓ #\d+ plain \{ n: 2 \}$/,
    );
    expect(await rejection(expectEnqueued(tx, 'plain', undefined, 0))).toMatch(
      /^expected 0 tasks of type 'plain', found 2 in this transaction/,
    );
    expect(await rejection(expectEnqueued(tx, 'plain', () => false))).toMatch(
      /^expected a task of type 'plain' for whose payload the predicate answers true, found none/,
    );
  });
});

test('expectEnqueued says when nothing was enqueued at all, and lists no more than a page', async ({
  db,
}) => {
  expect(await rejection(expectEnqueued(db, 'plain'))).toBe(
    "expected a task of type 'plain', found none in the queue: nothing was enqueued",
  );
  await enqueueMany(
    db,
    'plain',
    Array.from({ length: 30 }, () => ({})),
  );
  expect(await rejection(expectEnqueued(db, 'fragile'))).toMatch(/\n {2}… and 10 more$/);
  await expect(expectEnqueued(db, 'plain', undefined, 1.5)).rejects.toMatchObject({ code: 'OPTION_INVALID' });
});

/** The message of a plain Error. */
async function rejection(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => expect.unreachable('it passed'),
    (thrown: Error) => thrown,
  );
  expect(error.constructor).toBe(Error);
  return error.message;
}
