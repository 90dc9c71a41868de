import { migrations } from '../../generated/migrations.ts';
import {
  type MigrateOptions,
  migrateDown,
  migrateUp,
  migrationStatus,
  plannedSql,
} from '../../src/statements/migrate.ts';
import { checkSchema } from '../../src/statements/schema-check.ts';
import { advisoryLocks, session } from '../support/migrate-process.ts';
import { expect, onTestFinished, test, vi } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

const SCHEMA = 'queue';
const NAMES = migrations.map(({ name }) => name);

const second = {
  name: '9001_second',
  up: 'CREATE TABLE second (id int)',
  down: 'DROP TABLE second',
};
const third = { name: '9002_third', up: 'CREATE TABLE third (id int)', down: 'DROP TABLE third' };
const THREE: MigrateOptions = { schema: SCHEMA, migrations: [...migrations, second, third] };

test('up creates the schema and the tables, and the report says what it ran', async ({ database }) => {
  const said: string[] = [];
  expect(await migrationStatus(database.connection, { schema: SCHEMA })).toEqual({
    schema: SCHEMA,
    applied: [],
    pending: NAMES,
    ahead: [],
  });
  const report = await migrateUp(database.url, {
    schema: SCHEMA,
    onProgress: (message) => said.push(message),
  });
  expect(report).toEqual({ schema: SCHEMA, applied: NAMES, pending: [], ahead: [], ran: NAMES });
  expect(said).toEqual([
    ...NAMES.map((name) => `running ${name}.sql`),
    ...NAMES.map((name) => `applied ${name}`),
  ]);
  await using client = await session(database.connection);
  expect((await client.query(`SELECT * FROM ${SCHEMA}.async_tasks`)).rows).toEqual([]);
});

test.for([
  'MixedCase',
  'with "quotes" and \'apostrophes\'',
  '"$1"',
  'a.b',
  'Очередь задач',
  '🦜'.repeat(15),
  'select',
])('a schema may be called %s', async (schema, { database }) => {
  await migrateUp(database.connection, { schema });
  await using client = await session(database.connection);
  const { rows } = await client.query(
    'SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = $1 AND relkind = $2 ORDER BY 1',
    [schema, 'r'],
  );
  expect(rows.map(({ relname }) => relname)).toContain('async_tasks');
  const planned = await plannedSql(database.connection, { schema, direction: 'down', to: 'none' });
  await client.query(planned.sql);
  expect(await migrationStatus(database.connection, { schema })).toMatchObject({ applied: [] });
  expect((await migrateUp(database.connection, { schema })).ran).toEqual(NAMES);
});

test.for([
  ['', 'needs a name'],
  ['x'.repeat(64), '64 bytes, PostgreSQL takes at most 63'],
  ['🦜'.repeat(16), '64 bytes'],
  ['pg_queue', 'reserved'],
  ['a\u0000b', 'cannot store'],
] as const)(
  'a schema name that cannot be is refused before anything is sent: %j',
  async ([schema, problem]) => {
    await expect(migrateUp('postgres://nobody@127.0.0.1:1/none', { schema })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringContaining(problem),
    });
  },
);

test('a migration that fails half-way is rolled back with all of its run, and named with the line', async ({
  database,
}) => {
  const broken = {
    name: '9001_broken',
    up: 'CREATE TABLE half (id int);\n\nCREATE TABEL rest ()',
    down: 'SELECT 1',
  };
  const refusal = await migrateUp(database.connection, {
    schema: SCHEMA,
    migrations: [...migrations, broken],
  }).catch((error: unknown) => error);
  expect(refusal).toMatchObject({
    code: 'MIGRATION_FAILED',
    message: '9001_broken.sql line 3: syntax error at or near "TABEL". Rolled back, nothing was changed',
    cause: { code: '42601' },
  });
  await using client = await session(database.connection);
  expect((await client.query('SELECT 1 FROM pg_namespace WHERE nspname = $1', [SCHEMA])).rows).toEqual([]);
});

test('a database whose transactions are serializable and read-only by default is migrated by several at once', async ({
  database,
}) => {
  await using client = await session(database.connection);
  await client.query(`ALTER DATABASE ${database.name} SET default_transaction_isolation = 'serializable'`);
  await client.query(`ALTER DATABASE ${database.name} SET default_transaction_read_only = on`);
  await client.query(`ALTER DATABASE ${database.name} SET statement_timeout = '20s'`);
  const runs = await Promise.all([1, 2, 3, 4].map(() => migrateUp(database.connection, { schema: SCHEMA })));
  expect(runs.flatMap(({ ran }) => ran)).toEqual(NAMES);
});

test('a schema that somebody else creates in the same moment is no failure', async ({ database }) => {
  await using other = await session(database.connection);
  // Inside a transaction pg_stat_activity shows the same picture for ever.
  await using watcher = await session(database.connection);
  await other.query(`BEGIN; CREATE SCHEMA ${SCHEMA}`);
  const migrating = migrateUp(database.connection, { schema: SCHEMA });
  await waitFor(async () => {
    const { rows } = await watcher.query(
      `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    );
    return rows.length > 0;
  });
  await other.query('COMMIT');
  expect((await migrating).ran).toEqual(NAMES);
});

test('a run says what it waits for, and gives up when the other one does not end', async ({ database }) => {
  await using watcher = await session(database.connection);
  const sleeping = { name: '9001_sleeping', up: 'SELECT pg_sleep(600)', down: 'SELECT 1' };
  const holder = migrateUp(database.connection, { schema: SCHEMA, migrations: [...migrations, sleeping] });
  const ended = expect(holder).rejects.toMatchObject({ code: 'MIGRATION_FAILED' });
  const locks = await waitFor(async () => {
    const held = await advisoryLocks(watcher);
    return held.length > 0 && held;
  });
  const said: string[] = [];
  await expect(
    migrateUp(database.connection, {
      schema: SCHEMA,
      turnWaitMs: 50,
      onProgress: (message) => said.push(message),
    }),
  ).rejects.toMatchObject({
    code: 'MIGRATION_LOCKED',
    message: expect.stringMatching(
      new RegExp(
        `^gave up after 50ms: another migration of schema "queue" \\(backend ${locks[0]?.pid}, taskq migrate`,
      ),
    ),
  });
  expect(said).toEqual([
    expect.stringMatching(/^waiting up to 50ms for another migration of schema "queue"/),
  ]);
  // The turn is the schema's own: another schema of the same database does not wait.
  expect((await migrateUp(database.connection, { schema: 'elsewhere', turnWaitMs: 50 })).ran).toEqual(NAMES);
  await watcher.query('SELECT pg_terminate_backend($1)', [locks[0]?.pid]);
  await ended;
});

test('down undoes the last migration, a number of them, those above a target, or all', async ({
  database,
}) => {
  const { connection } = database;
  await migrateUp(connection, THREE);
  expect(await migrateDown(connection, THREE)).toMatchObject({ ran: [third.name], pending: [third.name] });
  await migrateUp(connection, THREE);
  expect((await migrateDown(connection, { ...THREE, steps: 2 })).ran).toEqual([third.name, second.name]);
  await migrateUp(connection, THREE);
  expect((await migrateDown(connection, { ...THREE, to: second.name })).ran).toEqual([third.name]);
  expect((await migrateDown(connection, { ...THREE, to: second.name })).ran).toEqual([]);
  expect((await migrateDown(connection, { ...THREE, to: 'none' })).applied).toEqual([]);
  await expect(migrateDown(connection, { ...THREE, to: second.name })).rejects.toMatchObject({
    code: 'OPTION_INVALID',
  });
  await expect(migrateDown(connection, { ...THREE, steps: 0 })).rejects.toMatchObject({
    code: 'OPTION_INVALID',
  });
});

test('the order of migrations is that of their names, even when machines whose clocks differ applied them', async ({
  database,
}) => {
  onTestFinished(() => {
    vi.useRealTimers();
  });
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3_600_000 });
  await migrateUp(database.connection, { schema: SCHEMA, migrations: [...migrations, second] });
  vi.setSystemTime(Date.now() - 7_200_000);
  await migrateUp(database.connection, THREE);
  expect((await migrateDown(database.connection, THREE)).ran).toEqual([third.name]);
});

test('a dry run writes nothing, and its SQL does what the run would have done', async ({ database }) => {
  await using client = await session(database.connection);
  const planned = await plannedSql(database.connection, THREE);
  expect(planned.migrations).toEqual([...NAMES, second.name, third.name]);
  expect((await client.query('SELECT 1 FROM pg_namespace WHERE nspname = $1', [SCHEMA])).rows).toEqual([]);
  await migrateUp(database.connection, { ...THREE, schema: 'really' });
  await client.query(planned.sql);
  expect(await columnsOf(SCHEMA)).toEqual(await columnsOf('really'));
  expect(await migrateUp(database.connection, THREE)).toMatchObject({ ran: [], pending: [] });
  expect((await plannedSql(database.connection, THREE)).sql).toBe('');

  async function columnsOf(schema: string): Promise<unknown[]> {
    const { rows } = await client.query(
      `SELECT relname, attname, atttypid::regtype::text, attnotnull FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
       JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = $1 AND attnum > 0 ORDER BY 1, 2`,
      [schema],
    );
    return rows;
  }
});

test('a schema behind is refused with the command to run, also one that does not exist', async ({
  database,
  db,
}) => {
  await expect(checkSchema(db, 'no such')).rejects.toMatchObject({
    code: 'SCHEMA_BEHIND',
    message: `schema "no such" in database "${database.name}" has no tables of taskq yet; run: taskq migrate up --schema 'no such'`,
  });
  await migrateUp(database.connection, { schema: SCHEMA });
  await expect(checkSchema(db, SCHEMA, [...migrations, second])).rejects.toMatchObject({
    code: 'SCHEMA_BEHIND',
    message: expect.stringContaining(`lacks ${second.name}; run: taskq migrate up`),
  });
});

test('a schema ahead is fine, unless a migration it has is marked as breaking', async ({ database, db }) => {
  await migrateUp(database.connection, THREE);
  expect((await checkSchema(db, SCHEMA)).ahead).toEqual([second.name, third.name]);
  expect(await migrateUp(database.connection, { schema: SCHEMA })).toMatchObject({
    ran: [],
    ahead: [second.name, third.name],
  });
  await expect(migrateDown(database.connection, { schema: SCHEMA })).rejects.toMatchObject({
    code: 'SCHEMA_AHEAD',
  });

  const breaking = { name: '9003_breaking_rename', up: 'CREATE TABLE fourth ()', down: 'DROP TABLE fourth' };
  await migrateUp(database.connection, { ...THREE, migrations: [...migrations, second, third, breaking] });
  await expect(checkSchema(db, SCHEMA)).rejects.toMatchObject({
    code: 'SCHEMA_AHEAD',
    message: expect.stringContaining(breaking.name),
  });
});

test('an older version does not fill a gap below migrations it does not know', async ({ database }) => {
  await migrateUp(database.connection, { schema: SCHEMA, migrations: [...migrations, third] });
  await expect(
    migrateUp(database.connection, { schema: SCHEMA, migrations: [...migrations, second] }),
  ).rejects.toMatchObject({ code: 'SCHEMA_AHEAD', message: expect.stringContaining(`lacks ${second.name}`) });
});

test('a temporary table of the same name does not stand in for the real one', async ({ database }) => {
  await migrateUp(database.connection, { schema: SCHEMA });
  const shadowing = { name: '9001_a', up: 'CREATE TEMPORARY TABLE async_tasks (id int)', down: 'SELECT 1' };
  const altering = { name: '9002_b', up: 'ALTER TABLE async_tasks ADD COLUMN extra text', down: 'SELECT 1' };
  await migrateUp(database.connection, { schema: SCHEMA, migrations: [...migrations, shadowing, altering] });
  await using client = await session(database.connection);
  expect((await client.query(`SELECT extra FROM ${SCHEMA}.async_tasks`)).rows).toEqual([]);
});

test('a server that cannot be reached is an error that says so, without the password', async () => {
  const refusal = await migrateUp('postgres://nobody:secret@localhost:1/none').catch(
    (error: unknown) => error,
  );
  expect(refusal).toMatchObject({
    code: 'MIGRATION_FAILED',
    message: expect.stringMatching(/^cannot connect to the database: .*ECONNREFUSED/),
  });
  await expect(migrateUp('postgres://nobody:secret@[not a host/none')).rejects.toMatchObject({
    code: 'MIGRATION_FAILED',
    message: expect.not.stringContaining('secret'),
  });
});
