import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import {
  GAUGE_DEAD_ROWS_MAX,
  GAUGE_LAST_ATTEMPTS_MAX,
  GAUGE_LIVE_ROWS_MAX,
} from '../../src/domain/limits.ts';
import { gaugesStatement, readGauges, settingsStatement } from '../../src/statements/gauges.ts';
import { explain, type Plan } from '../support/plans.ts';
import { insertRows, readLaneOf, writeLaneOf } from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/schema.ts';
import { expect, test } from '../support/test.ts';

// What a read of the gauges costs, in pages: not how long it takes here.

const TABLE = sql.table(`${TEST_SCHEMA}.async_tasks`);

const TYPES = ['plain', 'brief', 'sliced'];
/** The rows among which running ones are looked for, at a page each, and the index of those that are counted. */
const BUFFERS_MAX = TYPES.length * (GAUGE_LAST_ATTEMPTS_MAX + GAUGE_DEAD_ROWS_MAX / 40);
/** Before vacuum has been there, a page for each row that is counted. */
const UNVACUUMED_BUFFERS_MAX = BUFFERS_MAX + TYPES.length * GAUGE_DEAD_ROWS_MAX;

test('a read of the gauges costs the same at a million dead rows', async ({ db }) => {
  await sql`alter table ${TABLE} set (autovacuum_enabled = off)`.execute(db);
  await insertDead(db, 100_000);
  await insertLive(db, 100);
  await sql`vacuum (analyze) ${TABLE}`.execute(db);
  await insertDead(db, 900_000);

  const statisticsOfLess = await gaugesPlan(db);
  await sql`vacuum (analyze) ${TABLE}`.execute(db);
  const freshStatistics = await gaugesPlan(db);

  for (const plan of [statisticsOfLess, freshStatistics]) expect(plan.scanned).not.toContain('async_tasks');
  expect(statisticsOfLess.buffers).toBeLessThan(UNVACUUMED_BUFFERS_MAX);
  expect(freshStatistics.buffers).toBeLessThan(BUFFERS_MAX);
  const { counts } = await readGauges(readLaneOf(db));
  expect(counts).toHaveLength(TYPES.length);
  for (const each of counts) {
    expect(each).toMatchObject({ dead: GAUGE_DEAD_ROWS_MAX, due: 100, capped: ['dead'] });
  }
});

test('a task on its final attempt is found among many dead letters, as running', async ({ db }) => {
  await insertDead(db, 30_000);
  await insertRows(db, 3, { attemptCount: 20, leasedSeconds: 60, runAtSeconds: -5 });

  const { counts } = await readGauges(readLaneOf(db));

  expect(counts.find(({ type }) => type === 'plain')).toMatchObject({ running: 3, pending: 3, due: 0 });
});

test('a read of the gauges ends at its bound in a backlog, and says so', async ({ db }) => {
  await sql`alter table ${TABLE} set (autovacuum_enabled = off)`.execute(db);
  await sql`insert into ${TABLE} (task_type, payload, run_at)
    select 'plain', '{}', now() + interval '1 hour' + n * interval '1 second'
    from generate_series(1, ${3 * GAUGE_LIVE_ROWS_MAX}::int) n`.execute(db);

  const plan = await gaugesPlan(db);

  // One page of the table for some sixty such rows, and an entry of the index for each.
  expect(plan.buffers).toBeLessThan(GAUGE_LIVE_ROWS_MAX / 10);
  const { counts } = await readGauges(readLaneOf(db));
  expect(counts).toMatchObject([{ pending: GAUGE_LIVE_ROWS_MAX, due: 0, capped: ['pending'] }]);
});

test('the gauges are read in a transaction that the server gives up after two seconds', async ({ db }) => {
  const lane = writeLaneOf(db);
  await lane.executor.transaction().execute(async (blocker) => {
    await sql`lock table ${TABLE} in access exclusive mode`.execute(blocker);
    await expect(readGauges(readLaneOf(db))).rejects.toMatchObject({ code: '57014' });
  });
});

async function insertDead(db: Kysely<DB>, count: number): Promise<void> {
  await db.transaction().execute(async (transaction) => {
    // The server of the tests commits asynchronously, and vacuum takes no page for visible before it is flushed.
    await sql`set local synchronous_commit = on`.execute(transaction);
    await sql`insert into ${TABLE} (task_type, queue, payload, attempt_count, run_at)
      select (${TYPES}::text[])[1 + n % 3], 'default', '{}', 20, now() - n * interval '1 second'
      from generate_series(1, ${count}::int) n`.execute(transaction);
  });
}

async function insertLive(db: Kysely<DB>, count: number): Promise<void> {
  await sql`insert into ${TABLE} (task_type, queue, payload, run_at)
    select type, 'default', '{}', now() - n * interval '1 second'
    from generate_series(1, ${count}::int) n, unnest(${TYPES}::text[]) type`.execute(db);
}

/** As `readGauges` runs it. */
function gaugesPlan(db: Kysely<DB>): Promise<Plan> {
  return db.transaction().execute(async (transaction) => {
    await settingsStatement.run(readLaneOf(transaction), {});
    return explain(transaction, gaugesStatement, {});
  });
}
