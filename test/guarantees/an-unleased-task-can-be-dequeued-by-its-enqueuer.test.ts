import { expect } from 'vitest';
import { dequeueUnleased } from '../../src/index.ts';
import { allRows, claimRow, insertRow, lapseLease, rowOf } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { test } from '../support/test.ts';

test('an enqueuer that did the work itself removes its task, in the same transaction', async ({ db }) => {
  await db.transaction().execute(async (tx) => {
    const { id } = await enqueue(tx, 'plain', {}, { delay: '30m' });
    expect(await dequeueUnleased(tx, id)).toBe(true);
    expect(await dequeueUnleased(tx, id)).toBe(false);
  });

  expect(await allRows(db)).toEqual([]);
});

test('a task that a worker holds is not dequeued by its enqueuer', async ({ db }) => {
  const id = await insertRow(db);
  await claimRow(db, id);
  const before = await rowOf(db, id);

  expect(await dequeueUnleased(db, id)).toBe(false);
  expect(await rowOf(db, id)).toEqual(before);

  // After a crash nobody holds it any more.
  await lapseLease(db, id);
  expect(await dequeueUnleased(db, id)).toBe(true);
});
