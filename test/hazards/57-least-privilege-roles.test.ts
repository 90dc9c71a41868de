import { randomBytes } from 'node:crypto';
import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { migrations } from '../../generated/migrations.ts';
import { createEnqueuer } from '../../src/index.ts';
import { pruneUnusedKeys } from '../../src/maintenance/pruner.ts';
import { writeLane } from '../../src/statements/lanes.ts';
import { migrateUp, migrationStatus } from '../../src/statements/migrate.ts';
import { checkPrivileges, checkSchema } from '../../src/statements/schema-check.ts';
import type { Connection } from '../support/databases.ts';
import { session } from '../support/migrate-process.ts';
import { testTasks } from '../support/tasks.ts';
import { test as databaseTest, expect } from '../support/test.ts';

// Hazard 57: needs owner or superuser rights to start. The grants below are those of docs/migrations.md.

const SCHEMA = 'least';

interface Roles {
  /** A role without any right of its own, and the connection that has its rights only. */
  newRole(word: string): Promise<{ name: string; connection: pg.ClientConfig; executor: Kysely<unknown> }>;
  /** Runs SQL as the administrator of the test database. */
  administrate(...statements: string[]): Promise<void>;
}

const test = databaseTest.extend<{ roles: Roles }>({
  roles: async ({ database }, use) => {
    const client = await session(database.connection);
    const made: { name: string; executor: Kysely<unknown> }[] = [];
    await client.query('REVOKE CREATE ON SCHEMA public FROM PUBLIC');
    await client.query(`REVOKE ALL ON DATABASE ${database.name} FROM PUBLIC`);
    await client.query('REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC');
    await client.query('ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC');
    await use({
      async newRole(word) {
        const name = `taskq_test_${word}_${randomBytes(4).toString('hex')}`;
        await client.query(`CREATE ROLE ${name} NOLOGIN`);
        const connection = asRole(database.connection, name);
        const executor = executorOver(connection);
        made.push({ name, executor });
        return { name, connection, executor };
      },
      async administrate(...statements) {
        for (const statement of statements) await client.query(statement);
      },
    });
    for (const { name, executor } of made) {
      await executor.destroy();
      // Roles outlive their database: what they were granted in it must go first.
      await client.query(`DROP OWNED BY ${name} CASCADE`);
      await client.query(`DROP ROLE ${name}`);
    }
    await client.end();
  },
});

test('an owner role with CREATE on the database migrates; afterwards it needs no right on the database', async ({
  database,
  roles,
}) => {
  const owner = await roles.newRole('owner');
  await expect(migrateUp(owner.connection, { schema: SCHEMA })).rejects.toMatchObject({
    code: 'PRIVILEGE_MISSING',
    message:
      `role "${owner.name}" lacks CREATE (to create schema "${SCHEMA}") on database "${database.name}". ` +
      `Run as its owner: GRANT CREATE ON DATABASE "${database.name}" TO "${owner.name}"; or ` +
      `CREATE SCHEMA "${SCHEMA}" AUTHORIZATION "${owner.name}";`,
  });
  await roles.administrate(`GRANT CREATE ON DATABASE ${database.name} TO ${owner.name}`);
  expect((await migrateUp(owner.connection, { schema: SCHEMA })).pending).toEqual([]);
  await roles.administrate(`REVOKE CREATE ON DATABASE ${database.name} FROM ${owner.name}`);
  expect((await migrateUp(owner.connection, { schema: SCHEMA })).ran).toEqual([]);
});

test('a role without CREATE on the database migrates a schema that was made for it', async ({ roles }) => {
  const owner = await roles.newRole('owner');
  await roles.administrate(`CREATE SCHEMA ${SCHEMA}`, `GRANT USAGE ON SCHEMA ${SCHEMA} TO ${owner.name}`);
  await expect(migrateUp(owner.connection, { schema: SCHEMA })).rejects.toMatchObject({
    code: 'PRIVILEGE_MISSING',
    message: expect.stringContaining(`lacks CREATE on schema "${SCHEMA}"`),
  });
  await roles.administrate(`GRANT CREATE ON SCHEMA ${SCHEMA} TO ${owner.name}`);
  expect((await migrateUp(owner.connection, { schema: SCHEMA })).pending).toEqual([]);
});

test('a worker role with the documented grants starts, and may do what a worker does', async ({
  database,
  roles,
}) => {
  await migrateUp(database.connection, { schema: SCHEMA });
  const worker = await roles.newRole('worker');
  await roles.administrate(
    `GRANT USAGE ON SCHEMA ${SCHEMA} TO ${worker.name}`,
    `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${SCHEMA} TO ${worker.name}`,
    `GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ${SCHEMA} TO ${worker.name}`,
  );
  await checkSchema(worker.executor, SCHEMA);
  await checkPrivileges(worker.executor, SCHEMA);
  await using client = await session(worker.connection);
  const table = `${SCHEMA}.async_tasks`;
  await client.query(`INSERT INTO ${table} (task_type, payload) VALUES ('a', '{}') RETURNING id`);
  await client.query(`SELECT pg_notify('taskq', '')`);
  await client.query(`SELECT id FROM ${table} FOR UPDATE SKIP LOCKED`);
  await client.query(`UPDATE ${table} SET attempt_count = 1`);
  expect((await client.query(`DELETE FROM ${table}`)).rowCount).toBe(1);
  const { enqueue } = createEnqueuer(testTasks, { schema: SCHEMA });
  const unique = { key: 'k', while: 'live' } as const;
  expect(await enqueue(worker.executor, 'plain', {}, { unique })).toMatchObject({ status: 'enqueued' });
  expect(await pruneUnusedKeys(writeLane(worker.executor, SCHEMA))).toBe(0);
});

test('the first missing right of a worker role is reported with its object, the right and the grant', async ({
  database,
  roles,
}) => {
  await migrateUp(database.connection, { schema: SCHEMA });
  const worker = await roles.newRole('worker');
  const written = ['SELECT', 'INSERT', 'UPDATE', 'DELETE'];
  const tables = [
    ['async_tasks', written],
    ['async_task_keys', written],
    ['async_queues', ['SELECT']],
    ['async_completed_tasks', written],
    ['async_cron_ticks', written],
    ['async_audit', written],
    ['async_task_types', written],
    ['async_replicas', written],
  ] as const;
  const grants = [
    [`lacks USAGE on schema "${SCHEMA}"`, `GRANT USAGE ON SCHEMA "${SCHEMA}" TO "${worker.name}"`],
    ...tables.flatMap(([table, rights]) =>
      rights.map((right) => [
        `lacks ${right} on table "${SCHEMA}".${table}`,
        `GRANT ${right} ON "${SCHEMA}".${table} TO "${worker.name}"`,
      ]),
    ),
  ] as [string, string][];
  for (const [problem, grant] of grants) {
    await expect(checkPrivileges(worker.executor, SCHEMA)).rejects.toMatchObject({
      code: 'PRIVILEGE_MISSING',
      message: expect.stringContaining(problem),
    });
    await roles.administrate(grant);
  }
  await checkPrivileges(worker.executor, SCHEMA);
  await expect(checkSchema(worker.executor, SCHEMA)).rejects.toMatchObject({
    code: 'PRIVILEGE_MISSING',
    message: expect.stringContaining(`GRANT SELECT ON "${SCHEMA}".taskq_migrations TO "${worker.name}"`),
  });
});

test('row-level security that hides the rows from a worker is reported, not taken for an empty queue', async ({
  database,
  roles,
}) => {
  await migrateUp(database.connection, { schema: SCHEMA });
  const worker = await roles.newRole('worker');
  await roles.administrate(
    `GRANT USAGE ON SCHEMA ${SCHEMA} TO ${worker.name}`,
    `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${SCHEMA} TO ${worker.name}`,
    `ALTER TABLE ${SCHEMA}.async_tasks ENABLE ROW LEVEL SECURITY`,
    `CREATE POLICY readers ON ${SCHEMA}.async_tasks FOR SELECT USING (true)`,
  );
  const refusal = await checkPrivileges(worker.executor, SCHEMA).catch((error: unknown) => error);
  expect(refusal).toMatchObject({
    code: 'PRIVILEGE_MISSING',
    message: expect.stringContaining('lacks a row-level security policy for INSERT'),
  });
  const remedy = /(CREATE POLICY .*);$/.exec((refusal as Error).message)?.[1] as string;
  await roles.administrate(remedy);
  await checkPrivileges(worker.executor, SCHEMA);
});

test('a read-only role sees where the migrations stand, and an up-to-date migrate needs no more', async ({
  database,
  roles,
}) => {
  await migrateUp(database.connection, { schema: SCHEMA });
  const reader = await roles.newRole('reader');
  await expect(migrationStatus(reader.connection, { schema: SCHEMA })).rejects.toMatchObject({
    code: 'PRIVILEGE_MISSING',
    message: expect.stringContaining(`GRANT USAGE ON SCHEMA "${SCHEMA}" TO "${reader.name}"`),
  });
  await roles.administrate(
    `GRANT USAGE ON SCHEMA ${SCHEMA} TO ${reader.name}`,
    `GRANT SELECT ON ALL TABLES IN SCHEMA ${SCHEMA} TO ${reader.name}`,
  );
  expect((await migrationStatus(reader.connection, { schema: SCHEMA })).pending).toEqual([]);
  expect((await migrateUp(reader.connection, { schema: SCHEMA })).ran).toEqual([]);
  await checkSchema(reader.executor, SCHEMA);
});

test('a migration that needs ownership says so to a role that has only grants', async ({
  database,
  roles,
}) => {
  await migrateUp(database.connection, { schema: SCHEMA });
  const worker = await roles.newRole('worker');
  await roles.administrate(
    `GRANT USAGE, CREATE ON SCHEMA ${SCHEMA} TO ${worker.name}`,
    `GRANT ALL ON ALL TABLES IN SCHEMA ${SCHEMA} TO ${worker.name}`,
  );
  const next = { name: '9000_next', up: 'ALTER TABLE async_tasks ADD COLUMN extra text', down: 'SELECT 1' };
  await expect(
    migrateUp(worker.connection, { schema: SCHEMA, migrations: [...migrations, next] }),
  ).rejects.toMatchObject({
    code: 'PRIVILEGE_MISSING',
    message: expect.stringMatching(/^9000_next\.sql: must be owner of table async_tasks/),
  });
});

/** Has the rights of `role` without its login, so that it works whatever the server asks of a login. */
function asRole(connection: Connection, role: string): pg.ClientConfig {
  return { ...connection, options: `-c role=${role}` };
}

function executorOver(connection: pg.ClientConfig): Kysely<unknown> {
  return new Kysely({ dialect: new PostgresDialect({ pool: new pg.Pool({ ...connection, max: 1 }) }) });
}
