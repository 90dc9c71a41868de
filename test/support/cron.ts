import type { Kysely } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { type CronEntries, type CronEntry, createCron, type QueueEvent } from '../../src/index.ts';
import { createTestClock, type TestClock } from '../../src/testing/test-clock.ts';
import { ManualClock } from './clock.ts';
import { type ReplicaOptions, test as replicaTest, type TestReplica } from './replica.ts';
import { type TestTasks, testTasks } from './tasks.ts';

// Schedulers as tests need them: the database's time is the test's, and so is every replica's own clock.

/** When the database's time begins: a Friday, far from any tick that a test is about. */
export const START = '2027-01-15T12:00:30Z';

export const cronOf = (entries: readonly CronEntry<TestTasks>[]): CronEntries =>
  createCron(testTasks, entries);

export interface TestScheduler extends TestReplica {
  /** Of the process: the database's time is another. */
  readonly clock: ManualClock;
}

type SchedulerOptions = Partial<
  Pick<ReplicaOptions, 'database' | 'cron' | 'roles' | 'handlers' | 'metrics'>
> & {
  /** What the process takes for the time. */
  readonly wall?: number;
};

interface Fixtures {
  /** The database's. */
  time: TestClock;
  /** Starts a replica that does nothing but cron. Resolves once it has looked. */
  startScheduler: (
    entries: readonly CronEntry<TestTasks>[],
    options?: SchedulerOptions,
  ) => Promise<TestScheduler>;
}

export const test = replicaTest.extend<Fixtures>({
  time: async ({ database }, use) => {
    const time = await createTestClock(database.url);
    await time.set(START);
    await use(time);
  },
  startScheduler: async ({ time, startReplica }, use) => {
    await use(async (entries, { wall = 0, ...options } = {}) => {
      const clock = new ManualClock({ wall });
      const replica = await startReplica({
        database: time.connection,
        roles: ['cron'],
        cron: cronOf(entries),
        clock,
        timers: clock,
        ...options,
      });
      await replica.events.first('cron_looked');
      return { ...replica, clock };
    });
  },
});

/** Makes every scheduler look again, all at once, and waits until they have. */
export async function lookAgain(...schedulers: readonly TestScheduler[]): Promise<void> {
  const looked = schedulers.map(({ events }) => events.next('cron_looked'));
  for (const { clock } of schedulers) clock.advance(LOOK_MS);
  await Promise.all(looked);
}

/** A scheduler sleeps no longer. */
const LOOK_MS = 60_000;

type Kind = Extract<QueueEvent['kind'], `cron_${string}`>;

/** The events of all of them, of one kind. */
export const eventsOf = <K extends Kind>(kind: K, ...schedulers: readonly TestScheduler[]) =>
  schedulers.flatMap(({ events }) => events.of(kind));

/** Every tick that was taken, oldest first, as ISO text. */
export async function takenTicks(db: Kysely<DB>, entry: string): Promise<string[]> {
  const rows = await tickRows(db, entry);
  return rows.filter(({ outcome }) => outcome !== 'since').map(({ tick }) => new Date(tick).toISOString());
}

/** The rows of an entry, oldest first. */
export async function tickRows(db: Kysely<DB>, entry: string) {
  return db.selectFrom('async_cron_ticks').where('entry', '=', entry).orderBy('tick').selectAll().execute();
}
