import { expect } from 'vitest';
import { ERROR_HISTORY_MAX } from '../../src/domain/limits.ts';
import { recordFailure } from '../../src/statements/settle.ts';
import { claimRow, insertRow, makeDue, rowOf, writeLaneOf } from '../support/rows.ts';
import { test } from '../support/test.ts';

test('the error history keeps the last twenty failures, oldest first', async ({ db }) => {
  expect(ERROR_HISTORY_MAX).toBe(20);
  const lane = writeLaneOf(db);
  const id = await insertRow(db, { maxAttempts: 50 });

  for (let attempt = 1; attempt <= 25; attempt += 1) {
    const task = await claimRow(db, id);
    const failure = { attempt, outcome: 'failure', message: `failure ${attempt}`, stack: 'at work' } as const;
    await recordFailure(lane, task.lease, failure, 15_000);
    await makeDue(db, id);
    expect((await rowOf(db, id)).errors).toHaveLength(Math.min(attempt, 20));
  }

  const row = await rowOf(db, id);
  expect(row.last_error).toBe('failure 25');
  expect(row.errors.map(({ attempt }) => attempt)).toEqual(Array.from({ length: 20 }, (_, n) => n + 6));
  expect(row.errors.at(-1)).toEqual({
    attempt: 25,
    outcome: 'failure',
    message: 'failure 25',
    stack: 'at work',
    at: expect.stringMatching(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/),
  });
});
