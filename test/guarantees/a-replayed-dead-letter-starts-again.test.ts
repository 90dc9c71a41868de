import { expect } from 'vitest';
import { findDead, replayDead } from '../../src/statements/dead.ts';
import { recordFailure, retire } from '../../src/statements/settle.ts';
import { gate, test } from '../support/replica.ts';
import { claimRow, insertRow, makeDue, readLaneOf, rowOf, writeLaneOf } from '../support/rows.ts';
import { hearWakes } from '../support/wakes.ts';

test('a replayed dead letter starts at attempt 1, with its history kept and one wake', async ({
  database,
  db,
  startReplica,
}) => {
  const ran = gate<number>();
  const wakes = await hearWakes(database);
  const lane = writeLaneOf(db);
  const id = await insertRow(db, { attemptCount: 18 });
  const first = await claimRow(db, id);
  await recordFailure(lane, first.lease, { attempt: 19, outcome: 'failure', message: 'first' }, 15_000);
  await makeDue(db, id);
  const last = await claimRow(db, id);
  await retire(lane, last.lease, { attempt: 20, outcome: 'failure', message: 'last' });
  const { events } = await startReplica({
    handlers: { plain: async (_payload, { attempt }) => ran.open(attempt) },
  });
  await wakes.count();

  expect(await replayDead(lane, id)).toBe('written');

  expect(await wakes.count()).toBe(1);
  expect(await ran.promise).toBe(1);
  expect(await events.first('settled')).toMatchObject({ outcome: 'success', task: { id, attempt: 1 } });
});

test('a replay keeps the history of failures on the row', async ({ db }) => {
  const lane = writeLaneOf(db);
  const id = await insertRow(db, { attemptCount: 19 });
  const task = await claimRow(db, id);
  await recordFailure(lane, task.lease, { attempt: 20, outcome: 'failure', message: 'last' }, 600_000);
  const dead = await findDead(readLaneOf(db), id);

  await replayDead(lane, id);

  expect(await rowOf(db, id)).toMatchObject({ attempt_count: 0, exhausted: false, errors: dead?.errors });
  expect(await claimRow(db, id)).toMatchObject({ attempt: 1 });
});

test('only a dead letter is replayed: a waiting or running task is not touched', async ({ db }) => {
  const lane = writeLaneOf(db);
  const ids = [
    await insertRow(db, { attemptCount: 3 }),
    await insertRow(db, { attemptCount: 20, leasedSeconds: 60 }),
  ];

  for (const id of ids) {
    const before = await rowOf(db, id);
    expect(await replayDead(lane, id)).toBe('refused');
    expect(await rowOf(db, id)).toEqual(before);
  }
});
