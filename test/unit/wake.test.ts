import { getEventListeners } from 'node:events';
import { expect, test } from 'vitest';
import { WakeChannel } from '../../src/processor/wake.ts';

/** A waiting slot that writes its name down once it is released. */
function park(wake: WakeChannel, name: string, released: string[], stopping = new AbortController()) {
  const done = wake.wait(stopping.signal).then(() => {
    released.push(name);
  });
  return { stopping, done };
}

/** Every promise that can settle without a timer or I/O has settled when this returns. */
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

test('a signal releases exactly one idle slot, the one waiting longest', async () => {
  const wake = new WakeChannel();
  const released: string[] = [];
  for (const name of ['first', 'second', 'third']) park(wake, name, released);
  expect(wake.idle).toBe(3);

  wake.signal();
  await settled();
  expect(released).toEqual(['first']);
  expect(wake.idle).toBe(2);

  wake.signal();
  await settled();
  expect(released).toEqual(['first', 'second']);
});

test('two signals in the same turn release two slots', async () => {
  const wake = new WakeChannel();
  const released: string[] = [];
  for (const name of ['first', 'second', 'third']) park(wake, name, released);
  wake.signal();
  wake.signal();
  expect(wake.idle).toBe(1);
  await settled();
  expect(released).toEqual(['first', 'second']);
});

test('a slot that waits again queues behind those that wait already', async () => {
  const wake = new WakeChannel();
  const released: string[] = [];
  const first = park(wake, 'first', released);
  park(wake, 'second', released);
  wake.signal();
  await first.done;
  park(wake, 'first again', released);
  wake.signal();
  await settled();
  expect(released).toEqual(['first', 'second']);
});

test('a signal between an empty discovery and the wait is not lost', async () => {
  const wake = new WakeChannel();
  const released: string[] = [];
  const emptyDiscovery = Promise.resolve();
  await emptyDiscovery;
  wake.signal();
  await park(wake, 'slot', released).done;
  expect(released).toEqual(['slot']);
  expect(wake.idle).toBe(0);
});

test('ten signals with no idle slot are remembered once: they release one', async () => {
  const wake = new WakeChannel();
  const released: string[] = [];
  for (let count = 0; count < 10; count++) wake.signal();
  for (const name of ['first', 'second', 'third']) park(wake, name, released);
  await settled();
  expect(released).toEqual(['first']);
  expect(wake.idle).toBe(2);
});

test('a burst cascades: each slot that claims releases the next', async () => {
  const wake = new WakeChannel();
  const released: string[] = [];
  const slots = ['first', 'second', 'third'].map((name) =>
    wake.wait(new AbortController().signal).then(() => {
      released.push(name);
      wake.signal();
    }),
  );
  wake.signal();
  await Promise.all(slots);
  expect(released).toEqual(['first', 'second', 'third']);
});

test('a wait ends without rejecting when its slot is told to stop, before or while waiting', async () => {
  const wake = new WakeChannel();
  await expect(wake.wait(AbortSignal.abort(new Error('stopped')))).resolves.toBeUndefined();

  const released: string[] = [];
  const slot = park(wake, 'slot', released);
  slot.stopping.abort(new Error('stopped'));
  await slot.done;
  expect(released).toEqual(['slot']);
  expect(wake.idle).toBe(0);
});

test('a stopped slot does not swallow a signal meant for another', async () => {
  const wake = new WakeChannel();
  const released: string[] = [];
  const stopped = park(wake, 'stopped', released);
  park(wake, 'waiting', released);
  stopped.stopping.abort();
  wake.signal();
  await settled();
  expect(released).toEqual(['stopped', 'waiting']);
});

test('a slot released and stopped in the same turn passes its signal on', async () => {
  const wake = new WakeChannel();
  const released: string[] = [];
  const stopped = park(wake, 'stopped', released);
  park(wake, 'waiting', released);
  wake.signal();
  stopped.stopping.abort();
  await settled();
  expect(released.toSorted()).toEqual(['stopped', 'waiting']);
});

test('a signal sent while an abort is being told goes past the slots it stops', async () => {
  const wake = new WakeChannel();
  const released: string[] = [];
  const stopping = new AbortController();
  stopping.signal.addEventListener('abort', () => wake.signal());
  park(wake, 'stopped', released, stopping);
  park(wake, 'waiting', released);
  stopping.abort();
  await settled();
  expect(released.toSorted()).toEqual(['stopped', 'waiting']);
  expect(wake.idle).toBe(0);
});

test('a slot that is told to stop leaves a remembered signal for the next one', async () => {
  const wake = new WakeChannel();
  wake.signal();
  await wake.wait(AbortSignal.abort());
  const released: string[] = [];
  await park(wake, 'slot', released).done;
  expect(released).toEqual(['slot']);
});

test('no listener stays on the signal after 10,000 waits, and a thousand slots on one signal warn of no leak', async () => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error) => warnings.push(warning);
  process.on('warning', onWarning);
  try {
    const wake = new WakeChannel();
    const stopping = new AbortController();
    for (let count = 0; count < 10_000; count++) {
      const waited = wake.wait(stopping.signal);
      wake.signal();
      await waited;
    }
    expect(getEventListeners(stopping.signal, 'abort')).toHaveLength(0);

    const slots = Array.from({ length: 1_000 }, () => wake.wait(stopping.signal));
    stopping.abort();
    await Promise.all(slots);
    expect(getEventListeners(stopping.signal, 'abort')).toHaveLength(0);
    await settled();
    expect(warnings).toEqual([]);
  } finally {
    process.off('warning', onWarning);
  }
});
