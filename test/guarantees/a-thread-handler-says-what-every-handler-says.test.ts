import { expect } from 'vitest';
import { z } from 'zod';
import { test } from '../support/replica.ts';
import { findRow, insertRow, rowOf, wakeReplicas } from '../support/rows.ts';
import { threadedRegistry, threadHandler } from '../support/threaded.ts';

test('a handler in a thread receives the parsed payload and the facts of its task', async ({
  db,
  startReplica,
}) => {
  const payload = z.object({
    at: z.iso.datetime().transform((text) => new Date(text)),
    tags: z.array(z.string()),
  });
  const parsed = payload.transform(({ at, tags }) => ({ at, tags: new Set(tags) }));
  const registry = threadedRegistry(threadHandler('tell'), { payload: parsed });
  const { events } = await startReplica({ registry });
  const sent = { at: '2026-11-30T00:00:00.000Z', tags: ['a', 'b'] };
  const id = await insertRow(db, { type: 'threaded', payload: sent, attemptCount: 4 });
  await wakeReplicas(db);

  const { error } = await events.first('settled');
  expect(JSON.parse(error ?? '')).toEqual({
    id,
    type: 'threaded',
    queue: 'default',
    attempt: 5,
    maxAttempts: 20,
    headers: {},
    enqueuedAt: expect.stringMatching(/^\d{4}-/),
    ...sent,
    hasTime: true,
    aborted: false,
  });
});

test('a handler in a thread advances its cursor and continues, slice by slice', async ({
  db,
  startReplica,
}) => {
  const { events } = await startReplica({ registry: threadedRegistry(threadHandler('turnPages')) });
  const id = await insertRow(db, { type: 'paged' });
  await wakeReplicas(db);

  const settled = await events.atLeast(3, 'settled');
  expect(settled.map(({ outcome }) => outcome)).toEqual(['continued', 'continued', 'success']);
  expect(settled.map(({ task }) => task.attempt)).toEqual([1, 1, 1]);
  expect(await findRow(db, id)).toBeUndefined();
});

test('a cursor that is refused rejects in the thread with LEASE_LOST', async ({ db, startReplica }) => {
  const { events } = await startReplica({ registry: threadedRegistry(threadHandler('advanceTwice')) });
  await insertRow(db, { type: 'paged' });
  await wakeReplicas(db);

  expect(await events.first('settled')).toMatchObject({
    outcome: 'lost',
    error: 'TaskqError LEASE_LOST',
  });
});

test('a handler in a thread walks through pages, with its progress and what stopped it early', async ({
  db,
  startReplica,
}) => {
  const { events } = await startReplica({ slots: 1, registry: threadedRegistry(threadHandler('walk')) });
  const id = await insertRow(db, { type: 'paged' });
  await wakeReplicas(db);

  await events.first('slice_stopped_early');
  await events.first('settled', ({ outcome }) => outcome === 'success');
  expect(events.of('settled').map(({ outcome, task }) => [outcome, task.attempt])).toEqual([
    ['continued', 1],
    ['continued', 1],
    ['success', 1],
  ]);
  expect(events.of('slice_stopped_early')).toMatchObject([
    {
      task: { id, type: 'paged' },
      on: 'page_read',
      error: { name: 'TypeError', message: 'page 3 is away' },
      fields: { org_id: 'acme', cursor: { page: 3 }, pages_read: 1 },
    },
  ]);
});

test('a handler in a thread has slice budgets, and hears whether a cursor was written', async ({
  db,
  startReplica,
}) => {
  const { events } = await startReplica({ registry: threadedRegistry(threadHandler('tryTwice')) });
  await insertRow(db, { type: 'paged' });
  await wakeReplicas(db);

  const { error } = await events.first('settled');
  // The ceiling is five minutes: no budget reaches up to it.
  expect(JSON.parse(error ?? '')).toEqual({
    answers: [true, false],
    minutes: [1, 5, 0],
    spent: [false, false, true],
  });
});

test('a cursor that cannot leave its thread is an error in the handler', async ({ db, startReplica }) => {
  const { events } = await startReplica({ registry: threadedRegistry(threadHandler('advanceByFunction')) });
  await insertRow(db, { type: 'paged' });
  await wakeReplicas(db);

  expect(await events.first('settled')).toMatchObject({
    outcome: 'failure',
    error: expect.stringContaining('could not be cloned'),
  });
});

test('an error thrown in a thread keeps its name, message, stack and cause', async ({ db, startReplica }) => {
  const { events } = await startReplica({ registry: threadedRegistry(threadHandler('fail')) });
  const id = await insertRow(db, { type: 'threaded' });
  await wakeReplicas(db);

  expect(await events.first('settled')).toMatchObject({
    outcome: 'failure',
    error: 'no such report; caused by: page 7 is missing',
  });
  const { errors } = await rowOf(db, id);
  const stacks = (errors[0] as { stack?: string } | undefined)?.stack?.split('caused by: ');
  expect(stacks).toEqual([
    expect.stringMatching(/^ReportError: no such report\n.*thread-handlers\.mjs/),
    expect.stringMatching(/^TypeError: page 7 is missing\n.*thread-handlers\.mjs/),
  ]);
});

test('SkipRetry in a thread dead-letters at once', async ({ db, startReplica }) => {
  const { events } = await startReplica({ registry: threadedRegistry(threadHandler('skip')) });
  const id = await insertRow(db, { type: 'threaded' });
  await wakeReplicas(db);

  expect(await events.first('settled')).toMatchObject({ outcome: 'failure', error: 'a bad id', dead: true });
  expect(await rowOf(db, id)).toMatchObject({ retired: true, attempt_count: 1 });
});

test('a thread whose handler has returned is ended, whatever timers it keeps', async ({
  db,
  startReplica,
}) => {
  const { events } = await startReplica({
    slots: 1,
    registry: threadedRegistry(threadHandler('leaveTimers')),
  });
  const ids = [await insertRow(db, { type: 'threaded' }), await insertRow(db, { type: 'threaded' })];
  await wakeReplicas(db);

  // One slot: the second starts only when the first one's thread is gone.
  expect(await events.atLeast(2, 'settled')).toMatchObject(
    ids.map((id) => ({ outcome: 'success', task: { id } })),
  );
});
