import { expect } from 'vitest';
import type { ClaimedTask } from '../../src/domain/task.ts';
import { dequeue } from '../../src/statements/settle.ts';
import { allRows, claimRow, claimRows, insertRows, lapseLease, rowOf, writeLaneOf } from '../support/rows.ts';
import { test } from '../support/test.ts';

test('a batch dequeue judges the fence of each row by itself', async ({ db }) => {
  const ids = await insertRows(db, 4);
  const tasks = await claimRows(db, ids, { slots: 4 });
  const [held, lost, alsoHeld, swapped] = ids.map((id) => tasks.find((task) => task.id === id)) as [
    ClaimedTask,
    ClaimedTask,
    ClaimedTask,
    ClaimedTask,
  ];
  await lapseLease(db, lost.id);
  await claimRow(db, lost.id);
  const before = [await rowOf(db, lost.id), await rowOf(db, swapped.id)];

  const deleted = await dequeue(writeLaneOf(db), [
    held.lease,
    lost.lease,
    alsoHeld.lease,
    // A token that is valid for another row of the very same batch proves nothing about this one.
    { id: swapped.id, token: held.lease.token },
  ]);

  expect([...deleted].toSorted()).toEqual([held.id, alsoHeld.id].toSorted());
  expect(await allRows(db)).toEqual(before);
});
