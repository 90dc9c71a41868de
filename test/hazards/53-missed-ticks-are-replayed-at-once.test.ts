import type { CronEntry } from '../../src/index.ts';
import { createTestClock } from '../../src/testing/index.ts';
import { cronOf, eventsOf, lookAgain, START, type TestScheduler, takenTicks, test } from '../support/cron.ts';
import { FaultProxy } from '../support/fault-proxy.ts';
import { allRows } from '../support/rows.ts';
import type { TestTasks } from '../support/tasks.ts';
import { expect, onTestFinished } from '../support/test.ts';

// Hazard 53: a scheduler that computes each next tick from the last one fires every tick of an outage at once, or loops
// without a pause over one that it cannot enqueue.

const MINUTE_MS = 60_000;

const entries = (missed: 'skip' | 'once') =>
  [
    { name: 'half-minute', task: 'plain', schedule: '@every 30s', missed },
    { name: 'five minutes', task: 'plain', schedule: '@every 5m', missed },
    { name: 'daily', task: 'plain', schedule: '0 13 * * *', missed },
  ] as const satisfies readonly CronEntry<TestTasks>[];

for (const [missed, daily] of [
  ['skip', []],
  ['once', ['2027-01-15T13:00:00.000Z']],
] as const) {
  test(`after 78 minutes of suspend each entry has one catch-up at the most, then its cadence (${missed})`, async ({
    db,
    time,
    startScheduler,
  }) => {
    const scheduler = await startScheduler(entries(missed));
    await time.set('2027-01-15T12:01:00Z');
    await lookAgain(scheduler);
    const before = (await allRows(db)).length;
    // The process stands still, and so do its clocks and timers; the database's time goes on: 156 half minutes.
    await time.set('2027-01-15T13:19:10Z');
    await lookAgain(scheduler);

    expect(await takenTicks(db, 'daily')).toEqual(daily);
    expect((await takenTicks(db, 'half-minute')).slice(1)).toEqual(['2027-01-15T13:19:00.000Z']);
    expect((await takenTicks(db, 'five minutes')).length).toBeLessThanOrEqual(1);
    const caughtUp = (await allRows(db)).length - before;
    expect(caughtUp).toBeLessThanOrEqual(3);
    expect(eventsOf('cron_missed', scheduler).filter(({ entry }) => entry === 'half-minute')).toMatchObject([
      // Counted no further than to a hundred.
      { ticks: 100, first: '2027-01-15T12:01:30.000Z', last: '2027-01-15T13:18:30.000Z' },
    ]);

    await time.set('2027-01-15T13:19:30Z');
    await lookAgain(scheduler);
    await time.set('2027-01-15T13:20:00Z');
    await lookAgain(scheduler);
    expect((await takenTicks(db, 'half-minute')).slice(2)).toEqual([
      '2027-01-15T13:19:30.000Z',
      '2027-01-15T13:20:00.000Z',
    ]);
    expect((await takenTicks(db, 'five minutes')).at(-1)).toBe('2027-01-15T13:20:00.000Z');
  });
}

test('a database clock set back an hour runs no tick again, and one set forward makes one at the most', async ({
  db,
  time,
  startScheduler,
}) => {
  const scheduler = await startScheduler(entries('skip'));
  const tickAt = async (moment: string) => {
    await time.set(moment);
    await lookAgain(scheduler);
  };
  await tickAt('2027-01-15T12:05:00Z');
  const taken = await takenTicks(db, 'five minutes');
  expect(taken).toEqual(['2027-01-15T12:05:00.000Z']);

  await tickAt('2027-01-15T11:05:00Z');
  await tickAt('2027-01-15T11:10:00Z');
  await tickAt('2027-01-15T12:05:00Z');
  expect(await takenTicks(db, 'five minutes')).toEqual(taken);
  // Also for a replica that starts then.
  await time.set('2027-01-15T11:30:00Z');
  const restarted = await startScheduler(entries('once'));
  await lookAgain(restarted);
  expect(await takenTicks(db, 'five minutes')).toEqual(taken);

  await tickAt('2027-01-15T13:05:00Z');
  expect(await takenTicks(db, 'five minutes')).toEqual([...taken, '2027-01-15T13:05:00.000Z']);
  expect(await takenTicks(db, 'half-minute')).toEqual([
    '2027-01-15T12:05:00.000Z',
    '2027-01-15T13:05:00.000Z',
  ]);
});

test("the replica's own clock, set back and forward, changes nothing", async ({
  db,
  time,
  startScheduler,
}) => {
  const scheduler = await startScheduler(entries('skip'));
  for (const shift of [-60 * MINUTE_MS, 120 * MINUTE_MS]) {
    scheduler.clock.shiftWall(shift);
    await lookAgain(scheduler);
  }
  expect(await allRows(db)).toEqual([]);
  await time.set('2027-01-15T12:05:00Z');
  await lookAgain(scheduler);
  expect(await allRows(db)).toHaveLength(2);
});

for (const [missed, caughtUp] of [
  ['skip', 0],
  ['once', 1],
] as const) {
  test(`ticks of ten minutes without a database are made up for by ${caughtUp}, and it is asked with pauses (${missed})`, async ({
    db,
    database,
    time,
    startScheduler,
  }) => {
    const proxy = await FaultProxy.start(database.connection);
    onTestFinished(() => proxy.stop());
    const scheduler = await startScheduler(
      [{ name: 'two minutes', task: 'plain', schedule: '@every 2m', missed }],
      { database: (await createTestClock(proxy.url)).connection },
    );
    await time.set('2027-01-15T12:02:00Z');
    await lookAgain(scheduler);
    expect(await takenTicks(db, 'two minutes')).toHaveLength(1);

    proxy.mode = 'refuse';
    proxy.resetAll();
    const pauses = await failures(scheduler, 12);
    for (const [index, pause] of pauses.entries()) {
      expect(pause).toBeGreaterThanOrEqual(Math.min(5_000, 100 * 2 ** index) / 2);
    }
    await time.set('2027-01-15T12:13:30Z');
    proxy.mode = 'pass';
    await lookAgain(scheduler);

    expect(scheduler.events.of('database_recovered', ({ during }) => during === 'cron')).toHaveLength(1);
    expect((await takenTicks(db, 'two minutes')).slice(1)).toEqual(
      caughtUp === 0 ? [] : ['2027-01-15T12:12:00.000Z'],
    );
    expect(await allRows(db)).toHaveLength(1 + caughtUp);
    await time.set('2027-01-15T12:14:00Z');
    await lookAgain(scheduler);
    expect((await takenTicks(db, 'two minutes')).at(-1)).toBe('2027-01-15T12:14:00.000Z');
  });
}

test('the daily tick that all replicas were down for is skipped, and the next one is not', async ({
  db,
  time,
  startScheduler,
}) => {
  const daily = [{ name: 'daily', task: 'plain', schedule: '0 13 * * *' }] as const;
  const before = await startScheduler(daily);
  await before.app.stop();
  await time.set('2027-01-15T13:02:00Z');
  const after = await startScheduler(daily);
  expect(eventsOf('cron_missed', after)).toMatchObject([{ ticks: 1, first: '2027-01-15T13:00:00.000Z' }]);
  await time.set('2027-01-16T13:00:00Z');
  await lookAgain(after);
  expect(await takenTicks(db, 'daily')).toEqual(['2027-01-16T13:00:00.000Z']);
});

test('a scheduler sleeps a minute at the most, so that it notices a moved clock', async ({
  startScheduler,
}) => {
  const scheduler = await startScheduler([{ name: 'yearly', task: 'plain', schedule: '0 0 1 1 *' }]);
  expect(
    cronOf([{ task: 'plain', schedule: '0 0 1 1 *' }]).entries[0]?.schedule.next(Date.parse(START)),
  ).toBe(Date.parse('2028-01-01T00:00:00Z'));
  // Not a timer that the replica has besides.
  const looked = scheduler.events.next('cron_looked');
  await scheduler.clock.advanceAsync(59_999);
  expect(scheduler.events.of('cron_looked')).toHaveLength(1);
  await scheduler.clock.advanceAsync(1);
  await looked;
});

/** The pauses after so many failed looks in a row. The replica has other timers, which fire in between. */
async function failures(scheduler: TestScheduler, count: number): Promise<number[]> {
  const pauses: number[] = [];
  for (let failed = 1; failed <= count; failed += 1) {
    let isThere = false;
    const failure = scheduler.events
      .next('database_failed', ({ during }) => during === 'cron')
      .finally(() => {
        isThere = true;
      });
    while (!isThere) await scheduler.clock.advanceAsync(scheduler.clock.nextInMs ?? 0);
    pauses.push((await failure).retryMs);
  }
  return pauses;
}
