import { expect } from 'vitest';
import { type StartReplica, test } from '../support/replica.ts';
import { backoffOf, findRow, insertRow, makeDue, rowOf, wakeReplicas } from '../support/rows.ts';
import { threadedRegistry, threadHandler } from '../support/threaded.ts';

test('a handler in a thread that ignores its signal is terminated at its deadline: a timeout, and its slot takes the next task', async ({
  db,
  startReplica,
}) => {
  const { app, events } = await startReplica({
    slots: 1,
    registry: threadedRegistry(threadHandler('spin'), { ceiling: '2s' }),
  });
  const id = await insertRow(db, { type: 'threaded' });
  await wakeReplicas(db);
  await events.first('claimed');
  await insertRow(db, { type: 'plain' });
  await wakeReplicas(db);

  expect(await events.atLeast(2, 'settled')).toMatchObject([
    { task: { type: 'threaded', attempt: 1 }, outcome: 'timeout', dead: false },
    { task: { type: 'plain' }, outcome: 'success' },
  ]);
  expect(app.status()).toMatchObject({ busy: 0, overrun: 0 });
  expect(await rowOf(db, id)).toMatchObject({
    attempt_count: 1,
    lease_token: null,
    errors: [{ outcome: 'timeout', message: 'the handler has used up its ceiling' }],
  });
  expect(await backoffOf(db, id)).toBe(15_000);

  // And it runs again, as after any other timeout.
  await makeDue(db, id);
  await wakeReplicas(db);
  const [, , again] = await events.atLeast(3, 'settled');
  expect(again).toMatchObject({ task: { id, attempt: 2 }, outcome: 'timeout' });
});

test('while a handler in a thread computes without a pause, the event loop of the replica is free', async ({
  db,
  startReplica,
}) => {
  const { events } = await startReplica({
    slots: 2,
    registry: threadedRegistry(threadHandler('spin'), { ceiling: '4s' }),
  });
  await insertRow(db, { type: 'threaded' });
  await wakeReplicas(db);
  await events.first('claimed');
  for (let done = 1; done <= 3; done += 1) {
    await insertRow(db, { type: 'plain' });
    await wakeReplicas(db);
    await events.atLeast(done, 'settled', ({ outcome }) => outcome === 'success');
  }

  const settled = await events.atLeast(4, 'settled');
  expect(settled.map(({ outcome }) => outcome)).toEqual(['success', 'success', 'success', 'timeout']);
});

test('a handler in a thread that honours its signal may return right after its deadline', async ({
  db,
  startReplica,
}) => {
  expect(await settledAs('returnAfterAbort', db, startReplica)).toMatchObject({ outcome: 'success' });
});

test('an error from a thread that carries the reason of its abort is a timeout', async ({
  db,
  startReplica,
}) => {
  expect(await settledAs('throwTheReason', db, startReplica)).toMatchObject({
    outcome: 'timeout',
    error: 'gave up; caused by: the handler has used up its ceiling',
  });
});

test('a loop that never yields in a thread sees its signal abort', async ({ db, startReplica }) => {
  expect(await settledAs('spinUntilAborted', db, startReplica)).toMatchObject({ outcome: 'success' });
});

test('a loop that never yields in a thread sees how much time remains', async ({ db, startReplica }) => {
  expect(await settledAs('spinUntilTimeIsUp', db, startReplica)).toMatchObject({ outcome: 'success' });
});

type Db = Parameters<typeof insertRow>[0];

async function settledAs(exportName: string, db: Db, startReplica: StartReplica) {
  const registry = threadedRegistry(threadHandler(exportName), { ceiling: '3s' });
  const { events } = await startReplica({ slots: 1, registry });
  const id = await insertRow(db, { type: 'threaded' });
  await wakeReplicas(db);
  const settled = await events.first('settled');
  if (settled.outcome === 'success') expect(await findRow(db, id)).toBeUndefined();
  return settled;
}
