import { randomUUID } from 'node:crypto';
import { Kysely, PostgresDialect, sql } from 'kysely';
import { openPool } from '../../../src/demo/pool.ts';
import { createTables, type DemoDatabase, type DemoTables } from '../../../src/demo/schema.ts';
import type { PlatformTables } from '../../../src/handlers/index.ts';
import type { HandlerContext, TaskId } from '../../../src/index.ts';
import { test as databaseTest } from '../../support/test.ts';
import { waitFor } from '../../support/wait.ts';

export { describe, expect } from '../../support/test.ts';

/** More than any test holds open at once. */
const POOL_MAX = 20;
/** A statement that waits for a lock which its own test holds would wait for ever. */
const LOCK_MS_MAX = 20_000;

interface Fixtures {
  /** The platform's tables beside the queue's schema, in the test's own database. */
  platform: DemoDatabase;
}

export const test = databaseTest.extend<Fixtures>({
  platform: async ({ database }, use) => {
    const pool = openPool({ ...database.connection, max: POOL_MAX, lock_timeout: LOCK_MS_MAX });
    const platform = new Kysely<DemoTables>({ dialect: new PostgresDialect({ pool }) });
    await createTables(platform);
    await use(platform);
    await platform.destroy();
  },
});

/** The handlers' view of the platform: without the demo's ledger. */
export function primaryOf(platform: DemoDatabase): Kysely<PlatformTables> {
  return platform as unknown as Kysely<PlatformTables>;
}

/** What a handler is given, with an hour to go unless said otherwise. */
export function contextOf(
  type: string,
  { signal = new AbortController().signal, remainingMs = 3_600_000 } = {},
): HandlerContext {
  return {
    id: '1' as TaskId,
    type,
    queue: 'default',
    attempt: 1,
    maxAttempts: 20,
    headers: {},
    enqueuedAt: new Date(),
    signal,
    remainingMs: () => remainingMs,
    complete: () => Promise.reject(new Error('no handler here settles by itself')),
  };
}

export async function addOrganisation(platform: DemoDatabase, seatCap = 10): Promise<string> {
  const { id } = await platform
    .insertInto('organisations')
    .values({ name: `organisation ${randomUUID()}`, seat_cap: seatCap })
    .returning('id')
    .executeTakeFirstOrThrow();
  return id;
}

/** A live stack of generation 1 that depends on nothing, with two Explore rows. */
export async function addStack(
  platform: DemoDatabase,
  organisationId: string,
  name: string,
): Promise<string> {
  const { id } = await platform
    .insertInto('stacks')
    .values({ organisation_id: organisationId, name, generation: 1 })
    .returning('id')
    .executeTakeFirstOrThrow();
  await addDeployment(platform, { stackId: id, generation: 1, name, dependsOn: [] });
  const rows = ['version', 'license'].map((path) => ({ stack_id: id, path, value: `${path} of ${name}` }));
  await platform.insertInto('explore_rows').values(rows).execute();
  return id;
}

export async function addDeployment(
  platform: DemoDatabase,
  deployment: { stackId: string; generation: number; name: string; dependsOn: string[] },
): Promise<void> {
  const { stackId, generation, name, dependsOn } = deployment;
  await platform
    .insertInto('deployments')
    .values({ stack_id: stackId, generation, change: 'deploy', name, depends_on: dependsOn })
    .execute();
  await platform.updateTable('stacks').set({ generation }).where('id', '=', stackId).execute();
}

export async function markDeleted(platform: DemoDatabase, stackId: string): Promise<void> {
  await platform.updateTable('stacks').set({ deleted_at: new Date() }).where('id', '=', stackId).execute();
}

export async function explorePaths(platform: DemoDatabase, stackId: string): Promise<string[]> {
  const rows = await platform
    .selectFrom('explore_rows')
    .select('path')
    .where('stack_id', '=', stackId)
    .orderBy('path')
    .execute();
  return rows.map(({ path }) => path);
}

/** Runs `work` while another session holds the locks that `lock` takes; they are given back at its end. */
export async function whileLocked<Result>(
  platform: DemoDatabase,
  lock: (holder: DemoDatabase) => Promise<unknown>,
  work: () => Promise<Result>,
): Promise<Result> {
  return platform.transaction().execute(async (holder) => {
    await lock(holder);
    return work();
  });
}

/** Resolves once `count` sessions of the database wait for a lock. */
export async function untilWaiting(platform: DemoDatabase, count: number): Promise<void> {
  await waitFor(
    async () => {
      const { rows } = await sql<{ waiting: number }>`
        SELECT count(*)::int AS waiting FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'`.execute(platform);
      return (rows[0]?.waiting ?? 0) >= count;
    },
    { what: `${count} sessions wait for a lock` },
  );
}
