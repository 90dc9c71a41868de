import { sql } from 'kysely';
import { expect } from 'vitest';
import type { TaskId } from '../../src/domain/ids.ts';
import { type Operator, openOperator, type ShownTask } from '../../src/operator.ts';
import { countTasks } from '../../src/statements/counts.ts';
import { dequeue, dequeueKeeping } from '../../src/statements/settle.ts';
import { registerPlainTypes } from '../support/registered.ts';
import { claimRow, insertRow, insertRows, lapseLease, readLaneOf, writeLaneOf } from '../support/rows.ts';
import { test as databaseTest } from '../support/test.ts';

const test = databaseTest.extend<{ operator: Operator }>({
  operator: async ({ database }, use) => {
    const operator = await openOperator({ database: database.url });
    await use(operator);
    await operator.close();
  },
});

const KEPT = { retentionMs: 60_000 };

test('one that is due is waiting, whether it was tried before or not', async ({ db, operator }) => {
  await registerPlainTypes(db);
  const id = await insertRow(db, { payload: { n: 1 } });

  expect(await operator.showTask(id)).toEqual({
    id,
    type: 'plain',
    queue: 'default',
    state: 'waiting',
    payloadText: '{"n": 1}',
    payloadRevision: 1,
    cursorText: undefined,
    progress: undefined,
    headers: {},
    attemptCount: 0,
    maxAttempts: 20,
    lastError: undefined,
    errors: [],
    enqueuedAt: expect.any(Date),
    runAt: expect.any(Date),
    lastAttemptedAt: undefined,
    leaseExpiresAt: undefined,
    secretsKnown: true,
  } satisfies ShownTask);
  // Its worker died: whoever looks next may claim it.
  await claimRow(db, id);
  await lapseLease(db, id);
  expect(await operator.showTask(id)).toMatchObject({
    state: 'waiting',
    attemptCount: 1,
    leaseExpiresAt: undefined,
  });
});

test('one that was enqueued for later is scheduled, and one that backs off is retrying', async ({
  db,
  operator,
}) => {
  const scheduled = await insertRow(db, { runAtSeconds: 60 });
  const retrying = await insertRow(db, { runAtSeconds: 60, attemptCount: 1 });

  expect(await operator.showTask(scheduled)).toMatchObject({ state: 'scheduled' });
  expect(await operator.showTask(retrying)).toMatchObject({ state: 'retrying', attemptCount: 1 });
});

test('one that a worker holds is running, on its final attempt too, and says until when', async ({
  db,
  operator,
}) => {
  const { id, leaseExpiresAt } = await claimRow(db, await insertRow(db, { attemptCount: 19 }));

  expect(await operator.showTask(id)).toMatchObject({
    state: 'running',
    attemptCount: 20,
    leaseExpiresAt: new Date(leaseExpiresAt.dbMs),
  });
});

test('one that is out of attempts is dead', async ({ db, operator }) => {
  const id = await insertRow(db, { attemptCount: 20, attemptedSecondsAgo: 5, runAtSeconds: 60 });

  expect(await operator.showTask(id)).toMatchObject({ state: 'dead', lastAttemptedAt: expect.any(Date) });
});

test('one that is done is completed when it was kept, and is nowhere when it was not', async ({
  db,
  operator,
}) => {
  await registerPlainTypes(db);
  const kept = await claimRow(db, await insertRow(db, { ...KEPT, payload: { n: 1 } }));
  const gone = await claimRow(db, await insertRow(db));
  await dequeueKeeping(writeLaneOf(db), [{ lease: kept.lease, resultText: '{"rows": 12}' }]);
  await dequeue(writeLaneOf(db), [gone.lease]);

  expect(await operator.showTask(kept.id)).toEqual({
    id: kept.id,
    type: 'plain',
    queue: 'default',
    state: 'completed',
    payloadText: '{"n": 1}',
    payloadRevision: 1,
    headers: {},
    resultText: '{"rows": 12}',
    attemptCount: 1,
    errors: [],
    enqueuedAt: expect.any(Date),
    startedAt: new Date(kept.claimedAt.dbMs),
    completedAt: expect.any(Date),
    keepUntil: expect.any(Date),
    secretsKnown: true,
  } satisfies ShownTask);
  expect(await operator.showTask(gone.id)).toBeUndefined();
  expect(await operator.showTask('9223372036854775807' as TaskId)).toBeUndefined();
});

test('records are listed from the newest on, page by page', async ({ db, operator }) => {
  const ids = await insertRows(db, 3, KEPT);
  for (const id of ids) {
    const { lease } = await claimRow(db, id);
    await dequeueKeeping(writeLaneOf(db), [{ lease, resultText: undefined }]);
  }
  const [oldest, middle, newest] = ids;

  const page = await operator.listCompleted({ limit: 2 });
  expect(page.map(({ id }) => id)).toEqual([newest, middle]);
  const next = await operator.listCompleted({ limit: 2, before: middle as TaskId });
  expect(next.map(({ id }) => id)).toEqual([oldest]);
});

test('every task is counted in exactly one of its states, and records beside them', async ({ db }) => {
  await insertRows(db, 2);
  await insertRow(db, { attemptCount: 3 });
  await insertRows(db, 2, { runAtSeconds: 60 });
  await insertRows(db, 3, { runAtSeconds: 60, attemptCount: 1 });
  await insertRows(db, 4, { leasedSeconds: 60, attemptCount: 1 });
  await insertRow(db, { leasedSeconds: 60, attemptCount: 20 });
  await insertRows(db, 6, { attemptCount: 20 });
  const done = await claimRow(db, await insertRow(db, { ...KEPT, type: 'brief', queue: 'low' }));
  await dequeueKeeping(writeLaneOf(db), [{ lease: done.lease, resultText: undefined }]);
  await sql`insert into taskq.async_completed_tasks
            select 1000, 'default', 'plain', payload, 1, headers, null, 1, errors, created_at, null, now(), now()
            from taskq.async_completed_tasks`.execute(db);

  expect(await countTasks(readLaneOf(db))).toEqual([
    {
      type: 'brief',
      queue: 'low',
      pending: 0,
      running: 0,
      due: 0,
      scheduled: 0,
      retrying: 0,
      dead: 0,
      completed: 1,
      oldestDueSeconds: 0,
    },
    {
      type: 'plain',
      queue: 'default',
      pending: 13,
      running: 5,
      due: 3,
      scheduled: 2,
      retrying: 3,
      dead: 6,
      completed: 1,
      oldestDueSeconds: expect.any(Number),
    },
  ]);
});
