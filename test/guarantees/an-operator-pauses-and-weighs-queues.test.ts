import type { Kysely } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { type Operator, openOperator } from '../../src/operator.ts';
import { pauseQueue, resumeQueue, setQueueWeight } from '../../src/statements/queues.ts';
import { auditRows, insertDead } from '../support/dead.ts';
import { holdTransaction } from '../support/held-transaction.ts';
import { waitUntilBlocked } from '../support/locks.ts';
import { insertRow, insertRows, writeLaneOf } from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/schema.ts';
import { test as databaseTest, expect } from '../support/test.ts';
import { hearWakes } from '../support/wakes.ts';

// What is written when an operator pauses, resumes or weighs a queue; what claims make of it is pinned elsewhere.

const test = databaseTest.extend<{ operator: Operator }>({
  operator: async ({ database }, use) => {
    const operator = await openOperator({ database: database.url, schema: TEST_SCHEMA });
    await use(operator);
    await operator.close();
  },
});

test('a second pause keeps the moment of the first, and says so', async ({ db, operator }) => {
  await insertRow(db, { queue: 'low' });
  const first = await operator.pauseQueue('low');
  expect(first).toEqual({ changed: true, pausedAt: expect.any(Date), hasTask: true });
  await db.updateTable('async_queues').set({ paused_at: '2026-01-31T09:00:00Z' }).execute();

  const again = await operator.pauseQueue('low');

  expect(again).toEqual({ changed: false, pausedAt: new Date('2026-01-31T09:00:00Z'), hasTask: true });
  expect(await queueRows(db)).toMatchObject([{ name: 'low', paused_at: new Date('2026-01-31T09:00:00Z') }]);
});

test('a queue without tasks can be paused, and the answer says that it has none', async ({
  db,
  operator,
}) => {
  await insertDead(db, 1, { queue: 'only_dead' });
  for (const queue of ['nobody_has_heard_of_it', 'only_dead'])
    expect(await operator.pauseQueue(queue)).toMatchObject({ changed: true, hasTask: false });
});

test('a resume sends one wake and answers since when it was paused; a second one does nothing', async ({
  database,
  db,
  operator,
}) => {
  const { pausedAt } = await operator.pauseQueue('low');
  const wakes = await hearWakes(database);

  expect(await operator.resumeQueue('low')).toEqual(pausedAt);
  expect(await wakes.count()).toBe(1);
  expect(await operator.resumeQueue('low')).toBeUndefined();
  expect(await operator.resumeQueue('unknown')).toBeUndefined();
  expect(await wakes.count()).toBe(0);
  expect(await queueRows(db)).toMatchObject([{ name: 'low', paused_at: null }]);
});

test('a weight is kept beside a pause, changed, and given back', async ({ db, operator }) => {
  expect(await operator.setQueueWeight('low', 3)).toEqual({ changed: true, before: undefined });
  await operator.pauseQueue('low');
  expect(await operator.setQueueWeight('low', 1_000)).toEqual({ changed: true, before: 3 });
  await operator.resumeQueue('low');
  expect(await queueRows(db)).toMatchObject([{ name: 'low', weight: 1_000, paused_at: null }]);

  expect(await operator.setQueueWeight('low', 1_000)).toEqual({ changed: false, before: 1_000 });
  expect(await operator.setQueueWeight('low', undefined)).toEqual({ changed: true, before: 1_000 });
  expect(await operator.setQueueWeight('other', undefined)).toEqual({ changed: false, before: undefined });
  expect(await queueRows(db)).toMatchObject([{ name: 'low', weight: null }]);
});

test('names and weights that cannot be are refused before anything is written', async ({ db, operator }) => {
  for (const queue of ['', ' ', 'a\nb', 'a\0', 'x'.repeat(201)]) {
    for (const refused of [
      operator.pauseQueue(queue),
      operator.resumeQueue(queue),
      operator.setQueueWeight(queue, 1),
    ])
      await expect(refused).rejects.toMatchObject({ code: 'OPTION_INVALID' });
  }
  for (const weight of [0, -1, 1.5, 1_001, Number.NaN, Number.POSITIVE_INFINITY])
    await expect(operator.setQueueWeight('low', weight)).rejects.toMatchObject({ code: 'OPTION_INVALID' });
  expect(await queueRows(db)).toEqual([]);
});

test('of two operators at once each sees what the other did, and the audit has it in that order', async ({
  database,
  db,
}) => {
  await using first = await holdTransaction(db);
  expect(await setQueueWeight(writeLaneOf(first.tx), 'low', 3, 'ada')).toMatchObject({ changed: true });
  const weighing = setQueueWeight(writeLaneOf(db), 'low', 5, 'bob');
  await waitUntilBlocked(database.url);
  await first.tx.commit().execute();
  expect(await weighing).toEqual({ changed: true, before: 3 });

  await using second = await holdTransaction(db);
  const { pausedAt } = await pauseQueue(writeLaneOf(second.tx), 'low', 'ada');
  const pausing = pauseQueue(writeLaneOf(db), 'low', 'bob');
  await waitUntilBlocked(database.url);
  await second.tx.commit().execute();
  expect(await pausing).toEqual({ changed: false, pausedAt, hasTask: false });

  await using third = await holdTransaction(db);
  expect(await resumeQueue(writeLaneOf(third.tx), 'low', 'ada')).toEqual(pausedAt);
  const resuming = resumeQueue(writeLaneOf(db), 'low', 'bob');
  await waitUntilBlocked(database.url);
  await third.tx.commit().execute();
  expect(await resuming).toBeUndefined();

  expect((await auditRows(db)).map(({ actor, action, detail }) => [actor, action, detail['old']])).toEqual([
    ['ada', 'queue.weight', null],
    ['bob', 'queue.weight', 3],
    ['ada', 'queue.pause', null],
    ['ada', 'queue.resume', pausedAt.toISOString()],
  ]);
});

test('the list has every queue with tasks or with a word about it, and sums over the types', async ({
  db,
  operator,
}) => {
  await insertRows(db, 2, { queue: 'high', runAtSeconds: -90 });
  await insertRows(db, 1, { queue: 'high', type: 'brief', runAtSeconds: -30 });
  await insertRows(db, 1, { queue: 'high', runAtSeconds: 600 });
  await insertRows(db, 1, { queue: 'high', leasedSeconds: 60 });
  await insertDead(db, 3, { queue: 'default' });
  await operator.setQueueWeight('weighed', 6);
  const { pausedAt } = await operator.pauseQueue('high');
  // Nothing is said about it any more, and it has no task.
  await operator.pauseQueue('forgotten');
  await operator.resumeQueue('forgotten');

  const none = { weight: undefined, pausedAt: undefined, pending: 0, due: 0, running: 0, dead: 0 };
  expect(await operator.listQueues()).toEqual([
    { ...none, queue: 'default', dead: 3, oldestDueSeconds: 0 },
    {
      ...none,
      queue: 'high',
      pausedAt,
      pending: 5,
      due: 3,
      running: 1,
      oldestDueSeconds: expect.any(Number),
    },
    { ...none, queue: 'weighed', weight: 6, oldestDueSeconds: 0 },
  ]);
  expect((await operator.listQueues())[1]?.oldestDueSeconds).toBeGreaterThanOrEqual(89);
  expect(await operator.pausedQueues()).toEqual([{ queue: 'high', pausedAt }]);
});

function queueRows(db: Kysely<DB>) {
  return db.selectFrom('async_queues').selectAll().orderBy('name').execute();
}
