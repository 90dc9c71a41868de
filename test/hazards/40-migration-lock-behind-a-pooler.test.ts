import { migrations } from '../../generated/migrations.ts';
import { migrateUp } from '../../src/statements/migrate.ts';
import { advisoryLocks, session, startMigrateProcess } from '../support/migrate-process.ts';
import { requirePgbouncer, startPgbouncer } from '../support/pgbouncer.ts';
import { expect, test } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

// Hazard 40: a migration lock taken at session level leaks behind PgBouncer and hangs the next deploy.

const SCHEMA = 'behind pooler';
const NAMES = migrations.map(({ name }) => name);
const sleeping = { name: '9000_sleeping', up: 'SELECT pg_sleep(600)', down: 'SELECT 1' };
const failing = { name: '9000_failing', up: 'CREATE TABLE half (id int);\nSELECT 1/0', down: 'SELECT 1' };

for (const [how, pooled] of [
  ['behind PgBouncer in transaction mode', true],
  ['directly', false],
] as const) {
  test(`migrating ${how}, twice in sequence and five times at once, leaves no lock`, async ({
    database,
    skip,
    onTestFinished,
  }) => {
    if (pooled) await requirePgbouncer({ skip });
    const pooler = pooled ? await startPgbouncer(database.connection, { poolSize: 3 }) : undefined;
    onTestFinished(() => pooler?.stop());
    const connection = pooler?.connection ?? database.connection;

    const runs = await Promise.all([1, 2, 3, 4, 5].map(() => migrateUp(connection, { schema: SCHEMA })));
    expect(runs.flatMap(({ ran }) => ran)).toEqual(NAMES);
    for (const again of [1, 2]) {
      expect((await migrateUp(connection, { schema: SCHEMA })).ran, `run ${again}`).toEqual([]);
    }

    await using direct = await session(database.connection);
    expect(await advisoryLocks(direct)).toEqual([]);
  });

  test(`a migration killed ${how} while it holds the turn, and one that fails half-way, do not hinder the next`, async ({
    database,
    skip,
    onTestFinished,
  }) => {
    if (pooled) await requirePgbouncer({ skip });
    const pooler = pooled ? await startPgbouncer(database.connection, { poolSize: 3 }) : undefined;
    onTestFinished(() => pooler?.stop());
    const connection = pooler?.connection ?? database.connection;
    await using direct = await session(database.connection);

    const first = startMigrateProcess(connection, SCHEMA, [sleeping]);
    await waitFor(async () => {
      const { rows } = await direct.query(
        `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`,
      );
      return rows.length > 0;
    });
    const said: string[] = [];
    const waiting = migrateUp(connection, { schema: SCHEMA, onProgress: (message) => said.push(message) });
    await waitFor(async () => (await advisoryLocks(direct)).some(({ granted }) => !granted));
    first.child.kill('SIGKILL');
    await first.ended;
    expect((await waiting).ran).toEqual(NAMES);
    expect(said[0]).toMatch(
      /^waiting up to 30s for another migration of schema "behind pooler" \(backend \d+/,
    );

    await expect(
      migrateUp(connection, { schema: SCHEMA, migrations: [...migrations, failing] }),
    ).rejects.toMatchObject({ code: 'MIGRATION_FAILED' });
    expect(await advisoryLocks(direct)).toEqual([]);
    expect((await migrateUp(connection, { schema: SCHEMA })).applied).toEqual(NAMES);
  });
}
