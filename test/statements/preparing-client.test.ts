import { Kysely, PostgresDialect, sql } from 'kysely';
import pg from 'pg';
import { PreparingClient } from '../../src/index.ts';
import { allRows } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { expect, test } from '../support/test.ts';

test('a preparing client prepares what the queue sends, and nothing else', async ({ db, database }) => {
  const pool = new pg.Pool({ ...database.connection, max: 1, Client: PreparingClient });
  const application = new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) });

  for (let call = 0; call < 3; call += 1) {
    await application.transaction().execute(async (transaction) => {
      await sql`select ${call}::int`.execute(transaction);
      await enqueue(transaction, 'plain', { n: call });
    });
  }
  const prepared = await sql<{ statement: string }>`
    select statement from pg_prepared_statements`.execute(application);

  expect(prepared.rows.map(({ statement }) => statement.includes('"async_tasks"'))).toEqual([true]);
  expect(await allRows(db)).toHaveLength(3);
  await application.destroy();
});

test('a preparing client leaves the callback and query forms of pg as they are', async ({ database }) => {
  const client = new PreparingClient(database.connection);
  await client.connect();
  expect((await client.query('select $1::int as n', [1])).rows).toEqual([{ n: 1 }]);
  expect((await client.query({ text: 'select 2 as n' })).rows).toEqual([{ n: 2 }]);
  const answer = await new Promise((resolve, reject) => {
    client.query('select 3 as n', (error, result) => (error ? reject(error) : resolve(result.rows)));
  });
  expect(answer).toEqual([{ n: 3 }]);
  await client.end();
});
