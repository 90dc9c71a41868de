import type { CronEntry } from '../../src/index.ts';
import { eventsOf, lookAgain, takenTicks, test, tickRows } from '../support/cron.ts';
import { allRows } from '../support/rows.ts';
import type { TestTasks } from '../support/tasks.ts';
import { expect } from '../support/test.ts';

const every10Minutes = (missed: CronEntry<TestTasks>['missed'] | undefined) =>
  [
    { task: 'plain', schedule: '@every 10m', payload: {}, ...(missed === undefined ? {} : { missed }) },
  ] as const;

/** From 12:10 on nobody is there; at 13:05 somebody is, the newest tick being five minutes old. */
const CASES = [
  { policy: undefined, taken: [], missed: { ticks: 5, first: '12:20', last: '13:00' } },
  { policy: 'skip', taken: [], missed: { ticks: 5, first: '12:20', last: '13:00' } },
  { policy: 'once', taken: ['13:00'], missed: { ticks: 4, first: '12:20', last: '12:50' } },
  {
    policy: { all: 3 },
    taken: ['12:40', '12:50', '13:00'],
    missed: { ticks: 2, first: '12:20', last: '12:30' },
  },
  { policy: { all: 1_000 }, taken: ['12:20', '12:30', '12:40', '12:50', '13:00'], missed: undefined },
] as const;

const at = (time: string) => `2027-01-15T${time}:00.000Z`;

for (const { policy, taken, missed } of CASES) {
  const name = policy === undefined ? 'the default' : JSON.stringify(policy);

  test(`of ticks that no replica was up for, ${name} enqueues ${taken.length}, oldest first, and says what it does not`, async ({
    db,
    time,
    startScheduler,
  }) => {
    const entries = every10Minutes(policy);
    const before = await startScheduler(entries);
    await time.set('2027-01-15T12:10:00Z');
    await lookAgain(before);
    await before.app.stop();
    await time.set('2027-01-15T13:05:00Z');
    const after = await startScheduler(entries);
    await lookAgain(after);
    await lookAgain(after);

    expect(await takenTicks(db, 'plain')).toEqual([at('12:10'), ...taken.map(at)]);
    const rows = await allRows(db);
    expect(rows.map(({ headers }) => (headers as Record<string, string>)['taskq-cron-tick'])).toEqual([
      at('12:10'),
      ...taken.map(at),
    ]);
    // Once, although it has looked three times.
    expect(eventsOf('cron_missed', after)).toEqual(
      missed === undefined
        ? []
        : [
            {
              kind: 'cron_missed',
              entry: 'plain',
              ...missed,
              first: at(missed.first),
              last: at(missed.last),
            },
          ],
    );
    await time.set('2027-01-15T13:10:00Z');
    await lookAgain(after);
    expect((await takenTicks(db, 'plain')).at(-1)).toBe(at('13:10'));
  });
}

test('a tick is on time for a minute: a restart within it misses nothing', async ({
  db,
  time,
  startScheduler,
}) => {
  const before = await startScheduler(every10Minutes('skip'));
  await before.app.stop();
  await time.set('2027-01-15T12:10:55Z');
  await startScheduler(every10Minutes('skip'));

  expect(await takenTicks(db, 'plain')).toEqual([at('12:10')]);
});

test('a replica that slept while others ticked neither takes nor reports what they have taken', async ({
  db,
  time,
  startScheduler,
}) => {
  const entries = every10Minutes('skip');
  const asleep = await startScheduler(entries);
  const awake = await startScheduler(entries);
  for (const minute of ['10', '20', '30']) {
    await time.set(`2027-01-15T12:${minute}:00Z`);
    await lookAgain(awake);
  }
  await lookAgain(asleep);

  expect(eventsOf('cron_missed', asleep)).toEqual([]);
  expect(eventsOf('cron_enqueued', asleep)).toEqual([]);
  expect(await allRows(db)).toHaveLength(3);
});

test('an entry that is new has missed nothing', async ({ db, time, startScheduler }) => {
  await startScheduler(every10Minutes({ all: 1_000 }));
  const scheduler = await startScheduler([
    ...every10Minutes({ all: 1_000 }),
    { name: 'new', task: 'plain', schedule: '@every 1m', missed: { all: 1_000 } },
  ]);
  expect(await allRows(db)).toEqual([]);
  expect(await tickRows(db, 'new')).toMatchObject([
    { outcome: 'since', task_id: null, schedule: '@every 1m' },
  ]);

  await time.set('2027-01-15T12:01:00Z');
  await lookAgain(scheduler);
  expect(await takenTicks(db, 'new')).toEqual([at('12:01')]);
});

test('an entry whose schedule was changed begins anew, and what the old one missed is not made up for', async ({
  db,
  time,
  startScheduler,
}) => {
  const before = await startScheduler(every10Minutes('once'));
  await time.set('2027-01-15T12:10:00Z');
  await lookAgain(before);
  await before.app.stop();
  await time.set('2027-01-15T14:00:10Z');
  const changed = [{ task: 'plain', schedule: '0 * * * *', payload: {}, missed: { all: 1_000 } }] as const;
  const after = await startScheduler(changed);
  expect(await takenTicks(db, 'plain')).toEqual([at('12:10')]);
  expect(eventsOf('cron_missed', after)).toEqual([]);

  await time.set('2027-01-15T15:00:00Z');
  await lookAgain(after);
  expect(await takenTicks(db, 'plain')).toEqual([at('12:10'), at('15:00')]);
});

test('two versions of an entry side by side tick both; a tick that they share is taken once', async ({
  db,
  time,
  startScheduler,
}) => {
  const old = await startScheduler(every10Minutes('skip'));
  await time.set('2027-01-15T12:10:00Z');
  await lookAgain(old);
  const young = await startScheduler([{ task: 'plain', schedule: '*/15 * * * *', payload: {} }]);
  for (const minute of ['15', '20', '30', '40', '45']) {
    await time.set(`2027-01-15T12:${minute}:00Z`);
    // Whoever looks second finds the other's row to be the newest of the entry.
    await lookAgain(young);
    await lookAgain(old);
  }

  expect(await takenTicks(db, 'plain')).toEqual(
    ['12:10', '12:15', '12:20', '12:30', '12:40', '12:45'].map(at),
  );
  expect(eventsOf('cron_missed', old, young)).toEqual([]);
  expect(await allRows(db)).toHaveLength(6);
});

test('a replica of the new version that starts at a tick takes nothing from those that have begun', async ({
  db,
  time,
  startScheduler,
}) => {
  const old = await startScheduler(every10Minutes('skip'));
  await old.app.stop();
  const changed = [{ task: 'plain', schedule: '*/15 * * * *', payload: {} }] as const;
  const first = await startScheduler(changed);
  await db.deleteFrom('async_cron_ticks').execute();
  await time.set('2027-01-15T12:15:00Z');
  // Finds no row of this schedule, so it begins now, just after the tick.
  const second = await startScheduler(changed);
  await lookAgain(first, second);

  expect(await takenTicks(db, 'plain')).toEqual([at('12:15')]);
});

test('a removed entry ticks no more, and its rows trouble nobody', async ({ db, time, startScheduler }) => {
  const before = await startScheduler(every10Minutes('once'));
  await time.set('2027-01-15T12:10:00Z');
  await lookAgain(before);
  await before.app.stop();
  const after = await startScheduler([{ name: 'other', task: 'plain', schedule: '@every 10m' }]);
  await time.set('2027-01-15T12:20:00Z');
  await lookAgain(after);

  expect(await takenTicks(db, 'plain')).toEqual([at('12:10')]);
  expect(await takenTicks(db, 'other')).toEqual([at('12:20')]);
});
