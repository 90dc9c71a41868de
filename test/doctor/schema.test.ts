import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import { onTestFinished } from 'vitest';
import { migrations } from '../../generated/migrations.ts';
import { migrateUp } from '../../src/statements/migrate.ts';
import { findingOf, findingsOf, sqlOf } from '../support/doctor.ts';
import { session } from '../support/migrate-process.ts';
import { describe, expect, type TestDatabase, test } from '../support/test.ts';

/** Runs statements of an administrator. */
async function administrate(database: TestDatabase, ...statements: readonly string[]): Promise<void> {
  await using client = await session(database.connection);
  for (const statement of statements) await client.query(statement);
}

/** A role with the grants given, and the connection that has its rights only. */
async function roleWith(database: TestDatabase, grants: (role: string) => readonly string[]) {
  const role = `taskq_test_doctor_${randomBytes(4).toString('hex')}`;
  await administrate(database, `CREATE ROLE ${role} NOLOGIN`, ...grants(role));
  onTestFinished(async () => {
    await using client = await session({ ...database.connection, database: 'postgres' });
    await client.query(`DROP ROLE IF EXISTS ${role}`).catch(() => undefined);
  });
  const connection: pg.ClientConfig = { ...database.connection, options: `-c role=${role}` };
  return { role, connection };
}

describe('migrations', () => {
  test('that are missing are a problem with the command, and the objects they would make are not reported beside them', async ({
    database,
  }) => {
    await administrate(
      database,
      `DELETE FROM taskq.taskq_migrations WHERE name = '${migrations.at(-1)?.name}'`,
    );
    const findings = await findingsOf({ database: database.url });
    expect(findings['migrations']).toMatchObject({ status: 'problem', remedies: ['taskq migrate up'] });
    expect(findings['migrations']?.found).toContain(migrations.at(-1)?.name);
    expect(findings['schema-objects']?.status).toBe('unknown');
  });

  test('that were never run are one, with the schema in the command', async ({ database }) => {
    const findings = await findingsOf({ database: database.url, schema: 'other place' });
    expect(findings['migrations']).toMatchObject({
      status: 'problem',
      remedies: ["taskq migrate up --schema 'other place'"],
    });
    expect(findings['backlog']?.status).toBe('unknown');
  });

  test.for([
    ['9000_more', 'warning'],
    ['9000_breaking_drop', 'problem'],
  ] as const)('of a newer version: %s is a %s', async ([name, status], { database }) => {
    await administrate(
      database,
      `INSERT INTO taskq.taskq_migrations (name, "timestamp") VALUES ('${name}', '2026-01-01')`,
    );
    expect(await findingOf('migrations', { database: database.url })).toMatchObject({ status });
  });
});

describe('schema-objects', () => {
  test.for([
    ['a dropped index', ['DROP INDEX taskq.async_tasks_discovery'], 'index async_tasks_discovery is missing'],
    [
      'an index that was replaced by another of its name',
      [
        'DROP INDEX taskq.async_tasks_discovery',
        'CREATE INDEX async_tasks_discovery ON taskq.async_tasks (run_at)',
      ],
      "index async_tasks_discovery is another than taskq's",
    ],
    [
      'an invalid index',
      ["UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'taskq.async_tasks_discovery'::regclass"],
      'index async_tasks_discovery is invalid',
    ],
    [
      'a dropped column',
      ['ALTER TABLE taskq.async_tasks DROP COLUMN progress'],
      'column async_tasks.progress is missing',
    ],
    [
      'a dropped constraint',
      ['ALTER TABLE taskq.async_tasks DROP CONSTRAINT async_tasks_lease_is_whole'],
      'constraint async_tasks.async_tasks_lease_is_whole is missing',
    ],
  ] as const)('%s is a problem, and its remedy puts it right', async ([, broken, found], { database }) => {
    await administrate(database, ...broken);
    const finding = await findingOf('schema-objects', { database: database.url });
    expect(finding).toMatchObject({ status: 'problem', found });
    for (const remedy of sqlOf(finding)) await administrate(database, ...remedy.split(/(?<=;) /));
    expect(await findingOf('schema-objects', { database: database.url })).toMatchObject({ status: 'ok' });
  });

  test.for([
    [
      'a changed fillfactor',
      'ALTER TABLE taskq.async_tasks SET (fillfactor = 100)',
      'settings of async_tasks',
    ],
    [
      'settings that were taken away and added',
      'ALTER TABLE taskq.async_tasks RESET (autovacuum_vacuum_threshold); ALTER TABLE taskq.async_tasks SET (toast_tuple_target = 4096)',
      'settings of async_tasks',
    ],
    [
      'an index on what a claim changes',
      'CREATE INDEX mine ON taskq.async_tasks (lease_expires_at)',
      "index mine is none of taskq's",
    ],
    [
      'a trigger',
      'CREATE TRIGGER mine BEFORE UPDATE ON taskq.async_tasks FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()',
      "trigger async_tasks.mine is none of taskq's",
    ],
  ] as const)('%s is a warning', async ([, broken, found], { database }) => {
    await administrate(database, broken);
    const finding = await findingOf('schema-objects', { database: database.url });
    expect(finding).toMatchObject({ status: 'warning', found: expect.stringContaining(found) });
    for (const remedy of finding.remedies)
      await administrate(database, ...remedy.replace(/^.*: DROP/, 'DROP').split(/(?<=;) /));
    expect(await findingOf('schema-objects', { database: database.url })).toMatchObject({ status: 'ok' });
  });

  test('a changed function and a lost table are problems that name the file which made them', async ({
    database,
  }) => {
    const { up } = migrations.findLast(({ up: text }) => text.includes('CREATE FUNCTION enqueue(')) as {
      up: string;
    };
    const body = /CREATE FUNCTION enqueue\([\s\S]*?\$function\$;/.exec(up)?.[0] as string;
    await administrate(database, 'DROP TABLE taskq.async_audit', 'SET search_path = taskq, pg_temp');
    await administrate(
      database,
      `SET search_path = taskq, pg_temp; ${body.replace('CREATE FUNCTION', 'CREATE OR REPLACE FUNCTION').replace('must_wake := is_due;', 'must_wake := true;')}`,
    );
    const finding = await findingOf('schema-objects', { database: database.url });
    expect(finding.status).toBe('problem');
    expect(finding.found).toMatch(/^table async_audit is missing; function enqueue\(.*\) was changed$/);
    expect(finding.remedies[0]).toContain('node_modules/taskq/sql/0006_audit.sql');
    expect(finding.remedies[1]).toMatch(
      /^run the CREATE FUNCTION of node_modules\/taskq\/sql\/\d+_\w+\.sql again/,
    );
  });

  test('of a newer version are no finding', async ({ database }) => {
    await administrate(
      database,
      `INSERT INTO taskq.taskq_migrations (name, "timestamp") VALUES ('9000_more', '2026-01-01')`,
      'ALTER TABLE taskq.async_tasks ADD COLUMN more text',
      'ALTER TABLE taskq.async_tasks SET (fillfactor = 60)',
    );
    expect(await findingOf('schema-objects', { database: database.url })).toMatchObject({ status: 'ok' });
  });

  test('are the same in a schema of any name', async ({ database }) => {
    const schema = 'Büro "ON" a.b';
    await migrateUp(database.url, { schema });
    const findings = await findingsOf({ database: database.url, schema });
    expect(findings['schema-objects']).toMatchObject({ status: 'ok' });
    expect(findings['indexes-used']).toMatchObject({ status: 'ok' });
    expect(findings['privileges']).toMatchObject({ status: 'ok' });
  });
});

describe('indexes-used', () => {
  test('a missing index is found by the plans too, of either kind', async ({ database }) => {
    await administrate(database, 'DROP INDEX taskq.async_tasks_discovery');
    const finding = await findingOf('indexes-used', { database: database.url });
    expect(finding).toMatchObject({
      status: 'problem',
      found:
        'discover (for values) cannot use async_tasks_discovery; discover (generic) cannot use async_tasks_discovery',
    });
  });

  test('a big table that the planner would read whole is a warning', async ({ database }) => {
    await administrate(
      database,
      "INSERT INTO taskq.async_tasks (task_type, payload) SELECT 'plain', to_jsonb(repeat('x', 1000)) FROM generate_series(1, 12000)",
      'VACUUM ANALYZE taskq.async_tasks',
      `ALTER DATABASE ${database.name} SET random_page_cost = 1000000`,
      `ALTER DATABASE ${database.name} SET cpu_index_tuple_cost = 1000000`,
    );
    const finding = await findingOf('indexes-used', { database: database.url });
    expect(finding).toMatchObject({ status: 'warning', remedies: ['ANALYZE "taskq".async_tasks;'] });
  });

  test('plans that would be compiled before they run are a warning', async ({ database }) => {
    await administrate(
      database,
      `ALTER DATABASE ${database.name} SET jit = on`,
      `ALTER DATABASE ${database.name} SET jit_above_cost = 1`,
    );
    const finding = await findingOf('jit', { database: database.url });
    expect(finding).toMatchObject({ status: 'warning' });
    await administrate(database, `ALTER DATABASE ${database.name} SET jit = off`);
    expect(await findingOf('jit', { database: database.url })).toMatchObject({ status: 'ok', found: 'off' });
  });
});

describe('privileges', () => {
  test('that a worker lacks are a problem with the grant, one for each right', async ({ database }) => {
    const { role, connection } = await roleWith(database, (name) => [
      `GRANT USAGE ON SCHEMA taskq TO ${name}`,
      `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA taskq TO ${name}`,
      `GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA taskq TO ${name}`,
    ]);
    expect(await findingOf('privileges', { database: connection })).toMatchObject({ status: 'ok' });
    await administrate(database, `REVOKE UPDATE ON taskq.async_tasks FROM ${role}`);
    const findings = await findingsOf({ database: connection });
    expect(findings['privileges']).toMatchObject({
      status: 'problem',
      found: `role ${role} lacks UPDATE on "taskq".async_tasks`,
      remedies: [`GRANT UPDATE ON "taskq".async_tasks TO "${role}";`],
    });
    await administrate(database, ...(findings['privileges']?.remedies ?? []));
    expect(await findingOf('privileges', { database: connection })).toMatchObject({ status: 'ok' });
    await administrate(database, 'ALTER TABLE taskq.async_tasks ENABLE ROW LEVEL SECURITY');
    const hidden = await findingOf('privileges', { database: connection });
    expect(hidden).toMatchObject({ status: 'problem', found: expect.stringContaining('row-level security') });
    await administrate(database, `DROP OWNED BY ${role}`);
  });

  test('of a role that may only read: what it cannot see is unknown, and nothing is a problem', async ({
    database,
  }) => {
    const { role, connection } = await roleWith(database, (name) => [
      `GRANT USAGE ON SCHEMA taskq TO ${name}`,
      `GRANT SELECT ON ALL TABLES IN SCHEMA taskq TO ${name}`,
    ]);
    const findings = await findingsOf({ database: connection });
    expect(findings['privileges']).toMatchObject({
      status: 'unknown',
      remedies: ['run this with the DATABASE_URL of the workers'],
    });
    expect(findings['indexes-used']).toMatchObject({
      status: 'unknown',
      found: expect.stringContaining('permission denied'),
    });
    expect(findings['vacuum-horizon']).toMatchObject({
      status: 'unknown',
      remedies: [`GRANT pg_read_all_stats TO "${role}";`],
    });
    const unknown = ['privileges', 'indexes-used', 'jit', 'vacuum-horizon', 'ceilings'];
    for (const finding of Object.values(findings)) {
      // The server of the tests is not durable, and there is no worker.
      if (finding.id === 'durability' || finding.id === 'workers') continue;
      expect(finding).toMatchObject({ status: unknown.includes(finding.id) ? 'unknown' : 'ok' });
    }
    await administrate(database, `DROP OWNED BY ${role}`);
  });
});
