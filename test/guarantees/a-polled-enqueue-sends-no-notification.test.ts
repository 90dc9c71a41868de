import { z } from 'zod';
import { createEnqueuer, createRegistry, defineTask } from '../../src/index.ts';
import { test, whenIdle } from '../support/replica.ts';
import { allRows } from '../support/rows.ts';
import { expect } from '../support/test.ts';
import { hearWakes } from '../support/wakes.ts';

const payload = z.object({ n: z.number().default(0) });
const quiet = defineTask({ type: 'quiet', payload, ceiling: '5m', wake: 'poll' });
const loud = defineTask({ type: 'loud', payload, ceiling: '5m' });
const tasks = { quiet: { definition: quiet, revision: 1 }, loud: { definition: loud, revision: 1 } };
const { enqueue, enqueueMany } = createEnqueuer(tasks);
const registry = createRegistry(tasks, { quiet: async () => 'done', loud: async () => 'done' });

test('an enqueue with wake poll sends no notification, whichever way it takes', async ({ database, db }) => {
  const wakes = await hearWakes(database);
  const poll = { wake: 'poll' } as const;

  await enqueue(db, 'loud', {}, poll);
  await enqueue(db, 'loud', {}, { ...poll, timeout: '1m' });
  await enqueue(db, 'loud', {}, { ...poll, runAt: new Date(0) });
  await enqueueMany(db, 'loud', [{}, {}], poll);
  await db.transaction().execute((tx) => enqueueMany(tx, 'loud', new Set([{}, {}]), poll));
  for (const [onConflict, status] of [
    ['skip', 'enqueued'],
    ['skip', 'existing'],
    ['replace', 'replaced'],
  ] as const) {
    const unique = { key: 'k', while: 'waiting', onConflict } as const;
    expect(await enqueue(db, 'loud', {}, { ...poll, unique })).toMatchObject({ status });
  }
  await enqueueMany(db, 'loud', [{ n: 1 }, { n: 2 }], { ...poll, unique: { while: 'live' } });

  expect(await allRows(db)).toHaveLength(10);
  expect(await wakes.count()).toBe(0);
});

test('a type says it for all of its enqueues, and one enqueue says otherwise', async ({ database, db }) => {
  const wakes = await hearWakes(database);

  await enqueue(db, 'quiet', {});
  await enqueueMany(db, 'quiet', [{}, {}]);
  expect(await wakes.count()).toBe(0);

  await enqueue(db, 'quiet', {}, { wake: 'notify' });
  await enqueue(db, 'quiet', {}, { wake: 'notify', unique: { while: 'live' } });
  expect(await wakes.count()).toBe(2);
});

test('the function of SQL knows it too', async ({ database, db }) => {
  const wakes = await hearWakes(database);
  const call = async (wake: string) => {
    const { rows } = await db.executeQuery({
      sql: `select status from taskq.enqueue('loud', '{}', wake => $1)`,
      parameters: [wake],
    } as never);
    return rows;
  };

  expect(await call('poll')).toEqual([{ status: 'enqueued' }]);
  expect(await wakes.count()).toBe(0);
  expect(await call('notify')).toEqual([{ status: 'enqueued' }]);
  expect(await wakes.count()).toBe(1);
});

test('an idle replica starts a task that was enqueued with wake poll at its next poll', async ({
  db,
  startReplica,
}) => {
  const replica = await startReplica({ registry, pollInterval: '200ms' });
  await whenIdle(replica);

  const { id } = await enqueue(db, 'quiet', {});

  const { task } = await replica.events.first('settled');
  expect(task.id).toBe(id);
});

test('the wake of another task starts a task that was enqueued with wake poll before', async ({
  db,
  startReplica,
}) => {
  const replica = await startReplica({ registry });
  await whenIdle(replica);

  const polled = await enqueue(db, 'quiet', {});
  const notified = await enqueue(db, 'loud', {});

  const settled = await replica.events.atLeast(2, 'settled');
  expect(settled.map(({ task }) => task.id).sort()).toEqual([polled.id, notified.id].sort());
});
