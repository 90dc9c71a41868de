import { Kysely, PostgresDialect, sql } from 'kysely';
import pg from 'pg';
import { describe, expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { migrateUp } from '../../src/index.ts';
import { extendLease } from '../../src/statements/settle.ts';
import { createTestClock, drain, enqueuedIn } from '../../src/testing/index.ts';
import { cronOf, test as cronTest } from '../support/cron.ts';
import { administer, urlOf } from '../support/databases.ts';
import { gate, test as replicaTest } from '../support/replica.ts';
import { claimRow, rowOf, writeLaneOf } from '../support/rows.ts';
import { enqueue, handlersFor } from '../support/tasks.ts';
import { test as databaseTest, inject } from '../support/test.ts';

const HOUR_MS = 3_600_000;

const test = databaseTest.extend<{ clocked: (connection: pg.ClientConfig) => Kysely<DB> }>({
  // biome-ignore lint/correctness/noEmptyPattern: vitest reads the fixtures wanted from the pattern.
  clocked: async ({}, use) => {
    const pools: Kysely<DB>[] = [];
    await use((connection) => {
      const pool = new pg.Pool({ ...connection, max: 1 });
      pool.on('error', () => {});
      const db = new Kysely<DB>({ dialect: new PostgresDialect({ pool }) });
      pools.push(db);
      return db;
    });
    await Promise.all(pools.map((db) => db.destroy()));
  },
});

/** Milliseconds by which now() and clock_timestamp() of a connection are ahead of the real time, to the second. */
async function aheadMs(db: Kysely<DB>): Promise<{ now: number; clock: number; default: number }> {
  const { rows } = await sql<{ now: number; clock: number }>`select
    round(extract(epoch from now() - pg_catalog.now()))::int * 1000 as now,
    round(extract(epoch from clock_timestamp() - pg_catalog.clock_timestamp()))::int * 1000 as clock`.execute(
    db,
  );
  const real = await sql<{ now: Date }>`select pg_catalog.clock_timestamp() as now`.execute(db);
  const { id } = await enqueue(db, 'plain', {});
  const [task] = (await enqueuedIn(db)).filter((each) => each.id === id);
  const difference = Number(task?.runAt) - Number(real.rows[0]?.now);
  const { now, clock } = rows[0] ?? { now: Number.NaN, clock: Number.NaN };
  return { now, clock, default: Math.round(difference / 1_000) * 1_000 };
}

const same = (ms: number) => ({ now: ms, clock: ms, default: ms });

test('the clock moves now(), clock_timestamp() and the queue’s column defaults together, on its connections', async ({
  database,
  db,
  clocked,
}) => {
  const clock = await createTestClock(database.connection);
  const moved = clocked(clock.connection);

  expect(await aheadMs(moved)).toEqual(same(0));
  await clock.advance('2h');
  await clock.advance(HOUR_MS);
  expect(await aheadMs(moved)).toEqual(same(3 * HOUR_MS));
  // Another connection keeps the real time, but for the defaults, which belong to the table.
  expect(await aheadMs(db)).toEqual({ now: 0, clock: 0, default: 3 * HOUR_MS });
  await clock.reset();
  expect(await aheadMs(moved)).toEqual(same(0));
});

test('set puts the time to a moment, in the past too, from where it runs on', async ({
  database,
  clocked,
}) => {
  const clock = await createTestClock(database.connection);
  const moved = clocked(clock.connection);

  for (const moment of ['2031-03-30T00:59:59Z', '2001-01-01T00:00:00Z']) {
    const at = new Date(moment).getTime();
    expect((await clock.set(moment)).getTime()).toBeGreaterThanOrEqual(at);
    const { rows } = await sql<{ now: Date }>`select now()`.execute(moved);
    for (const now of [await clock.now(), rows[0]?.now]) {
      expect(Number(now)).toBeGreaterThanOrEqual(at - 1);
      expect(Number(now)).toBeLessThan(at + 60_000);
    }
    // What is enqueued in the past is due in the past.
    await enqueue(moved, 'plain', {});
    expect(await drain({ db: moved, handlers: handlersFor() })).toMatchObject([{ outcome: 'success' }]);
  }
  await expect(clock.set('soon')).rejects.toMatchObject({ code: 'OPTION_INVALID' });
  await expect(clock.advance('-1h' as never)).rejects.toMatchObject({ code: 'DURATION_INVALID' });
});

test('leases, backoffs, delays and due times move together', async ({ database, clocked }) => {
  const clock = await createTestClock(database.connection);
  const db = clocked(clock.connection);
  const handlers = handlersFor({
    fragile: () => {
      throw new Error('boom');
    },
  });
  const failing = await enqueue(db, 'fragile', {});
  expect(await drain({ db, handlers })).toMatchObject([{ id: failing.id, outcome: 'failure' }]);
  const held = await enqueue(db, 'plain', {});
  await claimRow(db, held.id);
  const delayed = await enqueue(db, 'plain', {}, { delay: '2h' });
  const dated = await enqueue(db, 'plain', {}, { runAt: new Date(Date.now() + 3 * HOUR_MS) });
  const ran = async () => (await drain({ db, handlers })).map(({ id }) => id);

  expect(await ran()).toEqual([]);
  await clock.advance('2s');
  expect(await ran()).toEqual([failing.id]);
  await clock.advance('6m');
  expect(await ran()).toEqual(expect.arrayContaining([held.id]));
  await clock.advance('2h');
  expect(await ran()).toEqual([delayed.id]);
  await clock.advance('1h');
  expect(await ran()).toEqual([dated.id]);
});

test('a prepared statement and its generic plan follow the clock', async ({ database, clocked }) => {
  const clock = await createTestClock(database.connection);
  const db = clocked(clock.connection);
  await sql`set plan_cache_mode = force_generic_plan`.execute(db);
  await sql`prepare due as select count(*)::int as count from taskq.async_tasks where run_at <= now()`.execute(
    db,
  );
  const due = async () => (await sql<{ count: number }>`execute due`.execute(db)).rows[0]?.count;
  await enqueue(db, 'plain', {}, { delay: '1h' });

  expect(await due()).toBe(0);
  await clock.advance('2h');
  expect(await due()).toBe(1);
  await clock.reset();
  expect(await due()).toBe(0);
});

test('the index of the discovery serves under the clock too', async ({ database, clocked }) => {
  const clock = await createTestClock(database.connection);
  const db = clocked(clock.connection);
  await sql`set enable_seqscan = off`.execute(db);

  const { rows } = await sql<Record<string, string>>`explain select id from taskq.async_tasks
    where queue = 'default' and run_at <= now() and not exhausted order by run_at limit 1`.execute(db);

  const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
  expect(plan).toMatch(/Index Cond: .*run_at <= now\(\)/);
});

test('a transaction sees the clock move, at its next statement', async ({ database, clocked }) => {
  const clock = await createTestClock(database.connection);
  await clocked(clock.connection)
    .transaction()
    .execute(async (tx) => {
      const { id } = await enqueue(tx, 'plain', {}, { delay: '1h' });
      expect(await drain({ db: tx, handlers: handlersFor() })).toEqual([]);
      await clock.advance('2h');
      expect(await drain({ db: tx, handlers: handlersFor() })).toMatchObject([{ id, outcome: 'success' }]);
    });
});

test('a heartbeat after the clock has passed its claim’s limit extends nothing', async ({
  database,
  clocked,
}) => {
  const clock = await createTestClock(database.connection);
  const db = clocked(clock.connection);
  const { id } = await enqueue(db, 'plain', {});
  const task = await claimRow(db, id);
  await clock.advance('1h');

  const stamp = await extendLease(writeLaneOf(db), task.lease, { leaseMs: 3_000, limitMs: 330_000 });

  expect(Number(stamp?.leaseExpiresAt.dbMs)).toBeLessThan(Number(stamp?.databaseNow.dbMs));
});

describe('a replica on the clock’s connections', () => {
  const replica = replicaTest;

  replica(
    'takes delayed, failed and abandoned tasks when the clock moves, woken by it',
    async ({ database, db, startReplica }) => {
      const clock = await createTestClock(database.connection);
      let failures = 0;
      const { events } = await startReplica({
        database: clock.connection,
        handlers: {
          fragile: async () => {
            failures += 1;
            if (failures === 1) throw new Error('boom');
          },
        },
      });
      const failing = await enqueue(db, 'fragile', {});
      await events.first('settled', ({ task }) => task.id === failing.id);
      const delayed = await enqueue(db, 'plain', {}, { delay: '1h' });
      // A worker took it and died.
      const abandoned = await enqueue(db, 'plain', {}, { delay: '2h' });
      await claimedByTheDead(db, abandoned.id);

      await clock.advance('3h');

      for (const { id } of [failing, delayed, abandoned]) {
        await events.first('settled', ({ task, outcome }) => task.id === id && outcome === 'success');
      }
      // The replicas' own clock has not moved, and the difference is what they warn about.
      const { offsetMs } = await events.first('clock_offset');
      expect(offsetMs).toBeGreaterThan(2 * HOUR_MS);
    },
  );

  replica(
    'keeps the deadline of a handler that is running, and loses its lease to another',
    async ({ database, db, startReplica }) => {
      const clock = await createTestClock(database.connection);
      const [started, ending] = [gate(), gate()];
      const signals: AbortSignal[] = [];
      const remaining: number[] = [];
      const first = await startReplica({
        database: clock.connection,
        slots: 1,
        handlers: {
          plain: async (_payload, { signal, remainingMs }) => {
            signals.push(signal);
            started.open();
            await ending.promise;
            remaining.push(remainingMs());
          },
        },
      });
      const { id } = await enqueue(db, 'plain', {});
      await started.promise;
      await clock.advance('1h');
      const second = await startReplica({ database: clock.connection, handlers: {} });
      expect(await second.events.first('settled')).toMatchObject({
        task: { id, attempt: 2 },
        outcome: 'success',
      });

      ending.open();

      expect(await first.events.first('settled')).toMatchObject({
        task: { id, attempt: 1 },
        outcome: 'lost',
      });
      expect(signals[0]?.aborted).toBe(false);
      expect(remaining[0]).toBeGreaterThan(0);
    },
  );
});

describe('a clock is refused', () => {
  test('for a database whose name has no test in it, unless it is said to be one', async ({ database }) => {
    const renamed = `contest_${database.name.slice(-8)}`;
    const serverUrl = inject('serverUrl');
    await administer(serverUrl, `create database ${renamed}`);
    try {
      const url = urlOf(serverUrl, renamed);
      await migrateUp(url);

      await expect(createTestClock(url)).rejects.toMatchObject({
        code: 'CONFIG_INVALID',
        message: expect.stringContaining("{ allow: 'this is a test database' }"),
      });
      await expect(createTestClock(url, { allow: 'yes' as never })).rejects.toMatchObject({
        code: 'CONFIG_INVALID',
      });
      const clock = await createTestClock(url, { allow: 'this is a test database' });
      expect(Number(await clock.advance('2h'))).toBeGreaterThan(Date.now() + HOUR_MS);
    } finally {
      await administer(serverUrl, `drop database ${renamed} with (force)`);
    }
  });

  test('before its schema is migrated, and nothing is left behind', async ({ database, db }) => {
    await expect(createTestClock(database.url, { schema: 'elsewhere' })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringContaining("'elsewhere'"),
    });
    const { rows } = await sql`select 1 from pg_namespace where nspname = 'taskq_test_clock'`.execute(db);
    expect(rows).toEqual([]);
  });
});

test('remove takes the clock out: defaults as they were, its schema gone, its connections on real time', async ({
  database,
  db,
  clocked,
}) => {
  const before = await tableDefaults(db);
  const clock = await createTestClock(database.connection);
  const moved = clocked(clock.connection);
  await clock.advance('2h');
  expect(await tableDefaults(db)).not.toEqual(before);

  await clock.remove();

  expect(await tableDefaults(db)).toEqual(before);
  expect(await aheadMs(moved)).toEqual(same(0));
  await clock.remove();
});

test('a unique enqueue follows the clock, and the real time once it is removed', async ({
  database,
  db,
  clocked,
}) => {
  const before = await searchPaths(db);
  const clock = await createTestClock(database.connection);
  const moved = clocked(clock.connection);
  const unique = { key: 'k', while: { window: '1h' } } as const;
  await enqueue(moved, 'plain', {}, { unique });
  expect(await enqueue(moved, 'plain', {}, { unique })).toMatchObject({ status: 'existing' });

  await clock.advance('2h');

  const { id, status } = await enqueue(moved, 'plain', {}, { unique });
  expect(status).toBe('enqueued');
  await clock.remove();
  expect(await searchPaths(db)).toEqual(before);
  expect(await enqueue(db, 'plain', {}, { unique })).toEqual({ id, status: 'existing' });
});

/** Of the queue's functions. */
async function searchPaths(db: Kysely<DB>): Promise<unknown[]> {
  const { rows } = await sql`select proname, proconfig from pg_proc
    where pronamespace = 'taskq'::regnamespace order by 1`.execute(db);
  return rows;
}

test('one clock serves every queue of its database, however often and by whomever it is created', async ({
  database,
  db,
  clocked,
}) => {
  const other = 'Other "queue"';
  await migrateUp(database.url, { schema: other });
  const clocks = await Promise.all([
    createTestClock(database.connection),
    createTestClock(database.url),
    createTestClock(database.connection, { schema: other }),
  ]);
  await clocks[1]?.advance('2h');

  for (const clock of clocks) {
    const moved = clocked(clock.connection);
    expect(await aheadMs(moved)).toEqual(same(2 * HOUR_MS));
    expect(Number(await clock.now())).toBeGreaterThan(Date.now() + HOUR_MS);
  }
  const { rows } = await sql<{
    at: Date;
  }>`insert into ${sql.table(`${other}.async_tasks`)} (task_type, payload)
    values ('plain', '{}') returning run_at as at`.execute(db);
  expect(Number(rows[0]?.at)).toBeGreaterThan(Date.now() + HOUR_MS);
});

test('a role that may only use the queue tells the time of the clock too', async ({
  database,
  db,
  clocked,
}) => {
  const role = `taskq_worker_${database.name.slice(-8)}`;
  await sql`create role ${sql.id(role)} login password 'secret'`.execute(db);
  await sql`grant usage on schema taskq to ${sql.id(role)}`.execute(db);
  await sql`grant all on all tables in schema taskq to ${sql.id(role)}`.execute(db);
  try {
    const clock = await createTestClock(database.connection);
    await clock.advance('2h');
    const worker = clocked({ ...clock.connection, user: role, password: 'secret' });
    expect(await aheadMs(worker)).toEqual(same(2 * HOUR_MS));
    await worker.destroy();
  } finally {
    await sql`drop owned by ${sql.id(role)}`.execute(db);
    await sql`drop role ${sql.id(role)}`.execute(db);
  }
});

/** Every column default of the queue's tables, as text. */
async function tableDefaults(db: Kysely<DB>): Promise<unknown[]> {
  const { rows } = await sql`select a.attname, pg_get_expr(d.adbin, d.adrelid) as expression
    from pg_attrdef d join pg_attribute a on a.attrelid = d.adrelid and a.attnum = d.adnum
      join pg_class c on c.oid = d.adrelid
    where c.relnamespace = 'taskq'::regnamespace order by 1`.execute(db);
  return rows;
}

async function claimedByTheDead(db: Kysely<DB>, id: Parameters<typeof rowOf>[1]): Promise<void> {
  await sql`update taskq.async_tasks set run_at = now(), lease_token = gen_random_uuid(),
    lease_expires_at = now() + interval '1 hour' where id = ${id}`.execute(db);
  expect(await rowOf(db, id)).toMatchObject({ lease_token: expect.any(String) });
}

cronTest(
  'a scheduler looks at once when the clock is moved, not after its minute',
  async ({ database, startReplica }) => {
    const clock = await createTestClock(database.url);
    await clock.set('2027-01-15T12:00:30Z');
    const { events } = await startReplica({
      database: clock.connection,
      roles: ['processor', 'cron'],
      cron: cronOf([{ task: 'plain', schedule: '0 13 * * *' }]),
    });
    await events.first('cron_looked');

    await clock.set('2027-01-15T13:00:00Z');
    expect(await events.first('cron_enqueued')).toMatchObject({ tick: '2027-01-15T13:00:00.000Z' });
    expect(await events.first('settled')).toMatchObject({ outcome: 'success', task: { type: 'plain' } });
  },
);
