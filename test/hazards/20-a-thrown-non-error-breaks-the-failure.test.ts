import { z } from 'zod';
import { createEnqueuer, createRegistry, defineTask } from '../../src/index.ts';
import { test } from '../support/replica.ts';
import { allRows, backoffOf, insertRow, rowOf } from '../support/rows.ts';
import { expect } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';
import { startWorkerProcess } from '../support/worker-process.ts';

// Hazard 20: a handler throws something that is not an Error, and recording the failure fails.

const unreadableMessage = Object.defineProperty(new Error('x'), 'message', {
  get: () => {
    throw new Error('the getter');
  },
});
const unreadableText = {
  toString: () => {
    throw new Error('toString');
  },
};

const THROWN: readonly (readonly [what: string, fail: () => unknown])[] = [
  ['undefined', () => rethrow(undefined)],
  ['null', () => rethrow(null)],
  ['text', () => rethrow('text')],
  ['42', () => rethrow(42)],
  ['a symbol', () => rethrow(Symbol('x'))],
  ['an empty object', () => rethrow({})],
  ['an object without a prototype', () => rethrow(Object.create(null))],
  ['a function', () => rethrow(() => 1)],
  ['an empty rejection', () => Promise.reject()],
  ['an Error without a message', () => rethrow(new Error(''))],
  ['an Error whose message getter throws', () => rethrow(unreadableMessage)],
  ['an object whose toString throws', () => rethrow(unreadableText)],
  ['a frozen Error', () => rethrow(Object.freeze(new Error('frozen')))],
  ['a DOMException AbortError', () => rethrow(new DOMException('gone', 'AbortError'))],
  ['an AggregateError', () => rethrow(new AggregateError([new Error('one'), 'two'], 'several'))],
];

function rethrow(value: unknown): never {
  throw value;
}

test('whatever is thrown is one ordinary failure, and the slot takes the next task at once', async ({
  db,
  startReplica,
}) => {
  const definition = defineTask({ type: 'throws', payload: z.object({ which: z.number() }), ceiling: '1m' });
  const tasks = { throws: { definition, revision: 1 } };
  const { events } = await startReplica({
    slots: 1,
    pollInterval: '1h',
    registry: createRegistry(tasks, {
      throws: ({ which }) => THROWN[which]?.[1]() as Promise<'done'>,
    }),
  });

  const ids = await createEnqueuer(tasks).enqueueMany(
    db,
    'throws',
    THROWN.map((_, which) => ({ which })),
  );
  await events.atLeast(THROWN.length, 'settled');

  for (const [which, { id }] of ids.entries()) {
    const what = THROWN[which]?.[0];
    const [settled] = events.of('settled', ({ task }) => task.id === id);
    expect(settled, what).toMatchObject({ outcome: 'failure', dead: false });
    const row = await rowOf(db, id);
    expect(row, what).toMatchObject({
      attempt_count: 1,
      lease_token: null,
      lease_expires_at: null,
      retired: false,
    });
    expect(row.last_error, what).toMatch(/\S/);
    expect(row.errors, what).toMatchObject([{ attempt: 1, outcome: 'failure', message: row.last_error }]);
    expect(await backoffOf(db, id), what).toBe(15_000);
  }
});

test('a promise that rejects after done leaves its task done, and a policy of exiting on it releases the others', async ({
  database,
  db,
}) => {
  const held = await insertRow(db, { payload: { n: 0 } });
  const worker = startWorkerProcess('floating-rejection.ts', { url: database.url });
  await worker.events.first('claimed', ({ task }) => task.id === held);
  const floating = await insertRow(db, { payload: { n: 1 } });
  worker.send('look');

  const { exitCode, stderr } = await worker.ended;
  expect(worker.said).toContain('unhandled: nobody waited for this');
  expect(exitCode, stderr).toBe(1);
  const settled = worker.events.of('settled');
  expect(settled.find(({ task }) => task.id === floating)).toMatchObject({ outcome: 'success' });
  expect(settled.find(({ task }) => task.id === held)).toMatchObject({ outcome: 'cancelled' });
  await waitFor(async () => (await allRows(db)).length === 1, { what: 'the finished task to be gone' });
  expect(await rowOf(db, held)).toMatchObject({ attempt_count: 1, lease_token: null, last_error: null });
});
