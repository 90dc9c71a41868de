import type pg from 'pg';
import { migrations } from '../../generated/migrations.ts';
import { migrateUp, migrationStatus } from '../../src/statements/migrate.ts';
import { advisoryLocks, session, startMigrateProcess } from '../support/migrate-process.ts';
import { expect, test } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

// Hazard 55: migrations run by several processes at once, and start-up DDL that waits behind a backup.

const SCHEMA = 'together';
const NAMES = migrations.map(({ name }) => name);
const next = {
  name: '9000_next',
  up: 'ALTER TABLE async_tasks ADD COLUMN extra text',
  down: 'ALTER TABLE async_tasks DROP COLUMN extra',
};
const sleeping = { name: '9000_sleeping', up: 'SELECT pg_sleep(600)', down: 'SELECT 1' };

test('ten processes that migrate an empty database at once all succeed, and each migration is recorded once', {
  timeout: 180_000,
}, async ({ database }) => {
  const runs = Array.from({ length: 10 }, () => startMigrateProcess(database.connection, SCHEMA));
  const ended = await Promise.all(runs.map((run) => run.ended));
  expect(ended.map(({ exitCode, report }) => [exitCode, report.message])).toEqual(
    ended.map(() => [0, undefined]),
  );
  expect(ended.flatMap(({ report }) => report.ran)).toEqual(NAMES);
  expect(await recorded(database.connection)).toEqual(NAMES);
});

test('five processes that migrate a database one version behind at once all succeed', {
  timeout: 180_000,
}, async ({ database }) => {
  await migrateUp(database.connection, { schema: SCHEMA });
  const runs = Array.from({ length: 5 }, () => startMigrateProcess(database.connection, SCHEMA, [next]));
  const ended = await Promise.all(runs.map((run) => run.ended));
  expect(ended.map(({ exitCode, report }) => [exitCode, report.message])).toEqual(
    ended.map(() => [0, undefined]),
  );
  expect(ended.flatMap(({ report }) => report.ran)).toEqual([next.name]);
  expect(await recorded(database.connection)).toEqual([...NAMES, next.name]);
});

test('when the first of ten is killed after its first statement, the other nine succeed and it left nothing', {
  timeout: 180_000,
}, async ({ database }) => {
  await using watcher = await session(database.connection);
  const first = startMigrateProcess(database.connection, SCHEMA, [sleeping]);
  await waitFor(() => isAsleep(watcher));
  const others = Array.from({ length: 9 }, () => startMigrateProcess(database.connection, SCHEMA));
  await waitFor(async () => (await advisoryLocks(watcher)).some(({ granted }) => !granted));
  first.child.kill('SIGKILL');
  const ended = await Promise.all(others.map((run) => run.ended));
  expect(ended.map(({ exitCode, report }) => [exitCode, report.message])).toEqual(
    ended.map(() => [0, undefined]),
  );
  expect(await recorded(database.connection)).toEqual(NAMES);
});

test('an up-to-date run waits for no lock on a table, and for no other migration', async ({ database }) => {
  await migrateUp(database.connection, { schema: SCHEMA });
  await using other = await session(database.connection);
  // Inside a transaction pg_stat_activity shows the same picture for ever.
  await using watcher = await session(database.connection);
  await other.query(`BEGIN; LOCK TABLE ${SCHEMA}.async_tasks IN ACCESS EXCLUSIVE MODE`);
  const sleeper = migrateUp(database.connection, { schema: SCHEMA, migrations: [...migrations, sleeping] });
  const ended = expect(sleeper).rejects.toMatchObject({ code: 'MIGRATION_FAILED' });
  await waitFor(() => isAsleep(watcher));
  const said: string[] = [];
  const report = await migrateUp(database.connection, {
    schema: SCHEMA,
    // Nothing is waited for that long in this test: a wait would show as an error.
    lockTimeoutMs: 1,
    turnWaitMs: 1,
    onProgress: (message) => said.push(message),
  });
  expect(report).toMatchObject({ ran: [], pending: [] });
  expect(said).toEqual([]);
  await watcher.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'
    AND datname = current_database()`);
  await ended;
});

test('a migration that cannot lock a table in time gives up, says who uses the table, and work goes on', async ({
  database,
}) => {
  await migrateUp(database.connection, { schema: SCHEMA });
  await using backup = await session({ ...database.connection, application_name: 'nightly backup' });
  await backup.query(`BEGIN; LOCK TABLE ${SCHEMA}.async_tasks IN ACCESS SHARE MODE`);
  const migrating = migrateUp(database.connection, {
    schema: SCHEMA,
    migrations: [...migrations, next],
    lockTimeoutMs: 300,
  });
  await using worker = await session(database.connection);
  const refused = expect(migrating).rejects.toMatchObject({
    code: 'MIGRATION_FAILED',
    message: expect.stringMatching(
      /^9000_next\.sql: no lock on a table within 300ms \(in use by backend \d+, nightly backup/,
    ),
  });
  await worker.query(`UPDATE ${SCHEMA}.async_tasks SET attempt_count = attempt_count + 1`);
  await refused;
  await worker.query(`UPDATE ${SCHEMA}.async_tasks SET attempt_count = attempt_count + 1`);
  expect(await recorded(database.connection)).toEqual(NAMES);
});

async function isAsleep(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query(
    `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`,
  );
  return rows.length > 0;
}

async function recorded(connection: object): Promise<readonly string[]> {
  return (await migrationStatus(connection, { schema: SCHEMA })).applied;
}
