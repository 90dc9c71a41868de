import type { TaskId } from '../../src/domain/ids.ts';
import { dequeue } from '../../src/statements/settle.ts';
import { eventsOf, lookAgain, test, tickRows } from '../support/cron.ts';
import { allRows, claimRow, makeDue, writeLaneOf } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { expect } from '../support/test.ts';

const notBesideItself = [
  { task: 'plain', schedule: '@every 1m', payload: { n: 1 }, overlap: 'skip' },
] as const;

test("with overlap: 'skip' a tick enqueues nothing while a task of the entry waits or runs", async ({
  db,
  time,
  startScheduler,
}) => {
  const scheduler = await startScheduler(notBesideItself);
  const tickAt = async (minute: string) => {
    await time.set(`2027-01-15T12:${minute}:00Z`);
    await lookAgain(scheduler);
  };
  await tickAt('01');
  const taskId = eventsOf('cron_enqueued', scheduler)[0]?.taskId as TaskId;
  await tickAt('02');
  await makeDue(db, taskId);
  const { lease } = await claimRow(db, taskId);
  await tickAt('03');
  await dequeue(writeLaneOf(db), [lease]);
  await tickAt('04');

  const rows = await tickRows(db, 'plain');
  expect(rows.map(({ outcome, task_id }) => [outcome, task_id])).toEqual([
    ['since', null],
    ['enqueued', taskId],
    ['skipped', taskId],
    ['skipped', taskId],
    ['enqueued', String(Number(taskId) + 1)],
  ]);
  expect(eventsOf('cron_skipped', scheduler)).toMatchObject([
    { entry: 'plain', tick: '2027-01-15T12:02:00.000Z', taskId },
    { entry: 'plain', tick: '2027-01-15T12:03:00.000Z', taskId },
  ]);
});

test('a task of the same type and payload that is not of the entry is not in its way, nor it in that one’s', async ({
  db,
  time,
  startScheduler,
}) => {
  const other = await enqueue(db, 'plain', { n: 1 }, { unique: { while: 'live' } });
  const scheduler = await startScheduler([
    ...notBesideItself,
    { ...notBesideItself[0], name: 'a second entry of the type' },
  ]);
  await time.set('2027-01-15T12:01:00Z');
  await lookAgain(scheduler);

  expect(eventsOf('cron_enqueued', scheduler)).toHaveLength(2);
  expect(await enqueue(db, 'plain', { n: 1 }, { unique: { while: 'live' } })).toMatchObject({
    id: other.id,
    status: 'existing',
  });
});

test("by default, with 'allow', each tick enqueues its own", async ({ db, time, startScheduler }) => {
  const scheduler = await startScheduler([{ task: 'plain', schedule: '@every 1m' }]);
  for (const minute of ['01', '02', '03']) {
    await time.set(`2027-01-15T12:${minute}:00Z`);
    await lookAgain(scheduler);
  }
  expect(await allRows(db)).toHaveLength(3);
});

test("an entry's own unique rule holds: what it finds in the way is the tick's answer, and a replaced task is", async ({
  db,
  time,
  startScheduler,
}) => {
  const unique = { key: 'one', while: 'waiting' } as const;
  const scheduler = await startScheduler([
    { name: 'a', task: 'plain', schedule: '@every 1m', payload: { n: 1 }, unique },
    {
      name: 'b',
      task: 'plain',
      schedule: '@every 1m',
      payload: { n: 2 },
      unique: { ...unique, onConflict: 'replace' },
    },
    { name: 'c', task: 'plain', schedule: '@every 1m', payload: { n: 3 }, unique },
  ]);
  await time.set('2027-01-15T12:01:00Z');
  await lookAgain(scheduler);

  const [row, ...more] = await allRows(db);
  expect(more).toEqual([]);
  expect(row).toMatchObject({ payload: { n: 2 } });
  const id = String(row?.['id']);
  for (const [entry, outcome] of [
    ['a', 'enqueued'],
    ['b', 'enqueued'],
    ['c', 'skipped'],
  ] as const) {
    expect((await tickRows(db, entry)).at(-1)).toMatchObject({ outcome, task_id: id });
  }
});
