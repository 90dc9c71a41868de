import { randomBytes } from 'node:crypto';
import { sql } from 'kysely';
import pg from 'pg';
import { findingOf, findingsOf } from '../support/doctor.ts';
import { session } from '../support/migrate-process.ts';
import { describe, expect, onTestFinished, type TestDatabase, test } from '../support/test.ts';

/** A superuser of its own, so that settings of the role are no other test's. */
async function ownRole({ connection }: TestDatabase): Promise<{ role: string; connection: pg.ClientConfig }> {
  const role = `taskq_test_settings_${randomBytes(4).toString('hex')}`;
  await using client = await session(connection);
  await client.query(`CREATE ROLE ${role} LOGIN SUPERUSER PASSWORD 'secret'`);
  onTestFinished(async () => {
    await using administrator = await session({ ...connection, database: 'postgres' });
    await administrator.query(`DROP ROLE ${role}`);
  });
  return { role, connection: { ...connection, user: role, password: 'secret' } };
}

describe('timeouts', () => {
  test.for([
    ['statement_timeout', '200ms', 'problem', '30s'],
    ['statement_timeout', '10s', 'warning', '30s'],
    ['lock_timeout', '50ms', 'warning', '1s'],
    ['idle_in_transaction_session_timeout', '500ms', 'warning', '1s'],
    ['idle_session_timeout', '1min', 'warning', '120s'],
  ] as const)(
    '%s of %s, set for the role, is a %s, and its remedy is enough',
    async ([name, value, status, enough], { database, db }) => {
      const { role, connection } = await ownRole(database);
      await sql.raw(`alter role ${role} set ${name} = '${value}'`).execute(db);
      const finding = await findingOf('timeouts', { database: connection });
      expect(finding).toMatchObject({
        status,
        found: expect.stringMatching(new RegExp(`^${name} is .* \\(set for the role\\): it cuts .+`)),
        remedies: [`ALTER ROLE "${role}" SET ${name} = '${enough}';`],
      });
      await sql.raw(finding.remedies[0] as string).execute(db);
      expect(await findingOf('timeouts', { database: connection })).toMatchObject({ status: 'ok' });
    },
  );
});

test('a stricter isolation level is a warning, and every other check works under it', async ({
  database,
  db,
}) => {
  await sql
    .raw(`alter database ${database.name} set default_transaction_isolation = 'serializable'`)
    .execute(db);
  const findings = await findingsOf({ database: database.url });
  expect(findings['isolation']).toMatchObject({
    status: 'warning',
    found: expect.stringMatching(/^serializable \(set for the database\)/),
  });
  expect(findings['schema-objects']).toMatchObject({ status: 'ok' });
});

test('a role whose transactions are read-only is a problem', async ({ database, db }) => {
  const { role, connection } = await ownRole(database);
  await sql.raw(`alter role ${role} set default_transaction_read_only = on`).execute(db);
  expect(await findingOf('primary-writable', { database: connection })).toMatchObject({
    status: 'problem',
    remedies: [`ALTER ROLE "${role}" SET default_transaction_read_only = off;`],
  });
});

test('commits that are answered before they are on disk are a warning, a server without fsync a problem', async ({
  database,
  db,
}) => {
  const { role, connection } = await ownRole(database);
  const { rows } = await sql<{ fsync: string }>`show fsync`.execute(db);
  const isDurable = rows[0]?.fsync === 'on';
  await sql.raw(`alter role ${role} set synchronous_commit = off`).execute(db);
  const finding = await findingOf('durability', { database: connection });
  expect(finding.status).toBe(isDurable ? 'warning' : 'problem');
  expect(finding.found).toContain('synchronous_commit is off');
  expect(finding.remedies).toContain(`ALTER ROLE "${role}" SET synchronous_commit = on;`);
});

test('connections near their limit are a warning, then a problem', async ({ database, db }) => {
  const { role, connection } = await ownRole(database);
  expect(await findingOf('connections', { database: connection })).toMatchObject({ status: 'ok' });
  // A superuser is let in beyond its limit.
  await sql.raw(`alter role ${role} connection limit 10`).execute(db);
  const pool = new pg.Pool({ ...connection, max: 10 });
  // Its database is dropped with the test's end.
  pool.on('error', () => undefined);
  pool.on('connect', (client) => client.on('error', () => undefined));
  const connect = async (count: number) => {
    const clients = await Promise.all(Array.from({ length: count }, () => pool.connect()));
    for (const client of clients) client.release();
  };
  await connect(7);
  // The check itself has one.
  expect(await findingOf('connections', { database: connection })).toMatchObject({
    status: 'warning',
    found: expect.stringContaining('8 of the 10 of the role'),
  });
  await connect(10);
  expect(await findingOf('connections', { database: connection })).toMatchObject({ status: 'problem' });
  await pool.end();
});

test('the version of the server is said', async ({ database }) => {
  expect(await findingOf('server-version', { database: database.url })).toMatchObject({
    status: 'ok',
    found: expect.stringMatching(/^PostgreSQL 1[4-9]/),
  });
});
