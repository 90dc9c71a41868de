import type { CronEntry } from '../../src/index.ts';
import { lookAgain, type TestScheduler, takenTicks, test } from '../support/cron.ts';
import type { TestTasks } from '../support/tasks.ts';
import { expect } from '../support/test.ts';

// Hazard 51: a daily job at a local time is skipped on the day that has no such time, and runs twice on the day that has
// it twice. What the calendar says is tested in test/unit; here three replicas go through those days, and are all
// restarted in the middle of the hour that comes twice.

const STEP_MS = 5 * 60_000;

interface Walk {
  readonly from: string;
  readonly to: string;
  readonly restartAt: string;
  readonly entries: readonly CronEntry<TestTasks>[];
}

const inNewYork = (schedule: string) =>
  ({ name: schedule, task: 'plain', schedule, timeZone: 'America/New_York' }) as const;
const onLordHowe = (schedule: string) =>
  ({ name: schedule, task: 'plain', schedule, timeZone: 'Australia/Lord_Howe' }) as const;

const cronWalk = test.extend<{ walk: (walk: Walk) => Promise<(entry: string) => Promise<string[]>> }>({
  walk: async ({ db, time, startScheduler }, use) => {
    await use(async ({ from, to, restartAt, entries }) => {
      await time.set(new Date(Date.parse(from) - 1_000));
      const startThree = () => Promise.all([1, 2, 3].map(() => startScheduler(entries)));
      let replicas: TestScheduler[] = await startThree();
      for (let at = Date.parse(from); at <= Date.parse(to); at += STEP_MS) {
        if (at === Date.parse(restartAt)) {
          await Promise.all(replicas.map(({ app }) => app.stop()));
          replicas = await startThree();
        }
        await time.set(new Date(at));
        await lookAgain(...replicas);
      }
      return (entry) => takenTicks(db, entry);
    });
  },
});

cronWalk(
  'where 01:30 comes twice, a daily job at 01:30 runs once, hourly ones 25 times',
  async ({ walk }) => {
    const entries = ['30 1 * * *', '0 * * * *', '*/15 * * * *'].map(inNewYork);
    const taken = await walk({
      from: '2026-11-01T04:00:00Z',
      to: '2026-11-01T09:00:00Z',
      restartAt: '2026-11-01T06:00:00Z',
      entries,
    });

    const daily = await taken('30 1 * * *');
    expect(daily).toHaveLength(1);
    expect(['2026-11-01T05:30:00.000Z', '2026-11-01T06:30:00.000Z']).toContain(daily[0]);
    expect(await taken('0 * * * *')).toEqual(everyMs(3_600_000, '2026-11-01T04:00:00Z', 6));
    expect(await taken('*/15 * * * *')).toEqual(everyMs(900_000, '2026-11-01T04:00:00Z', 21));
  },
);

cronWalk(
  'where there is no 02:30, a daily job at 02:30 runs once, hourly ones 23 times',
  async ({ walk }) => {
    const entries = ['30 2 * * *', '0 * * * *', '*/15 * * * *'].map(inNewYork);
    const taken = await walk({
      from: '2027-03-14T05:00:00Z',
      to: '2027-03-14T09:00:00Z',
      restartAt: '2027-03-14T07:00:00Z',
      entries,
    });

    expect(await taken('30 2 * * *')).toHaveLength(1);
    expect(await taken('0 * * * *')).toEqual(everyMs(3_600_000, '2027-03-14T05:00:00Z', 5));
    expect(await taken('*/15 * * * *')).toEqual(everyMs(900_000, '2027-03-14T05:00:00Z', 17));
  },
);

cronWalk('where half an hour is skipped, a daily job within it runs once', async ({ walk }) => {
  const taken = await walk({
    from: '2026-10-03T15:00:00Z',
    to: '2026-10-03T17:00:00Z',
    restartAt: '2026-10-03T15:30:00Z',
    entries: [onLordHowe('15 2 * * *')],
  });
  expect(await taken('15 2 * * *')).toHaveLength(1);
});

cronWalk('where half an hour comes twice, a daily job within it runs once', async ({ walk }) => {
  const taken = await walk({
    from: '2027-04-03T14:00:00Z',
    to: '2027-04-03T16:30:00Z',
    restartAt: '2027-04-03T15:00:00Z',
    entries: [onLordHowe('45 1 * * *')],
  });
  expect(await taken('45 1 * * *')).toHaveLength(1);
});

function everyMs(ms: number, from: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => new Date(Date.parse(from) + index * ms).toISOString());
}
