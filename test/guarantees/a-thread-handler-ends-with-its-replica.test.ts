import { once } from 'node:events';
import { expect, onTestFinished } from 'vitest';
import { test } from '../support/replica.ts';
import { insertRow, rowOf, wakeReplicas } from '../support/rows.ts';
import { threadedRegistry, threadHandler } from '../support/threaded.ts';

test('a handler in a thread that ignores its signal is terminated at the end of the shutdown, and its lease released', async ({
  db,
  startReplica,
}) => {
  const { app, events } = await startReplica({
    abortWait: '300ms',
    registry: threadedRegistry(threadHandler('spin')),
  });
  const started = handlerStarted();
  const id = await insertRow(db, { type: 'threaded' });
  await wakeReplicas(db);
  await started;

  await app.stop();

  expect(events.of('settled')).toMatchObject([{ outcome: 'cancelled', task: { id } }]);
  expect(events.of('handler_abandoned')).toEqual([]);
  // Due at once, for whoever comes next.
  expect(await rowOf(db, id)).toMatchObject({ attempt_count: 1, lease_token: null, last_error: null });
});

test('a handler in a thread that honours its signal has the whole wait of a shutdown', async ({
  db,
  startReplica,
}) => {
  const { app, events } = await startReplica({
    abortWait: '1m',
    registry: threadedRegistry(threadHandler('tidyUpAfterAbort')),
  });
  const started = handlerStarted();
  const id = await insertRow(db, { type: 'threaded' });
  await wakeReplicas(db);
  await started;

  await app.stop();

  expect(events.of('settled')).toMatchObject([{ outcome: 'success', task: { id } }]);
});

test('a handler whose thread was still loading at the shutdown is not begun', async ({
  db,
  startReplica,
}) => {
  const { app, events } = await startReplica({
    abortWait: '1m',
    registry: threadedRegistry(threadHandler('spin')),
  });
  const id = await insertRow(db, { type: 'threaded' });
  await wakeReplicas(db);
  await events.first('claimed');

  // The loop would outlast the minute.
  await app.stop();

  expect(events.of('settled')).toMatchObject([{ outcome: 'cancelled', task: { id } }]);
  expect(await rowOf(db, id)).toMatchObject({ lease_token: null });
});

/** Resolves once a handler of the fixture has said that it runs. */
async function handlerStarted(): Promise<void> {
  const channel = new BroadcastChannel('thread-handlers');
  onTestFinished(() => channel.close());
  await once(channel as unknown as EventTarget, 'message');
}
