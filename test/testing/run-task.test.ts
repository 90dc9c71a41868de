import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { createRegistry, defineTask, queryExecutor, SkipRetry, TaskqError } from '../../src/index.ts';
import { runTask } from '../../src/testing/index.ts';
import { handlersFor } from '../support/tasks.ts';

const everything = defineTask({
  type: 'everything',
  queue: 'special',
  payload: z.object({
    at: z.date(),
    big: z.bigint(),
    text: z.string(),
    tags: z.array(z.string()).default(['none']),
  }),
  ceiling: '1m',
  heartbeat: '1s',
});
const tasks = { everything: { definition: everything, revision: 3 } };

describe('the payload', () => {
  test('is encoded, decoded and parsed on its way to the handler', async () => {
    const given = { at: new Date('2026-01-31T12:00:00Z'), big: 12345678901234567890n, text: 'a\0b' };
    const received: unknown[] = [];
    const handlers = createRegistry(tasks, { everything: async (payload) => void received.push(payload) });

    const run = await runTask(handlers, 'everything', given);

    expect(run).toMatchObject({ result: 'done', error: undefined });
    expect(received).toEqual([{ ...given, tags: ['none'] }]);
    expect((received[0] as typeof given).at).not.toBe(given.at);
  });

  test('that an enqueue would refuse is refused before the handler runs', async () => {
    const handlers = handlersFor({ plain: () => expect.unreachable() });

    await expect(runTask(handlers, 'plain', { n: 1.5 })).rejects.toMatchObject({
      code: 'PAYLOAD_INVALID',
      message: expect.stringContaining('payload.n'),
    });
    const anything = defineTask({ type: 'anything', payload: z.any(), ceiling: '1m' });
    const registry = createRegistry(
      { anything: { definition: anything, revision: 1 } },
      { anything: () => expect.unreachable() },
    );
    await expect(runTask(registry, 'anything', new Map())).rejects.toMatchObject({
      code: 'PAYLOAD_UNSTORABLE',
    });
  });

  test('whose second parse fails is poison: a dead letter, the handler not started', async () => {
    let parses = 0;
    const once = z.string().refine(() => ++parses === 1, 'only once');
    const definition = defineTask({ type: 'moody', payload: once, ceiling: '1m' });
    const handlers = createRegistry(
      { moody: { definition, revision: 1 } },
      { moody: () => expect.unreachable() },
    );

    const run = await runTask(handlers, 'moody', 'x');

    expect(run).toMatchObject({
      result: 'error',
      outcome: 'failure',
      dead: true,
      settlement: { kind: 'retire' },
    });
    expect(String(run.error)).toContain('only once');
  });
});

test('the context is what the options say, and otherwise that of a first run', async () => {
  const contexts: unknown[] = [];
  const handlers = createRegistry(tasks, {
    everything: async (_payload, { type, queue, attempt, maxAttempts, headers, remainingMs }) => {
      contexts.push({ type, queue, attempt, maxAttempts, headers, almostAMinute: remainingMs() > 50_000 });
    },
  });
  const payload = { at: new Date(), big: 1n, text: '' };

  await runTask(handlers, 'everything', payload);
  await runTask(handlers, 'everything', payload, { attempt: 4, maxAttempts: 5, headers: { trace: 'abc' } });

  const same = { type: 'everything', queue: 'special', almostAMinute: true };
  expect(contexts).toEqual([
    { ...same, attempt: 1, maxAttempts: 20, headers: {} },
    { ...same, attempt: 4, maxAttempts: 5, headers: { trace: 'abc' } },
  ]);
});

test('an attempt beyond the limit, a cursor of a type that has none and an unknown type are refused', async () => {
  const handlers = handlersFor();

  await expect(runTask(handlers, 'fragile', {}, { attempt: 4 })).rejects.toThrow(
    /from 1 to 3 \(maxAttempts\)/,
  );
  // @ts-expect-error the type has no cursor
  await expect(runTask(handlers, 'plain', {}, { cursor: { page: 1 } })).rejects.toThrow(/has no cursor/);
  // @ts-expect-error there is no such type
  await expect(runTask(handlers, 'plane', {})).rejects.toThrow(
    "no handler is registered for the task type 'plane'; there are brief, fragile, plain, sliced",
  );
});

describe('the settlement is the one that a processor would write', () => {
  const failure = new Error('no connection', { cause: new Error('refused') });

  test('done: dequeued', async () => {
    expect(await runTask(handlersFor(), 'plain', {})).toEqual({
      result: 'done',
      error: undefined,
      cursor: undefined,
      completed: false,
      keptResult: undefined,
      outcome: 'success',
      settlement: { kind: 'dequeue' },
      dead: false,
    });
  });

  test('a failure: recorded, with the backoff of its attempt, and dead on the last', async () => {
    const handlers = handlersFor({
      fragile: () => {
        throw failure;
      },
    });

    const second = await runTask(handlers, 'fragile', {}, { attempt: 2 });
    const last = await runTask(handlers, 'fragile', {}, { attempt: 3 });

    expect(second).toMatchObject({ result: 'error', outcome: 'failure', dead: false });
    expect(second.error).toBe(failure);
    expect(second.settlement).toMatchObject({
      kind: 'record_failure',
      backoffMs: 4_000,
      failure: { attempt: 2, outcome: 'failure', message: 'no connection; caused by: refused' },
    });
    expect(last).toMatchObject({ outcome: 'failure', dead: true });
  });

  test('SkipRetry: retired at once', async () => {
    const handlers = handlersFor({
      plain: () => {
        throw new SkipRetry('no such stack');
      },
    });

    expect(await runTask(handlers, 'plain', {})).toMatchObject({
      result: 'error',
      outcome: 'failure',
      dead: true,
      settlement: { kind: 'retire', failure: { message: 'no such stack' } },
    });
  });

  test('an answer that no handler may give: a failure that says so', async () => {
    const handlers = handlersFor({ plain: () => 'dnoe' as never });

    const run = await runTask(handlers, 'plain', {});

    expect(run).toMatchObject({
      result: 'error',
      outcome: 'failure',
      settlement: { kind: 'record_failure' },
    });
    expect(String(run.error)).toMatch(/neither nothing, 'done' nor 'continue'/);
  });
});

describe('a slice', () => {
  const handlers = handlersFor({
    async sliced({ pages }, { cursor, advanceCursor }) {
      const page = cursor?.page ?? 0;
      if (page === pages) return 'done';
      await advanceCursor({ page: page + 1 });
      return 'continue';
    },
  });

  test('begins at the cursor given and answers the one it saved', async () => {
    const first = await runTask(handlers, 'sliced', { pages: 2 });
    expect(first).toMatchObject({
      result: 'continue',
      cursor: { page: 1 },
      outcome: 'continued',
      dead: false,
    });

    const second = await runTask(handlers, 'sliced', { pages: 2 }, { cursor: { page: 1 } });
    expect(second).toMatchObject({ result: 'continue', cursor: { page: 2 } });

    const third = await runTask(handlers, 'sliced', { pages: 2 }, { cursor: { page: 2 } });
    expect(third).toMatchObject({ result: 'done', cursor: undefined, outcome: 'success' });
  });

  test('has the progress given and answers the one it saved', async () => {
    const counting = handlersFor({
      async sliced(_payload, { progress, advanceCursor }) {
        await advanceCursor({ page: 1 }, { done: (progress?.done ?? 0) + 10 });
        return 'continue' as const;
      },
    });

    expect(await runTask(counting, 'sliced', { pages: 2 })).toMatchObject({ progress: { done: 10 } });
    expect(
      await runTask(counting, 'sliced', { pages: 2 }, { progress: { done: 10, total: 30 } }),
    ).toMatchObject({ progress: { done: 20 } });
  });

  test('whose lease is lost cannot save, and its run is lost', async () => {
    const run = await runTask(handlers, 'sliced', { pages: 2 }, { leaseLost: true });

    expect(run).toMatchObject({ result: 'error', cursor: undefined, outcome: 'lost', dead: false });
    expect(run.error).toMatchObject({ code: 'LEASE_LOST' });
  });

  test('that is done after it has advanced is lost, as its row is another worker’s by then', async () => {
    const eager = handlersFor({
      async sliced(_payload, { advanceCursor }) {
        await advanceCursor({ page: 1 });
        return 'done' as const;
      },
    });

    expect(await runTask(eager, 'sliced', { pages: 2 })).toMatchObject({
      result: 'done',
      cursor: { page: 1 },
      outcome: 'lost',
      settlement: { kind: 'dequeue' },
    });
  });
});

describe('middleware', () => {
  const handlers = handlersFor({ plain: async () => 'done' });

  test('stands around the handler as in a replica', async () => {
    const ends: unknown[] = [];
    const run = await runTask(
      handlers,
      'plain',
      {},
      {
        middleware: [async ({ task }, next) => ends.push(task.type, await next())],
      },
    );

    expect(run).toMatchObject({ result: 'done', outcome: 'success' });
    expect(ends).toEqual(['plain', { kind: 'done', outcome: 'success' }]);
  });

  test('that throws is heard of', async () => {
    const broken = async () => Promise.reject(new Error('no metrics today'));
    await expect(runTask(handlers, 'plain', {}, { middleware: [broken] })).rejects.toThrow(
      'no metrics today',
    );
  });
});

describe('what a handler gives context.result', () => {
  const value = { at: new Date('2026-01-31T12:00:00Z'), rows: [1, 2] };
  const handlers = handlersFor({ plain: async (_payload, { result }) => result(value) });

  test('is what the record would hold', async () => {
    const run = await runTask(handlers, 'plain', {}, { isKept: true });

    expect(run.keptResult).toEqual(value);
    expect(run.keptResult).not.toBe(value);
  });

  test('is dropped when no record would be written', async () => {
    expect((await runTask(handlers, 'plain', {})).keptResult).toBeUndefined();
    const lost = await runTask(handlers, 'plain', {}, { isKept: true, leaseLost: true });
    expect(lost).toMatchObject({ outcome: 'lost', keptResult: undefined });
  });

  test('is kept as the type says', async () => {
    const definition = defineTask({ type: 'kept', payload: z.object({}), ceiling: '1m', retention: '1d' });
    const registry = createRegistry(
      { kept: { definition, revision: 1 } },
      { kept: async (_payload, { result }) => result('by its type') },
    );

    expect((await runTask(registry, 'kept', {})).keptResult).toBe('by its type');
    expect((await runTask(registry, 'kept', {}, { isKept: false })).keptResult).toBeUndefined();
  });

  test('is refused as in production', async () => {
    const tooMuch = handlersFor({ plain: async (_payload, { result }) => result('x'.repeat(70_000)) });

    expect(await runTask(tooMuch, 'plain', {})).toMatchObject({
      result: 'error',
      error: { code: 'RESULT_TOO_LARGE' },
    });
  });
});

describe('a handler that completes in its own transaction', () => {
  const transaction = queryExecutor(() => expect.unreachable('nothing is sent'));

  test('has succeeded when it returns', async () => {
    const handlers = handlersFor({ plain: (_payload, { complete }) => complete(transaction) });

    expect(await runTask(handlers, 'plain', {})).toMatchObject({ completed: true, outcome: 'success' });
  });

  test('keeps the result that it gave before', async () => {
    const handlers = handlersFor({
      async plain(_payload, { complete, result }) {
        result('in time');
        await complete(transaction);
        result('too late');
      },
    });

    expect((await runTask(handlers, 'plain', {}, { isKept: true })).keptResult).toBe('in time');
  });

  test('has failed when it throws, its transaction rolled back', async () => {
    const handlers = handlersFor({
      async plain(_payload, { complete }) {
        await complete(transaction);
        throw new Error('could not commit');
      },
    });

    expect(await runTask(handlers, 'plain', {})).toMatchObject({
      completed: false,
      outcome: 'failure',
      settlement: { kind: 'record_failure', failure: { message: 'could not commit' } },
    });
  });

  test('is told when its lease is lost', async () => {
    const handlers = handlersFor({ plain: (_payload, { complete }) => complete(transaction) });

    const run = await runTask(handlers, 'plain', {}, { leaseLost: true });

    expect(run).toMatchObject({ completed: false, outcome: 'lost', error: { code: 'LEASE_LOST' } });
  });
});

describe('a signal', () => {
  /** Runs a handler that waits for its signal, and aborts the test's own once it does. */
  async function interrupted(options: { interruptedBy?: 'shutdown' | 'deadline'; attempt?: number }) {
    const controller = new AbortController();
    const handlers = handlersFor({
      fragile: (_payload, { signal, remainingMs }) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () =>
            reject(Object.assign(signal.reason, { left: remainingMs() })),
          );
          controller.abort();
        }),
    });
    return runTask(handlers, 'fragile', {}, { ...options, signal: controller.signal });
  }

  test('interrupts the handler as a shutdown does', async () => {
    const run = await interrupted({});

    expect(run).toMatchObject({ outcome: 'cancelled', dead: false, settlement: { kind: 'release' } });
    expect(run.error).toBeInstanceOf(TaskqError);
    expect(run.error).toMatchObject({ code: 'SHUTDOWN' });
    expect(await interrupted({ attempt: 3 })).toMatchObject({ outcome: 'cancelled', dead: true });
  });

  test('interrupts the handler as its deadline does', async () => {
    const run = await interrupted({ interruptedBy: 'deadline' });

    expect(run).toMatchObject({
      outcome: 'timeout',
      settlement: { kind: 'record_failure', backoffMs: 2_000 },
    });
    expect(run.error).toMatchObject({ code: 'DEADLINE_REACHED', left: 0 });
  });

  test('that has aborted before starts no handler', async () => {
    const handlers = handlersFor({ plain: () => expect.unreachable() });
    const signal = AbortSignal.abort();

    const stopped = await runTask(handlers, 'plain', {}, { signal });
    const late = await runTask(handlers, 'plain', {}, { signal, interruptedBy: 'deadline' });

    expect(stopped).toMatchObject({ result: 'error', outcome: 'cancelled' });
    expect(late).toMatchObject({ result: 'error', outcome: 'timeout' });
  });
});
