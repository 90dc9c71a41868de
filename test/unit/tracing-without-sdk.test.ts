import { expect, test } from 'vitest';
import { type EnqueueCall, type RunCall, traceEnqueue, traceRuns } from '../../src/index.ts';
import type { HandlerEnd } from '../../src/processor/run-middleware.ts';
import { isTracing } from '../../src/tracing/tracer.ts';

// No SDK is registered in this file: what is left of tracing must be a question and an answer.

test('without an SDK there is nothing to trace', () => {
  expect(isTracing()).toBe(false);
});

test('without an SDK an enqueue is passed on as it is', async () => {
  const given: unknown[] = [];
  const call: EnqueueCall = { type: 'plain', queue: 'default', count: 1, headers: {} };
  await traceEnqueue()(call, async (...additions) => {
    given.push(additions);
    return { tasks: undefined };
  });
  expect(given).toEqual([[]]);
});

test('without an SDK a run is passed on, and its headers are not even read', async () => {
  const run = new Proxy({} as RunCall, {
    get() {
      throw new Error('was read');
    },
  });
  let runs = 0;
  await traceRuns()(run, async (): Promise<HandlerEnd> => {
    runs += 1;
    return { kind: 'done', outcome: 'success' };
  });
  expect(runs).toBe(1);
});
