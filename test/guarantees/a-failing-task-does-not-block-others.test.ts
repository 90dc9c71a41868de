import { expect } from 'vitest';
import { test } from '../support/replica.ts';
import { insertRow, rowOf } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';

test('a failing task does not block others, not even in the only slot', async ({ db, startReplica }) => {
  const { events } = await startReplica({
    slots: 1,
    handlers: {
      plain: async ({ n }) => {
        if (n === 0) throw new Error('always');
      },
    },
  });
  const failing = await insertRow(db, { payload: { n: 0 }, runAtSeconds: -3_600 });

  const { id } = await enqueue(db, 'plain', { n: 1 });

  await events.first('settled', ({ task }) => task.id === id);
  const outcomes = events.of('settled').map(({ task, outcome }) => [task.id, outcome]);
  expect(outcomes).toEqual([
    [failing, 'failure'],
    [id, 'success'],
  ]);
  expect(await rowOf(db, failing)).toMatchObject({
    attempt_count: 1,
    lease_token: null,
    last_error: 'always',
  });
});
