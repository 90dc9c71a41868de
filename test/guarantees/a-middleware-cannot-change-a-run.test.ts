import { AsyncLocalStorage } from 'node:async_hooks';
import type { Kysely } from 'kysely';
import { describe, expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import {
  createApp,
  type HandlerEnd,
  type HandlersFor,
  type RunCall,
  type RunMiddleware,
  SkipRetry,
} from '../../src/index.ts';
import { gate, type StartReplica, test } from '../support/replica.ts';
import { findRow, insertRow, lapseLease, wakeReplicas } from '../support/rows.ts';
import { handlersFor, type TestTasks } from '../support/tasks.ts';
import { threadedRegistry, threadHandler } from '../support/threaded.ts';

const passing: RunMiddleware = async (_run, next) => void (await next());

test('middleware runs around the handler in its order, the first one outermost', async ({
  db,
  startReplica,
}) => {
  const steps: string[] = [];
  const named =
    (name: string): RunMiddleware =>
    async (_run, next) => {
      steps.push(`${name} before`);
      await next();
      steps.push(`${name} after`);
    };
  const { events } = await runPlain(db, startReplica, [named('outer'), named('inner')], async () => {
    steps.push('handler');
  });

  expect(await events.first('settled')).toMatchObject({ outcome: 'success' });
  expect(steps).toEqual(['outer before', 'inner before', 'handler', 'inner after', 'outer after']);
});

test('a middleware is told the task, its headers, how long it waited, and has the signal of the handler', async ({
  db,
  startReplica,
}) => {
  const [told, given] = [gate<RunCall>(), gate<AbortSignal>()];
  const middleware: RunMiddleware = async (run, next) => {
    told.open(run);
    await next();
  };
  const { id } = await runPlain(db, startReplica, [middleware], async (_payload, { signal }) =>
    given.open(signal),
  );

  const run = await told.promise;
  expect(run).toEqual({
    task: { id, type: 'plain', queue: 'default', attempt: 1, maxAttempts: 20 },
    headers: {},
    enqueuedAt: expect.any(Date),
    waitedMs: expect.any(Number),
    signal: await given.promise,
  });
  // The row has been due for a minute.
  expect(run.waitedMs).toBeGreaterThanOrEqual(60_000);
});

test('a context that a middleware opens is there in the handler', async ({ db, startReplica }) => {
  const context = new AsyncLocalStorage<string>();
  const seen = gate<string | undefined>();
  const opening: RunMiddleware = async ({ task }, next) =>
    context.run(`run of ${task.type}`, async () => void (await next()));
  await runPlain(db, startReplica, [opening, passing], async () => seen.open(context.getStore()));

  expect(await seen.promise).toBe('run of plain');
});

describe('what a middleware does around next', () => {
  const broken: Record<string, RunMiddleware> = {
    'throws before it': async () => {
      throw new Error('no metrics today');
    },
    'throws after it': async (_run, next) => {
      await next();
      throw new Error('no metrics today');
    },
    'throws while it is under way': async (_run, next) => {
      void next();
      throw new Error('no metrics today');
    },
    'throws without being async': () => {
      throw new Error('no metrics today');
    },
  };

  for (const [what, middleware] of Object.entries(broken)) {
    test(`a middleware that ${what} is reported, and the task runs once and is done`, async ({
      db,
      startReplica,
    }) => {
      let runs = 0;
      const { events, id } = await runPlain(db, startReplica, [passing, middleware, passing], async () => {
        runs += 1;
      });

      expect(await events.first('settled')).toMatchObject({ outcome: 'success', task: { attempt: 1 } });
      expect(events.of('middleware_failed')).toMatchObject([
        { task: { id, type: 'plain' }, error: { message: 'no metrics today' } },
      ]);
      expect(runs).toBe(1);
      expect(await findRow(db, id)).toBeUndefined();
    });
  }

  const odd: Record<string, RunMiddleware> = {
    'never calls it': async () => {},
    'calls it twice': async (_run, next) => {
      const [first, second] = await Promise.all([next(), next()]);
      if (first !== second) throw new Error('two answers');
    },
    'does not wait for it': async (_run, next) => void next(),
  };

  for (const [what, middleware] of Object.entries(odd)) {
    test(`with a middleware that ${what}, the handler runs once`, async ({ db, startReplica }) => {
      let runs = 0;
      const { events } = await runPlain(db, startReplica, [middleware, passing], async () => {
        runs += 1;
      });

      expect(await events.first('settled')).toMatchObject({ outcome: 'success' });
      expect(runs).toBe(1);
      expect(events.of('middleware_failed')).toEqual([]);
    });
  }
});

describe('next answers how the handler ended, and never rejects', () => {
  const endings = {
    done: { handler: async () => 'done' as const, outcome: 'success', end: { kind: 'done' } },
    'a failure': {
      handler: async () => {
        throw new Error('no such stack');
      },
      outcome: 'failure',
      end: { kind: 'threw', error: { message: 'no such stack' } },
    },
    SkipRetry: {
      handler: async () => {
        throw new SkipRetry('a bad id');
      },
      outcome: 'failure',
      end: { kind: 'threw', error: { name: 'SkipRetry' } },
    },
    nonsense: {
      handler: async () => 'finished' as never,
      outcome: 'failure',
      end: { kind: 'threw', error: { name: 'TypeError' } },
    },
  };

  for (const [name, { handler, outcome, end }] of Object.entries(endings)) {
    test(name, async ({ db, startReplica }) => {
      const answered = gate<HandlerEnd>();
      const middleware: RunMiddleware = async (_run, next) => answered.open(await next());
      const { events } = await runPlain(db, startReplica, [middleware], handler);

      expect(await answered.promise).toMatchObject(end);
      expect(await events.first('settled')).toMatchObject({ outcome });
      expect(events.of('middleware_failed')).toEqual([]);
    });
  }
});

test('a lease that was lost while the handler ran is no error of its middleware', async ({
  db,
  startReplica,
}) => {
  const [started, lapsed] = [gate(), gate()];
  const { events, id } = await runPlain(db, startReplica, [passing], async () => {
    started.open();
    await lapsed.promise;
  });
  await started.promise;
  await lapseLease(db, id);
  await db.updateTable('async_tasks').set({ lease_token: null, lease_expires_at: null }).execute();
  lapsed.open();

  expect(await events.first('settled', ({ outcome }) => outcome === 'lost')).toBeDefined();
  expect(events.of('middleware_failed')).toEqual([]);
});

test('a middleware that hangs after next holds the slot, and the run is still what the handler made of it', async ({
  db,
  startReplica,
}) => {
  const [ended, release] = [gate(), gate()];
  const hanging: RunMiddleware = async (_run, next) => {
    await next();
    ended.open();
    await release.promise;
  };
  const { events, app } = await startReplica({ slots: 1, middleware: [hanging] });
  const id = await insertRow(db, { type: 'brief' });
  await wakeReplicas(db);
  await ended.promise;
  expect(app.status()).toMatchObject({ busy: 1 });

  // Past the ceiling of one second: the handler was in time, whatever stands around it.
  await expect.poll(() => app.status().overrun, { timeout: 10_000 }).toBe(1);
  release.open();

  const settled = await events.first('settled');
  expect(settled).toMatchObject({ outcome: 'success', task: { id } });
  expect(settled.ranMs).toBeLessThan(1_000);
});

test('a task that poison or a late claim keeps from running meets no middleware', async ({
  db,
  startReplica,
}) => {
  let calls = 0;
  const counting: RunMiddleware = async (_run, next) => {
    calls += 1;
    await next();
  };
  const { events } = await startReplica({ middleware: [counting] });
  await insertRow(db, { payload: { n: 'one' } });
  await wakeReplicas(db);

  expect(await events.first('settled')).toMatchObject({ outcome: 'failure', dead: true });
  expect(calls).toBe(0);
});

test('middleware stands around the run of a thread too', async ({ db, startReplica }) => {
  const answered = gate<HandlerEnd>();
  const { events } = await startReplica({
    registry: threadedRegistry(threadHandler('fail')),
    middleware: [async (_run, next) => answered.open(await next())],
  });
  await insertRow(db, { type: 'threaded' });
  await wakeReplicas(db);

  expect(await answered.promise).toMatchObject({ kind: 'threw', error: { message: 'no such report' } });
  expect(await events.first('settled')).toMatchObject({ outcome: 'failure' });
});

test('middleware that is no function is refused by name before anything starts', () => {
  const options = { database: 'postgres://localhost/none', handlers: handlersFor() };
  expect(() => createApp({ ...options, middleware: [passing, 'tracing' as never] })).toThrow(
    expect.objectContaining({ code: 'CONFIG_INVALID', message: expect.stringContaining('middleware') }),
  );
});

async function runPlain(
  db: Kysely<DB>,
  startReplica: StartReplica,
  middleware: readonly RunMiddleware[],
  plain: HandlersFor<TestTasks>['plain'],
) {
  const replica = await startReplica({ slots: 1, middleware, handlers: { plain } });
  const id = await insertRow(db);
  await wakeReplicas(db);
  return { ...replica, id };
}
