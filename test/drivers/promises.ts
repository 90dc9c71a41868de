import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { decodePayload } from '../../src/domain/payload-codec.ts';
import { createEnqueuer, dequeueUnleased, type QueryExecutor } from '../../src/index.ts';
import type { TestDatabase } from '../support/databases.ts';
import { test as replicaTest } from '../support/replica.ts';
import { allRows } from '../support/rows.ts';
import { expect, TEST_SCHEMA } from '../support/test.ts';
import { hearWakes } from '../support/wakes.ts';
import { enqueue, enqueueMany, tasks, tellingHandlers } from './tasks.ts';

/** A library, connected to the test's database, which has a table `orders`. */
interface Driver {
  /** The library's own transaction: commits when `work` resolves, rolls back with what it throws. */
  transaction(work: (tx: QueryExecutor, insertOrder: InsertOrder) => Promise<void>): Promise<void>;
  /** The example of the page. */
  placeOrder(id: number): Promise<void>;
  close(): Promise<unknown>;
}

type InsertOrder = (id: number) => PromiseLike<unknown>;

export interface DriverOptions {
  readonly open: (database: TestDatabase) => Promise<Driver>;
  /** The name of the error that the library throws for a refused statement. */
  readonly errorName: string;
  /** PostgreSQL's error code in such an error. */
  readonly sqlState: (error: unknown) => unknown;
}

/** Undoes the transaction of a test. */
const undone = new Error('the business change fails');

/** What a driver could change on the way: each must arrive as it was sent. */
const payload = {
  unicode: 'äöü 日本 😀 \u2028 \0 \ud83d \\ \' " $1 ? :name',
  nothing: null,
  nested: [[1, [2, []]], [[[{ deep: [null, true] }]]]],
  moment: new Date('2026-01-31T12:00:00.123Z'),
  large: 9_007_199_254_740_993n,
  digits: '12',
  number: 12.5,
  array: ['a', 'b,c', '{}'],
  empty: {},
};

/** Every value that is JSON by itself: a driver that guesses by the type of a parameter would get these wrong. */
const bareValues = ['12', 'text', '', 12, -0, true, null, [], [1, 'a'], {}, { a: 1 }, 3n, new Date(0)];

/** The promises of enqueue, each proved in the transactions of a real library. */
export function keepsThePromises({ open, errorName, sqlState }: DriverOptions): void {
  const test = replicaTest.extend<{ driver: Driver }>({
    driver: async ({ database, db }, use) => {
      await sql`create table public.orders (id int primary key, note text not null default '')`.execute(db);
      const driver = await open(database);
      await use(driver);
      await driver.close();
    },
  });

  test('limits of one enqueue arrive, and one with wake poll sends no notification', async ({
    database,
    db,
    driver,
  }) => {
    const wakes = await hearWakes(database);
    const limits = { timeout: '10s', retention: '24h', wake: 'poll' } as const;

    await driver.transaction(async (tx) => {
      await enqueue(tx, 'order_placed', { orderId: 1 }, { wake: 'poll' });
      await enqueue(tx, 'order_placed', { orderId: 2 }, limits);
      await enqueue(tx, 'order_placed', { orderId: 3 }, { ...limits, unique: { while: 'live' } });
      await enqueueMany(tx, 'order_placed', [{ orderId: 4 }, { orderId: 5 }], limits);
      await enqueueMany(tx, 'order_placed', new Set([{ orderId: 6 }, { orderId: 7 }]), limits);
    });

    const rows = await allRows(db);
    expect(rows.map((row) => [row['ceiling_ms'], row['retention_ms']])).toEqual([
      [null, null],
      ...Array.from({ length: 6 }, () => [10_000, 86_400_000]),
    ]);
    expect(await wakes.count()).toBe(0);
  });

  test('a commit brings the task, the business change and one wake', async ({ database, db, driver }) => {
    const wakes = await hearWakes(database);
    const ids: string[] = [];

    await driver.transaction(async (tx, insertOrder) => {
      ids.push((await enqueue(tx, 'order_placed', { orderId: 1 })).id);
      await insertOrder(1);
      ids.push((await enqueue(tx, 'order_placed', { orderId: 2 }, { headers: { trace: 'a"b' } })).id);
      expect(await allRows(db)).toEqual([]);
      expect(await wakes.count()).toBe(0);
    });

    const rows = await allRows(db);
    expect(rows).toMatchObject([
      { task_type: 'order_placed', payload: { orderId: 1 }, payload_revision: 1, headers: {} },
      { task_type: 'order_placed', payload: { orderId: 2 }, headers: { trace: 'a"b' } },
    ]);
    expect(rows.map((row) => String(row['id']))).toEqual(ids);
    expect(await orderIds(db)).toEqual([1]);
    expect(await wakes.count()).toBe(1);
  });

  test('a rollback leaves no task, no business change and no wake', async ({ database, db, driver }) => {
    const wakes = await hearWakes(database);

    const transaction = driver.transaction(async (tx, insertOrder) => {
      await insertOrder(1);
      await enqueue(tx, 'order_placed', { orderId: 1 });
      await enqueueMany(tx, 'order_placed', [{ orderId: 2 }, { orderId: 3 }]);
      throw undone;
    });

    await expect(transaction).rejects.toBe(undone);
    expect(await allRows(db)).toEqual([]);
    expect(await orderIds(db)).toEqual([]);
    expect(await wakes.count()).toBe(0);
  });

  test('enqueueMany writes 2,500 tasks in their order, with one wake', async ({ database, db, driver }) => {
    const wakes = await hearWakes(database);
    const payloads = Array.from({ length: 2_500 }, (_, orderId) => ({ orderId }));
    let ids: string[] = [];

    await driver.transaction(async (tx) => {
      ids = (await enqueueMany(tx, 'order_placed', payloads)).map(({ id }) => id);
    });

    const rows = await allRows(db);
    expect(rows.map((row) => row['payload'])).toEqual(payloads);
    expect(rows.map((row) => String(row['id']))).toEqual(ids);
    expect(await wakes.count()).toBe(1);
  });

  test('a unique enqueue that finds its place taken answers so, and the business change commits', async ({
    db,
    driver,
  }) => {
    const unique = { by: ['orderId'], while: 'live' } as const;
    const answers: { id: string; status: string }[] = [];

    await driver.transaction(async (tx, insertOrder) => {
      answers.push(await enqueue(tx, 'order_placed', { orderId: 1 }, { unique }));
      answers.push(...(await enqueueMany(tx, 'order_placed', [{ orderId: 2 }, { orderId: 1 }], { unique })));
      await insertOrder(1);
    });

    expect(answers.map(({ status }) => status)).toEqual(['enqueued', 'enqueued', 'existing']);
    expect(answers[2]?.id).toBe(answers[0]?.id);
    expect(await allRows(db)).toMatchObject([{ payload: { orderId: 1 } }, { payload: { orderId: 2 } }]);
    expect(await orderIds(db)).toEqual([1]);
  });

  test('a payload is stored exactly, alone and in bulk', async ({ db, driver }) => {
    await driver.transaction(async (tx) => {
      for (const value of [payload, ...bareValues]) await enqueue(tx, 'anything', value);
      await enqueueMany(tx, 'anything', [payload, ...bareValues]);
    });

    expect(await storedPayloads(db)).toStrictEqual([payload, ...bareValues, payload, ...bareValues]);
  });

  test('a worker runs the task once it is committed, with the exact payload', async ({
    driver,
    startReplica,
  }) => {
    const told: unknown[] = [];
    const replica = await startReplica({ registry: tellingHandlers((value) => told.push(value)) });

    await driver.transaction(async (tx) => {
      await enqueue(tx, 'anything', payload);
    });

    await replica.events.first('settled');
    expect(told).toStrictEqual([payload]);
  });

  test('a task is due when its options say, by the database', async ({ database, db, driver }) => {
    const wakes = await hearWakes(database);
    const runAt = new Date('2090-01-31T12:00:00.123Z');

    await driver.transaction(async (tx) => {
      await enqueue(tx, 'order_placed', { orderId: 1 }, { runAt });
      await enqueue(tx, 'order_placed', { orderId: 2 }, { delay: '30m' });
      await enqueueMany(tx, 'order_placed', [{ orderId: 3 }, { orderId: 4 }], { runAt });
    });

    const [first, second, ...others] = await allRows(db);
    for (const row of [first, ...others]) expect(new Date(String(row?.['run_at']))).toEqual(runAt);
    expect(await secondsUntilDue(db, String(second?.['id']))).toBeCloseTo(30 * 60, -2);
    expect(await wakes.count()).toBe(0);
  });

  test('a unique task is enqueued once, and its place is told', async ({ db, driver }) => {
    const unique = { by: ['orderId'], while: 'live' } as const;
    const statuses: string[] = [];

    await driver.transaction(async (tx) => {
      const first = await enqueue(tx, 'order_placed', { orderId: 1 }, { unique });
      const again = await enqueue(tx, 'order_placed', { orderId: 1 }, { unique });
      const others = [{ orderId: 3 }, { orderId: 1 }, { orderId: 2 }];
      const many = await enqueueMany(tx, 'order_placed', others, { unique });
      expect(again.id).toBe(first.id);
      statuses.push(...[first, again, ...many].map(({ status }) => status));
    });

    expect(statuses).toEqual(['enqueued', 'existing', 'enqueued', 'existing', 'enqueued']);
    expect(await allRows(db)).toHaveLength(3);
  });

  test('a task done inline is dequeued in the transaction that enqueued it', async ({ db, driver }) => {
    await driver.transaction(async (tx) => {
      const { id } = await enqueue(tx, 'order_placed', { orderId: 1 });
      expect(await dequeueUnleased(tx, id)).toBe(true);
      expect(await dequeueUnleased(tx, id)).toBe(false);
    });

    expect(await allRows(db)).toEqual([]);
  });

  test("a database error is the library's own, and undoes the transaction", async ({ db, driver }) => {
    const misplaced = createEnqueuer(tasks, { schema: 'elsewhere' });
    let thrown: unknown;

    const transaction = driver.transaction(async (tx, insertOrder) => {
      await insertOrder(1);
      thrown = await misplaced.enqueue(tx, 'order_placed', { orderId: 1 }).catch((error: unknown) => error);
      throw thrown;
    });

    const error = await transaction.catch((reason: unknown) => reason);
    expect(error).toBe(thrown);
    expect((error as Error).constructor.name).toBe(errorName);
    expect(sqlState(error)).toBe('42P01');
    expect(await orderIds(db)).toEqual([]);
  });

  test('the example of the page commits both, or neither', async ({ db, driver }) => {
    await driver.placeOrder(7);
    // The order exists already: its task, enqueued before, must go with it.
    await expect(driver.placeOrder(7)).rejects.toThrow();

    expect(await orderIds(db)).toEqual([7]);
    expect(await allRows(db)).toMatchObject([{ task_type: 'order_placed', payload: { orderId: 7 } }]);
  });
}

async function orderIds(db: Kysely<DB>): Promise<number[]> {
  const { rows } = await sql<{ id: number }>`select id from public.orders order by id`.execute(db);
  return rows.map((row) => row.id);
}

async function storedPayloads(db: Kysely<DB>): Promise<unknown[]> {
  const table = sql.table(`${TEST_SCHEMA}.async_tasks`);
  const { rows } = await sql<{ text: string }>`
    select payload::text as text from ${table} order by id`.execute(db);
  return rows.map((row) => decodePayload(row.text));
}

async function secondsUntilDue(db: Kysely<DB>, id: string): Promise<number> {
  const table = sql.table(`${TEST_SCHEMA}.async_tasks`);
  const { rows } = await sql<{ seconds: number }>`
    select extract(epoch from run_at - now())::float8 as seconds from ${table} where id = ${id}`.execute(db);
  return Number(rows[0]?.seconds);
}
