import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { inject, test as plainTest } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { administer, connectionOf, databaseName, type TestDatabase, urlOf } from './databases.ts';
import { TEST_SCHEMA } from './schema.ts';

interface Fixtures {
  /** A migrated database of the test's own; dropped when the test passed, kept when it failed. */
  database: TestDatabase;
  /** Over `database`, in the queue's schema. */
  db: Kysely<DB>;
}

/** Connections of one test's `db`; more than any test holds open at once. */
const POOL_MAX = 20;

export const test = plainTest.extend<Fixtures>({
  database: async ({ task }, use) => {
    const serverUrl = inject('serverUrl');
    const name = databaseName(task.name);
    await administer(serverUrl, `CREATE DATABASE ${name} TEMPLATE ${inject('templateName')}`);
    const url = urlOf(serverUrl, name);
    await use({ name, url, connection: connectionOf(url) });
    if (task.result?.state === 'fail') {
      console.log(`database kept: ${name}`);
      return;
    }
    // What a test left connected must not keep its database.
    await administer(serverUrl, `DROP DATABASE ${name} WITH (FORCE)`);
  },
  db: async ({ database }, use) => {
    const pool = new pg.Pool({ ...database.connection, max: POOL_MAX });
    // Tests kill backends; an idle connection's end is reported here and would end the process unheard.
    pool.on('error', () => {});
    pool.on('connect', (client) => client.on('error', () => {}));
    const db = new Kysely<DB>({ dialect: new PostgresDialect({ pool }) });
    await use(db.withSchema(TEST_SCHEMA));
    await db.destroy();
  },
});

export { describe, expect, expectTypeOf, inject, onTestFinished, vi } from 'vitest';
export type { TestDatabase } from './databases.ts';
export { TEST_SCHEMA } from './schema.ts';
