import { expect } from 'vitest';
import { pruneAll } from '../../src/maintenance/pruner.ts';
import { countTasks } from '../../src/statements/counts.ts';
import { dropDead, findDead, listDead, replayDead } from '../../src/statements/dead.ts';
import {
  claimRow,
  claimRows,
  insertRow,
  lapseLease,
  readLaneOf,
  rowOf,
  writeLaneOf,
} from '../support/rows.ts';
import { test } from '../support/test.ts';

test('twenty crashes make a task a dead letter', async ({ db }) => {
  const id = await insertRow(db);

  for (let attempt = 1; attempt <= 20; attempt += 1) {
    expect(await listDead(readLaneOf(db), { limit: 10 })).toEqual([]);
    const task = await claimRow(db, id);
    expect(task).toMatchObject({ attempt, maxAttempts: 20 });
    // A crash writes nothing: the lease only ends.
    await lapseLease(db, id);
  }

  expect(await claimRows(db, [id])).toEqual([]);
  expect(await listDead(readLaneOf(db), { limit: 10 })).toMatchObject([
    { id, attemptCount: 20, maxAttempts: 20, lastError: undefined },
  ]);
});

test('a worker that dies on the final attempt leaves a row that becomes dead by itself', async ({ db }) => {
  const id = await insertRow(db, { attemptCount: 19, attemptedSecondsAgo: 3_600 });
  const read = readLaneOf(db);
  const write = writeLaneOf(db);
  await claimRow(db, id);
  const held = await rowOf(db, id);

  // Under the live lease somebody runs it: it is no dead letter in any respect.
  expect(await countTasks(read)).toMatchObject([{ pending: 1, running: 1, due: 0, dead: 0 }]);
  expect(await findDead(read, id)).toBeUndefined();
  expect(await pruneAll({ write, retentionMs: 0 })).toBe(0);
  expect(await replayDead(write, id)).toBe('refused');
  expect(await dropDead(write, id)).toBe('refused');
  expect(await rowOf(db, id)).toEqual(held);

  await lapseLease(db, id);

  expect(await countTasks(read)).toMatchObject([{ pending: 0, running: 0, due: 0, dead: 1 }]);
  expect(await findDead(read, id)).toMatchObject({ id, attemptCount: 20 });
  expect(await claimRows(db, [id])).toEqual([]);
  expect(await replayDead(write, id)).toBe('written');
  expect(await claimRow(db, id)).toMatchObject({ attempt: 1 });
});
