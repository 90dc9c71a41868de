import { expect } from 'vitest';
import { SkipRetry } from '../../src/index.ts';
import { findDead } from '../../src/statements/dead.ts';
import { test } from '../support/replica.ts';
import { claimRows, insertRow, readLaneOf, rowOf, wakeReplicas } from '../support/rows.ts';

test('SkipRetry makes the task a dead letter at once and keeps its true attempt count', async ({
  db,
  startReplica,
}) => {
  const { events } = await startReplica({
    handlers: {
      plain: () => {
        throw new SkipRetry('the organisation was deleted');
      },
    },
  });
  const id = await insertRow(db, { attemptCount: 2 });
  await wakeReplicas(db);

  expect(await events.first('settled')).toMatchObject({
    outcome: 'failure',
    dead: true,
    task: { attempt: 3 },
  });
  expect(await rowOf(db, id)).toMatchObject({
    attempt_count: 3,
    max_attempts: 20,
    lease_token: null,
    last_error: 'the organisation was deleted',
  });
  expect(await findDead(readLaneOf(db), id)).toMatchObject({ attemptCount: 3 });
  expect(await claimRows(db, [id])).toEqual([]);
});
