import { expect } from 'vitest';
import { enqueue, enqueueMany } from '../support/tasks.ts';
import { test } from '../support/test.ts';
import { hearWakes } from '../support/wakes.ts';

test('a thousand rows enqueued in one transaction send one notification', async ({ database, db }) => {
  const wakes = await hearWakes(database);

  await db.transaction().execute(async (tx) => {
    await enqueueMany(
      tx,
      'plain',
      Array.from({ length: 998 }, () => ({})),
    );
    // Statements of their own, and another type: still the same transaction.
    await enqueue(tx, 'plain', {});
    await enqueue(tx, 'brief', {});
  });

  expect(await wakes.count()).toBe(1);
});

test('a row that is due later sends no notification, and one that is due now among them does', async ({
  database,
  db,
}) => {
  const wakes = await hearWakes(database);

  await enqueue(db, 'plain', {}, { delay: '1m' });
  await enqueue(db, 'plain', {}, { runAt: new Date(Date.now() + 3_600_000) });
  await enqueueMany(db, 'plain', [{}, {}], { delay: '1h' });
  expect(await wakes.count()).toBe(0);

  await db.transaction().execute(async (tx) => {
    await enqueue(tx, 'plain', {}, { delay: '1m' });
    await enqueue(tx, 'plain', {}, { runAt: new Date(0) });
  });
  expect(await wakes.count()).toBe(1);
});

test('an empty list sends none', async ({ database, db }) => {
  const wakes = await hearWakes(database);

  expect(await enqueueMany(db, 'plain', [])).toEqual([]);

  expect(await wakes.count()).toBe(0);
});
