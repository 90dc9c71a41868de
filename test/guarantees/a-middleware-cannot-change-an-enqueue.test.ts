import { AsyncLocalStorage } from 'node:async_hooks';
import { makeEnqueue, enqueue as withoutMiddleware } from '../../generated/tasks.ts';
import {
  createEnqueuer,
  type EnqueueCall,
  type EnqueueMiddleware,
  type EnqueuerOptions,
} from '../../src/index.ts';
import { allRows } from '../support/rows.ts';
import { recordStatements } from '../support/statements.ts';
import { testTasks } from '../support/tasks.ts';
import { expect, onTestFinished, test, vi } from '../support/test.ts';

/** An enqueuer with the middleware, and what they threw. */
function enqueuerWith(middleware: readonly EnqueueMiddleware[], options: EnqueuerOptions = {}) {
  const errors: unknown[] = [];
  const onMiddlewareError = (error: unknown) => errors.push(error);
  return { errors, ...createEnqueuer(testTasks, { middleware, onMiddlewareError, ...options }) };
}

const header =
  (name: string, value: string): EnqueueMiddleware =>
  (_call, next) =>
    next({ headers: { [name]: value } });

test('middleware run around the enqueue, the first outermost, and see the call', async ({ db }) => {
  const seen: unknown[] = [];
  const noting =
    (name: string): EnqueueMiddleware =>
    async (call, next) => {
      seen.push([name, call]);
      await next({ headers: { [name]: 'added' } });
      seen.push([name, 'after', (await allRows(db)).length]);
    };
  const { enqueue } = enqueuerWith([noting('outer'), noting('inner')]);

  await enqueue(db, 'fragile', {}, { headers: { given: 'g' } });

  const call = { type: 'fragile', queue: 'fragile', count: 1 };
  expect(seen).toEqual([
    ['outer', { ...call, headers: { given: 'g' } }],
    ['inner', { ...call, headers: { given: 'g', outer: 'added' } }],
    ['inner', 'after', 1],
    ['outer', 'after', 1],
  ]);
});

test('a call says how many tasks it is about, and a stream that it does not know', async ({ db }) => {
  const calls: EnqueueCall[] = [];
  const { enqueue, enqueueMany } = enqueuerWith([
    (call, next) => {
      calls.push(call);
      return next();
    },
  ]);
  await enqueue(db, 'plain', {}, { queue: 'low' });
  await enqueueMany(db, 'plain', [{}, {}, {}]);
  await db.transaction().execute((tx) => enqueueMany(tx, 'plain', new Set([{}])));
  expect(calls.map(({ queue, count }) => [queue, count])).toEqual([
    ['low', 1],
    ['default', 3],
    ['default', undefined],
  ]);
});

test('headers that are added are on every task, and those that the caller gives win', async ({ db }) => {
  const { enqueue, enqueueMany, errors } = enqueuerWith([
    header('traceparent', 'from the middleware'),
    header('tenant', 'from the middleware'),
  ]);
  const headers = { tenant: 'from the caller' };
  const expected = { traceparent: 'from the middleware', tenant: 'from the caller' };

  await enqueue(db, 'plain', {}, { headers });
  await enqueueMany(db, 'plain', [{}, {}], { headers });
  await enqueue(db, 'plain', {}, { headers, unique: { while: 'live' } });
  await db.transaction().execute((tx) => enqueueMany(tx, 'plain', new Set([{}]), { headers }));

  expect((await allRows(db)).map((row) => row['headers'])).toEqual(Array.from({ length: 5 }, () => expected));
  expect(headers).toEqual({ tenant: 'from the caller' });
  expect(errors).toEqual([]);
});

const oops = new Error('oops');
const CONTAINED: Record<string, { middleware: EnqueueMiddleware; told: unknown[] }> = {
  'throws before next': { middleware: async () => Promise.reject(oops), told: [oops] },
  'throws before next, not even asynchronously': {
    middleware: () => {
      throw oops;
    },
    told: [oops],
  },
  'throws undefined': { middleware: () => Promise.reject(undefined), told: [undefined] },
  'throws after next': {
    middleware: async (_call, next) => {
      await next();
      throw oops;
    },
    told: [oops],
  },
  'throws without awaiting next': {
    middleware: async (_call, next) => {
      void next();
      throw oops;
    },
    told: [oops],
  },
  'does not call next': { middleware: async () => {}, told: [] },
  'is not asynchronous': { middleware: (() => undefined) as never, told: [] },
  'calls next twice': {
    middleware: async (_call, next) => {
      await Promise.all([next(), next()]);
      await next();
    },
    told: [],
  },
  'does not await next': {
    middleware: async (_call, next) => {
      void next();
    },
    told: [],
  },
  'calls next too late': {
    middleware: async (_call, next) => {
      setImmediate(next);
    },
    told: [],
  },
  'gives headers that cannot be stored': {
    middleware: (_call, next) => next({ headers: { bad: 5 as never } }),
    told: [expect.objectContaining({ code: 'OPTION_INVALID', message: expect.stringContaining("'bad'") })],
  },
  'gives nothing that it may give': {
    middleware: (_call, next) => next(null as never),
    told: [expect.any(TypeError)],
  },
  'writes on the call': {
    middleware: async (call, next) => {
      (call.headers as Record<string, string>)['bad'] = 'written';
      await next();
    },
    told: [expect.any(TypeError)],
  },
};

test.for(Object.entries(CONTAINED))(
  'a middleware that %s neither stops nor repeats the enqueue, nor the others',
  async ([, { middleware, told }], { db }) => {
    const { enqueue, errors } = enqueuerWith([header('outer', 'o'), middleware, header('inner', 'i')]);

    const { id, status } = await enqueue(db, 'plain', { n: 1 });
    await new Promise(setImmediate);

    expect(status).toBe('enqueued');
    const rows = await allRows(db);
    expect(rows.map((row) => [String(row['id']), row['headers']])).toEqual([
      [id, { outer: 'o', inner: 'i' }],
    ]);
    expect(errors).toEqual(told);
  },
);

test('an error of the enqueue is seen by every middleware, and reaches the caller unchanged whatever they do', async ({
  db,
}) => {
  const seen: unknown[] = [];
  const swallowing: EnqueueMiddleware = async (_call, next) => {
    await next().catch((error: unknown) => seen.push(error));
  };
  const replacing: EnqueueMiddleware = async (_call, next) => {
    await next().catch((error: unknown) => {
      seen.push(error);
      throw oops;
    });
  };
  const passing: EnqueueMiddleware = (_call, next) => next().finally(() => seen.push('passed'));
  const ignoring: EnqueueMiddleware = async (_call, next) => {
    void next();
  };
  const { enqueue, errors } = enqueuerWith([swallowing, passing, replacing, ignoring]);

  const thrown = await enqueue(db, 'plain', { n: 0.5 }).catch((error: unknown) => error);

  expect(thrown).toMatchObject({ code: 'PAYLOAD_INVALID' });
  expect(seen).toEqual([thrown, 'passed', thrown]);
  expect(seen[0]).toBe(thrown);
  // What is passed on is the enqueue's own error, and no fault of the middleware.
  expect(errors).toEqual([oops]);
});

test('a database error reaches the caller as it is, and a conflict as TASK_EXISTS', async ({ db }) => {
  const { enqueue, errors } = enqueuerWith([(_call, next) => next()]);
  const { enqueue: misplaced } = enqueuerWith([(_call, next) => next()], { schema: 'elsewhere' });
  await expect(misplaced(db, 'plain', {})).rejects.toMatchObject({ code: '42P01' });
  const unique = { key: 'k', while: 'live', onConflict: 'error' } as const;
  await enqueue(db, 'plain', {}, { unique });
  await expect(enqueue(db, 'plain', {}, { unique })).rejects.toMatchObject({ code: 'TASK_EXISTS' });
  expect(errors).toEqual([]);
});

test('options and task types are checked before any middleware runs', async ({ db }) => {
  const middleware = vi.fn<EnqueueMiddleware>((_call, next) => next());
  const { enqueue, enqueueMany } = enqueuerWith([middleware]);
  await expect(enqueue(db, 'plain', {}, { timeout: '1h' })).rejects.toMatchObject({ code: 'OPTION_INVALID' });
  await expect(enqueue(db, 'nothing' as never, {} as never)).rejects.toMatchObject({
    code: 'UNKNOWN_TASK_TYPE',
  });
  await expect(enqueueMany(db, 'plain', 'text' as never)).rejects.toMatchObject({ code: 'OPTION_INVALID' });
  expect(middleware).not.toHaveBeenCalled();
});

test('the statement is sent in the asynchronous context of the middleware', async ({ db }) => {
  const storage = new AsyncLocalStorage<string>();
  const contexts: unknown[] = [];
  const { enqueue } = enqueuerWith([
    (_call, next) => storage.run('span', next),
    (_call, next) => {
      contexts.push(storage.getStore());
      return next();
    },
  ]);
  await enqueue(db, 'plain', {});
  expect(contexts).toEqual(['span']);
  expect(storage.getStore()).toBeUndefined();
});

test('with a middleware an enqueue still sends one statement', async ({ db }) => {
  const { enqueue } = enqueuerWith([header('a', 'b')]);
  await allRows(db);
  const sent = recordStatements();
  await enqueue(db, 'plain', {});
  expect(sent.all).toHaveLength(1);
});

test('by default a middleware that throws is a warning of the process, with a code', async ({ db }) => {
  const warnings: Error[] = [];
  const note = (warning: Error) => warnings.push(warning);
  process.on('warning', note);
  onTestFinished(() => void process.off('warning', note));
  const { enqueue } = createEnqueuer(testTasks, { middleware: [async () => Promise.reject(oops)] });

  await enqueue(db, 'plain', {});
  await new Promise(setImmediate);

  expect(warnings).toMatchObject([
    { name: 'TaskqWarning', code: 'TASKQ_ENQUEUE_MIDDLEWARE', message: 'an enqueue middleware failed: oops' },
  ]);
});

test('an error handler that throws costs no enqueue either', async ({ db }) => {
  const warnings: Error[] = [];
  const note = (warning: Error) => warnings.push(warning);
  process.on('warning', note);
  onTestFinished(() => void process.off('warning', note));
  const { enqueue } = enqueuerWith([async () => Promise.reject(oops)], {
    onMiddlewareError() {
      throw new Error('the log is full');
    },
  });

  expect(await enqueue(db, 'plain', {})).toMatchObject({ status: 'enqueued' });
  await new Promise(setImmediate);

  expect(warnings).toMatchObject([{ message: 'an enqueue middleware failed: the log is full' }]);
});

test('the generated module makes enqueue functions with middleware, and its own have none', async ({
  db,
}) => {
  const { enqueue } = makeEnqueue({ middleware: [header('traceparent', 'added')] });
  const payload = { stackId: '3c1f0f3e-5a52-4d53-9d0c-1c9cbb3f3c4e' };

  await enqueue(db, 'explore_purge', payload);
  await withoutMiddleware(db, 'explore_purge', payload);

  expect((await allRows(db)).map((row) => row['headers'])).toEqual([{ traceparent: 'added' }, {}]);
});

test('a middleware that is no function is refused when the enqueuer is made', () => {
  for (const middleware of [[undefined], ['log'], 'log', [header('a', 'b'), {}]]) {
    expect(() => createEnqueuer(testTasks, { middleware: middleware as never })).toThrow(
      expect.objectContaining({ code: 'CONFIG_INVALID' }),
    );
  }
});
