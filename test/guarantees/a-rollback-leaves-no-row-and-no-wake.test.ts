import { expect } from 'vitest';
import { allRows } from '../support/rows.ts';
import { enqueue, enqueueMany } from '../support/tasks.ts';
import { test } from '../support/test.ts';
import { hearWakes } from '../support/wakes.ts';

test('a rollback leaves no row and no wake', async ({ database, db }) => {
  const wakes = await hearWakes(database);
  const undone = new Error('the business change fails');

  const transaction = db.transaction().execute(async (tx) => {
    await enqueue(tx, 'plain', {});
    await enqueueMany(tx, 'plain', [{}, {}]);
    expect(await allRows(tx)).toHaveLength(3);
    throw undone;
  });

  await expect(transaction).rejects.toBe(undone);
  expect(await allRows(db)).toEqual([]);
  expect(await wakes.count()).toBe(0);
});

test('neither the row nor the wake is there before the commit', async ({ database, db }) => {
  const wakes = await hearWakes(database);

  await db.transaction().execute(async (tx) => {
    await enqueue(tx, 'plain', {});
    expect(await allRows(db)).toEqual([]);
    expect(await wakes.count()).toBe(0);
  });

  expect(await allRows(db)).toHaveLength(1);
  expect(await wakes.count()).toBe(1);
});
