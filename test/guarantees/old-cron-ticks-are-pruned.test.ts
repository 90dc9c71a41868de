import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { pruneOldTicks } from '../../src/maintenance/pruner.ts';
import { openOperator } from '../../src/operator.ts';
import { pruneTicks } from '../../src/statements/cron.ts';
import { test as cronTest, lookAgain, takenTicks } from '../support/cron.ts';
import { writeLaneOf } from '../support/rows.ts';
import { expect, test } from '../support/test.ts';

/** One tick a day, so many days back. */
async function insertTicks(db: Kysely<DB>, entry: string, fromDay: number, toDay: number): Promise<void> {
  await sql`insert into taskq.async_cron_ticks (entry, tick, outcome, schedule)
    select ${entry}, now() - day * interval '1 day', 'enqueued', '@every 24h'
    from generate_series(${fromDay}::int, ${toDay}::int) as day`.execute(db);
}

async function daysKept(db: Kysely<DB>): Promise<Record<string, number[]>> {
  const { rows } = await sql<{ entry: string; days: number[] }>`
    select entry, array_agg(extract(day from now() - tick)::int order by tick desc) as days
    from taskq.async_cron_ticks group by entry`.execute(db);
  return Object.fromEntries(rows.map(({ entry, days }) => [entry, days]));
}

test('ticks older than 30 days are pruned, but the newest of an entry only after 400 days', async ({
  db,
}) => {
  await insertTicks(db, 'daily', 0, 60);
  await insertTicks(db, 'yearly', 399, 399);
  await insertTicks(db, 'seldom', 399, 405);
  await insertTicks(db, 'removed', 401, 460);

  await pruneOldTicks(writeLaneOf(db));

  expect(await daysKept(db)).toEqual({
    daily: Array.from({ length: 30 }, (_, day) => day),
    yearly: [399],
    seldom: [399],
  });
});

test('a prune goes on batch by batch, and leaves what another has locked for the next', async ({ db }) => {
  await insertTicks(db, 'a', 100, 1_700);
  await insertTicks(db, 'b', 100, 1_700);
  expect(await pruneTicks(writeLaneOf(db))).toEqual({ hasMore: true });
  await db.transaction().execute(async (tx) => {
    await sql`select from taskq.async_cron_ticks where entry = 'a' and tick < now() - interval '150 days' for update`.execute(
      tx,
    );
    await pruneOldTicks(writeLaneOf(db));
    const kept = await daysKept(db);
    expect(kept['b']).toEqual([100]);
    expect(kept['a']?.length).toBeGreaterThan(1);
  });
  await pruneOldTicks(writeLaneOf(db));
  expect(await daysKept(db)).toEqual({ a: [100], b: [100] });
});

test('an operator’s prune takes the ticks, too', async ({ db, database }) => {
  await insertTicks(db, 'daily', 29, 31);
  const operator = await openOperator({ database: database.url });
  await operator.prune({ retentionMs: 0 });
  await operator.close();
  expect(await daysKept(db)).toEqual({ daily: [29] });
});

cronTest(
  'a tick that was pruned is not taken again, and the next one is',
  async ({ db, time, startScheduler }) => {
    const entries = [{ task: 'plain', schedule: '@every 24h', missed: { all: 1_000 } }] as const;
    const before = await startScheduler(entries);
    for (const day of ['16', '17']) {
      await time.set(`2027-01-${day}T00:00:00Z`);
      await lookAgain(before);
    }
    await before.app.stop();
    await time.set('2027-02-20T00:00:30Z');
    await sql`delete from taskq.async_cron_ticks where tick < '2027-01-17T00:00:00Z'`.execute(db);
    await startScheduler(entries);

    const taken = await takenTicks(db, 'plain');
    expect(taken[0]).toBe('2027-01-17T00:00:00.000Z');
    expect(taken.at(-1)).toBe('2027-02-20T00:00:00.000Z');
    expect(taken).toHaveLength(35);
  },
);
