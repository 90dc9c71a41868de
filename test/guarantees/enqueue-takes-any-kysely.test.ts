import { cp, mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import {
  CamelCasePlugin,
  Kysely,
  type KyselyPlugin,
  type PluginTransformQueryArgs,
  type PluginTransformResultArgs,
  PostgresDialect,
  type QueryResult,
  type RootOperationNode,
  sql,
  type UnknownRow,
} from 'kysely';
import pg from 'pg';
import { expect, onTestFinished } from 'vitest';
import { z } from 'zod';
import { createEnqueuer, defineTask, dequeueUnleased } from '../../src/index.ts';
import { allRows } from '../support/rows.ts';
import { enqueue, enqueueMany } from '../support/tasks.ts';
import { test } from '../support/test.ts';

interface Business {
  orders: { orderId: number; createdBy: string };
}

test('enqueue works inside a transaction with CamelCasePlugin and a schema of its own', async ({
  database,
  db,
}) => {
  await sql`create schema business`.execute(db);
  await sql`create table business.orders (order_id int, created_by text)`.execute(db);
  // A table of the same name in the caller's schema must not be mistaken for the queue's.
  await sql`create table business.async_tasks (id int)`.execute(db);
  const pool = new pg.Pool(database.connection);
  const plugins = [new CamelCasePlugin()];
  const app = new Kysely<Business>({ dialect: new PostgresDialect({ pool }), plugins }).withSchema(
    'business',
  );

  try {
    const ids = await app.transaction().execute(async (tx) => {
      await tx.insertInto('orders').values({ orderId: 1, createdBy: 'me' }).execute();
      const one = await enqueue(tx, 'plain', { n: 1 }, { headers: { snake_case: 'a', camelCase: 'b' } });
      const many = await enqueueMany(tx, 'plain', [{ n: 2 }, { n: 3 }]);
      const inline = await enqueue(tx, 'plain', { n: 4 });
      expect(await dequeueUnleased(tx, inline.id)).toBe(true);
      return [one, ...many].map(({ id }) => id);
    });

    const rows = await allRows(db);
    expect(rows).toMatchObject([
      { payload: { n: 1 }, headers: { snake_case: 'a', camelCase: 'b' } },
      { payload: { n: 2 }, headers: {} },
      { payload: { n: 3 }, headers: {} },
    ]);
    expect(rows.map((row) => String(row['id']))).toEqual(ids);
    expect(await app.selectFrom('orders').selectAll().execute()).toEqual([{ orderId: 1, createdBy: 'me' }]);
  } finally {
    await app.destroy();
  }
});

test('a plugin of the caller touches neither what is stored nor what is answered', async ({
  database,
  db,
}) => {
  const record = defineTask({ type: 'record', payload: z.record(z.string(), z.unknown()), ceiling: '1m' });
  const records = createEnqueuer({ record: { definition: record, revision: 1 } });
  const pool = new pg.Pool(database.connection);
  const plugins = [new CamelCasePlugin({ maintainNestedObjectKeys: false }), new ShoutingPlugin()];
  const app = new Kysely<Business>({ dialect: new PostgresDialect({ pool }), plugins });
  const payload = { snake_case: { inner_key: 1 }, camelCase: [{ innerKey: 2 }] };

  try {
    const { id } = await records.enqueue(app, 'record', payload);
    expect(await allRows(db)).toMatchObject([{ id: Number(id), payload, task_type: 'record' }]);
  } finally {
    await app.destroy();
  }
});

/** Renames every column of every answer. */
class ShoutingPlugin implements KyselyPlugin {
  transformQuery({ node }: PluginTransformQueryArgs): RootOperationNode {
    return node;
  }

  async transformResult({ result }: PluginTransformResultArgs): Promise<QueryResult<UnknownRow>> {
    const shout = (row: UnknownRow) =>
      Object.fromEntries(Object.entries(row).map(([name, value]) => [name.toUpperCase(), value]));
    return { ...result, rows: result.rows.map(shout) };
  }
}

/** The package once more, in a folder of its own: it shares nothing with the one that taskq has imported. */
async function anotherKysely(): Promise<typeof import('kysely')> {
  const entry = createRequire(import.meta.url).resolve('kysely');
  const folder = entry.slice(0, entry.indexOf(KYSELY) + KYSELY.length);
  const copy = await mkdtemp(path.join(tmpdir(), 'taskq-another-kysely-'));
  onTestFinished(() => rm(copy, { recursive: true, force: true }));
  await cp(folder, path.join(copy, KYSELY), { recursive: true });
  return import(pathToFileURL(path.join(copy, KYSELY, path.relative(folder, entry))).href);
}

const KYSELY = path.join('node_modules', 'kysely');

test('enqueue works in a transaction of another copy of Kysely', async ({ database, db }) => {
  const other = await anotherKysely();
  const dialect = new other.PostgresDialect({ pool: new pg.Pool(database.connection) });
  const app = new other.Kysely<Business>({ dialect, plugins: [new other.CamelCasePlugin()] });
  expect(app).not.toBeInstanceOf(Kysely);
  const undone = new Error('the business change fails');

  try {
    const ids = await app.transaction().execute(async (tx) => {
      const one = await enqueue(tx, 'plain', { n: 1 });
      const many = await enqueueMany(tx, 'plain', [{ n: 2 }, { n: 3 }]);
      const inline = await enqueue(tx, 'plain', { n: 4 });
      expect(await dequeueUnleased(tx, inline.id)).toBe(true);
      return [one, ...many].map(({ id }) => id);
    });
    const rolledBack = app.transaction().execute(async (tx) => {
      await enqueue(tx, 'plain', { n: 5 });
      throw undone;
    });

    await expect(rolledBack).rejects.toBe(undone);
    const rows = await allRows(db);
    expect(rows).toMatchObject([{ payload: { n: 1 } }, { payload: { n: 2 } }, { payload: { n: 3 } }]);
    expect(rows.map((row) => String(row['id']))).toEqual(ids);
  } finally {
    await app.destroy();
  }
});
