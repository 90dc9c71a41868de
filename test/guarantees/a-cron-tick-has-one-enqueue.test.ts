import { Kysely, PostgresDialect, sql } from 'kysely';
import pg from 'pg';
import type { DB } from '../../generated/db.ts';
import { takeAndEnqueue } from '../../src/scheduler/take.ts';
import { takeStatement } from '../../src/statements/cron.ts';
import { drain } from '../../src/testing/index.ts';
import { cronOf, eventsOf, lookAgain, takenTicks, test, tickRows } from '../support/cron.ts';
import { holdTransaction } from '../support/held-transaction.ts';
import { waitUntilBlocked } from '../support/locks.ts';
import { allRows, writeLaneOf } from '../support/rows.ts';
import { handlersFor } from '../support/tasks.ts';
import { expect } from '../support/test.ts';

const HOUR_MS = 3_600_000;
const TICK_MS = Date.parse('2027-01-15T12:01:00Z');
const everyMinute = [{ task: 'plain', schedule: '@every 1m', payload: { n: 7 } }] as const;

test('five replicas whose clocks differ by hours make one enqueue for each tick', async ({
  db,
  time,
  startScheduler,
}) => {
  const real = Date.now();
  const walls = [real, real - 26 * HOUR_MS, real + 26 * HOUR_MS, 0, real + 400 * HOUR_MS];
  const schedulers = await Promise.all(walls.map((wall) => startScheduler(everyMinute, { wall })));
  const ticks = Array.from({ length: 20 }, (_, minute) => new Date(Date.UTC(2027, 0, 15, 12, 1 + minute)));

  for (const tick of ticks) {
    await time.set(tick);
    await lookAgain(...schedulers);
  }

  const expected = ticks.map((tick) => tick.toISOString());
  expect(await takenTicks(db, 'plain')).toEqual(expected);
  expect(
    eventsOf('cron_enqueued', ...schedulers)
      .map(({ tick }) => tick)
      .sort(),
  ).toEqual(expected);
  expect(await allRows(db)).toHaveLength(ticks.length);
  // Who loses is silent.
  for (const kind of ['cron_failed', 'cron_missed', 'cron_skipped'] as const)
    expect(eventsOf(kind, ...schedulers)).toEqual([]);
});

test('a replica that comes while another holds the tick waits for it, and loses', async ({
  db,
  database,
  time,
  startScheduler,
}) => {
  const winner = await startScheduler(everyMinute);
  const loser = await startScheduler(everyMinute);
  await time.set('2027-01-15T12:01:00Z');
  // The winner's enqueue cannot go on, so its transaction stays open with the tick in it.
  await using held = await holdTransaction(db);
  await sql`lock table taskq.async_tasks in share mode`.execute(held.tx);
  const looked = [winner.events.next('cron_looked'), loser.events.next('cron_looked')];
  winner.clock.advance(60_000);
  await waitUntilBlocked(database.url);
  loser.clock.advance(60_000);
  await waitUntilBlocked(database.url, 2);
  await held.release();
  await Promise.all(looked);

  expect(eventsOf('cron_enqueued', winner)).toHaveLength(1);
  expect(eventsOf('cron_enqueued', loser)).toEqual([]);
  expect(await takenTicks(db, 'plain')).toEqual(['2027-01-15T12:01:00.000Z']);
  expect(await allRows(db)).toHaveLength(1);
});

test('a tick whose holder rolls back goes to the replica that waited', async ({
  db,
  database,
  time,
  startScheduler,
}) => {
  const waiting = await startScheduler(everyMinute);
  await time.set('2027-01-15T12:01:00Z');
  await using held = await holdTransaction(db);
  await insertTick(held.tx, '2027-01-15T12:01:00Z');
  waiting.clock.advance(60_000);
  await waitUntilBlocked(database.url);
  await held.release();

  expect(await waiting.events.first('cron_enqueued')).toMatchObject({ tick: '2027-01-15T12:01:00.000Z' });
  expect(await allRows(db)).toHaveLength(1);
});

test('a replica that froze with a tick in its hands holds up no other entry', async ({
  db,
  time,
  startScheduler,
}) => {
  const scheduler = await startScheduler([
    ...everyMinute,
    { task: 'fragile', schedule: '@every 1m', payload: {} },
  ]);
  await time.set('2027-01-15T12:01:00Z');
  await using held = await holdTransaction(db);
  await insertTick(held.tx, '2027-01-15T12:01:00Z');
  scheduler.clock.advance(60_000);

  expect(await scheduler.events.first('cron_enqueued')).toMatchObject({ entry: 'fragile' });
  expect(await scheduler.events.first('cron_failed')).toMatchObject({
    entry: 'plain',
    error: { message: expect.stringMatching(/lock timeout/) },
  });
  await held.release();
  await lookAgain(scheduler);
  expect(await takenTicks(db, 'plain')).toEqual(['2027-01-15T12:01:00.000Z']);
});

test('a replica that freezes with a tick in its hands loses it to another, and can do nothing more with it', async ({
  db,
  time,
  startScheduler,
}) => {
  const scheduler = await startScheduler(everyMinute);
  await time.set('2027-01-15T12:01:00Z');
  const frozen = new pg.Client(time.connection);
  frozen.on('error', () => {});
  await frozen.connect();
  const isOver = new Promise((resolve) => frozen.once('end', resolve));
  await frozen.query('begin');
  await frozen.query(takeStatement.compile('taskq').sql, ['plain', TICK_MS, '@every 1m', TICK_MS]);
  scheduler.clock.advance(60_000);
  await scheduler.events.first('cron_failed');

  await isOver;
  await lookAgain(scheduler);
  expect(eventsOf('cron_enqueued', scheduler)).toMatchObject([{ tick: '2027-01-15T12:01:00.000Z' }]);
  expect(await allRows(db)).toHaveLength(1);
});

test('a restart within the tick does not enqueue it again', async ({ db, time, startScheduler }) => {
  const first = await startScheduler(everyMinute);
  await time.set('2027-01-15T12:01:00Z');
  await lookAgain(first);
  await first.app.stop();

  const second = await startScheduler(everyMinute);
  await lookAgain(second);
  expect(await allRows(db)).toHaveLength(1);
  expect(eventsOf('cron_enqueued', second)).toEqual([]);
});

test('a task that is done before another replica looks is not enqueued by that one', async ({
  db,
  time,
  startScheduler,
}) => {
  const unique = { key: 'the entry', while: 'live' } as const;
  const entries = [{ task: 'plain', schedule: '@every 1m', payload: {}, unique }] as const;
  const fast = await startScheduler(entries);
  const late = await startScheduler(entries);
  await time.set('2027-01-15T12:01:00Z');
  await lookAgain(fast);
  expect(await drain({ database: time.connection, handlers: handlersFor() })).toMatchObject([
    { outcome: 'success' },
  ]);
  await lookAgain(late);

  expect(eventsOf('cron_enqueued', late)).toEqual([]);
  expect(await allRows(db)).toEqual([]);
});

test('the entry goes on while any one replica is down', async ({ db, time, startScheduler }) => {
  const first = await startScheduler(everyMinute);
  const second = await startScheduler(everyMinute);
  await first.app.stop();
  await time.set('2027-01-15T12:01:00Z');
  await lookAgain(second);
  const third = await startScheduler(everyMinute);
  await second.app.stop();
  await time.set('2027-01-15T12:02:00Z');
  await lookAgain(third);

  expect(await takenTicks(db, 'plain')).toEqual(['2027-01-15T12:01:00.000Z', '2027-01-15T12:02:00.000Z']);
});

test('tick and task commit together: an enqueue that fails leaves no tick, and is tried again', async ({
  db,
  time,
  startScheduler,
}) => {
  const scheduler = await startScheduler([
    ...everyMinute,
    { task: 'fragile', schedule: '@every 1m', payload: {} },
  ]);
  await refuseTasks(db, 'plain');
  await time.set('2027-01-15T12:01:00Z');
  await lookAgain(scheduler);
  const [failed] = eventsOf('cron_failed', scheduler);
  expect(failed).toMatchObject({ entry: 'plain', error: { message: 'refused' } });
  expect(await takenTicks(db, 'plain')).toEqual([]);
  // The entry after it in the list is none the worse.
  expect(await takenTicks(db, 'fragile')).toEqual(['2027-01-15T12:01:00.000Z']);

  await sql`drop trigger refuse on taskq.async_tasks`.execute(db);
  const looked = scheduler.events.next('cron_looked');
  scheduler.clock.advance(Math.ceil(failed?.retryMs ?? 0));
  await looked;
  expect(await takenTicks(db, 'plain')).toEqual(['2027-01-15T12:01:00.000Z']);
});

test('a tick that cannot be enqueued is tried again with growing pauses, never without one', async ({
  db,
  time,
  startScheduler,
}) => {
  const scheduler = await startScheduler(everyMinute);
  await refuseTasks(db, 'plain');
  await time.set('2027-01-15T12:01:00Z');
  await lookAgain(scheduler);
  for (let failures = 2; failures <= 8; failures += 1) {
    const looked = scheduler.events.next('cron_looked');
    const waitMs = scheduler.clock.nextInMs as number;
    expect(waitMs).toBeGreaterThanOrEqual(Math.min(5_000, 100 * 2 ** (failures - 2)) / 2);
    scheduler.clock.advance(waitMs);
    await looked;
    expect(scheduler.events.of('cron_failed')).toHaveLength(failures);
  }
});

test('a tick is refused while the database says that it is not due, whatever the replica thinks', async ({
  db,
  time,
}) => {
  const cron = cronOf(everyMinute);
  const [entry] = cron.entries;
  const tick = Date.parse('2027-01-15T12:01:00Z');
  await time.set('2027-01-15T12:00:59Z');
  const pool = new pg.Pool(time.connection);
  await using clocked = new Kysely<DB>({ dialect: new PostgresDialect({ pool }) });
  const take = () => takeAndEnqueue(cron, writeLaneOf(clocked), entry as NonNullable<typeof entry>, tick);

  expect(await take()).toMatchObject({ answer: 'early' });
  expect(await tickRows(db, 'plain')).toEqual([]);
  await time.set('2027-01-15T12:01:00Z');
  expect(await take()).toMatchObject({ answer: 'enqueued' });
  expect(await take()).toMatchObject({ answer: 'lost' });
});

test('the tick says what it enqueued, and the task which tick it is of', async ({
  db,
  time,
  startScheduler,
}) => {
  const scheduler = await startScheduler([
    {
      name: 'the seven',
      task: 'plain',
      schedule: '*/5 * * * *',
      timeZone: 'Europe/Berlin',
      payload: { n: 7 },
      queue: 'low',
      maxAttempts: 3,
      timeout: '1m',
      retention: '24h',
      headers: { origin: 'cron' },
    },
  ]);
  await time.set('2027-01-15T12:05:00.250Z');
  await lookAgain(scheduler);

  const [task] = await allRows(db);
  expect(task).toMatchObject({
    task_type: 'plain',
    queue: 'low',
    payload: { n: 7 },
    max_attempts: 3,
    ceiling_ms: 60_000,
    retention_ms: 86_400_000,
    headers: {
      origin: 'cron',
      'taskq-cron-entry': 'the seven',
      'taskq-cron-tick': '2027-01-15T12:05:00.000Z',
    },
  });
  const taskId = String(task?.['id']);
  expect((await tickRows(db, 'the seven')).at(-1)).toMatchObject({
    outcome: 'enqueued',
    task_id: taskId,
    schedule: '*/5 * * * * Europe/Berlin',
  });
  const [event] = eventsOf('cron_enqueued', scheduler);
  expect(event).toMatchObject({ entry: 'the seven', tick: '2027-01-15T12:05:00.000Z', taskId });
  expect(event?.lateMs).toBeGreaterThanOrEqual(250);
});

test('a stop lets the tick under way be taken whole, and takes no other', async ({
  db,
  database,
  time,
  startScheduler,
}) => {
  const scheduler = await startScheduler([
    ...everyMinute,
    { task: 'fragile', schedule: '@every 1m', payload: {} },
  ]);
  await time.set('2027-01-15T12:01:00Z');
  await using held = await holdTransaction(db);
  await sql`lock table taskq.async_tasks in share mode`.execute(held.tx);
  scheduler.clock.advance(60_000);
  await waitUntilBlocked(database.url);
  const stopped = scheduler.app.stop();
  await held.release();
  await stopped;

  expect(await takenTicks(db, 'plain')).toEqual(['2027-01-15T12:01:00.000Z']);
  expect(await allRows(db)).toMatchObject([{ task_type: 'plain' }]);
  expect(scheduler.events.all.at(-1)).toEqual({ kind: 'stopped' });
});

test('cron goes on enqueuing into a queue that is paused', async ({ db, time, startScheduler }) => {
  await db.insertInto('async_queues').values({ name: 'default', paused_at: new Date() }).execute();
  const scheduler = await startScheduler(everyMinute);
  await time.set('2027-01-15T12:01:00Z');
  await lookAgain(scheduler);

  expect(await allRows(db)).toHaveLength(1);
});

async function insertTick(db: Kysely<DB>, tick: string): Promise<void> {
  await db
    .insertInto('async_cron_ticks')
    .values({ entry: 'plain', tick, outcome: 'enqueued', schedule: '@every 1m' })
    .execute();
}

/** Nothing of the type can be inserted from now on. */
async function refuseTasks(db: Kysely<DB>, type: string): Promise<void> {
  await sql`create function taskq.refuse() returns trigger language plpgsql as
    $$ begin raise exception 'refused'; end $$`.execute(db);
  await sql`create trigger refuse before insert on taskq.async_tasks for each row
    when (new.task_type = ${sql.lit(type)}) execute function taskq.refuse()`.execute(db);
}
