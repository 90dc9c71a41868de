import { randomUUID } from 'node:crypto';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { type Kysely, sql } from 'kysely';
import { type ObjectStoreServer, startObjectStoreServer } from '../../../src/demo/object-store-server.ts';
import { openDatabase } from '../../../src/demo/pool.ts';
import {
  createExploreTables,
  createPlatformTables,
  type DemoDatabase,
  type ExploreDatabase,
} from '../../../src/demo/schema.ts';
import type { Stores } from '../../../src/demo/stores.ts';
import {
  type Analysis,
  analysisKey,
  type HandlerServices,
  type ObjectStore,
  type ObjectStoreSettings,
  openObjectStore,
  type PlatformTables,
  writeAnalysis,
} from '../../../src/handlers/index.ts';
import type { HandlerContext, TaskId } from '../../../src/index.ts';
import { administer, urlOf } from '../../support/databases.ts';
import { test as replicaTest } from '../../support/replica.ts';
import { inject } from '../../support/test.ts';
import { waitFor } from '../../support/wait.ts';

export { describe, expect } from '../../support/test.ts';

/** More than any test holds open at once. */
const POOL_MAX = 20;
/** A run that nothing interrupts. */
export const noSignal = new AbortController().signal;

/** A line that a handler logged. */
export interface LoggedLine {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly fields: Readonly<Record<string, unknown>>;
  readonly message: string;
}

interface Fixtures {
  /** s3rver in a process of its own, one for all tests of a file. */
  objectStoreServer: ObjectStoreServer;
  /** A bucket of the test's own. */
  objectStoreSettings: ObjectStoreSettings & { endpoint: string };
  objects: ObjectStore;
  /** The platform's tables beside the queue's schema, in the test's own database. */
  platform: DemoDatabase;
  /** A database of its own, as in production. */
  explore: ExploreDatabase;
  stores: Stores;
  logged: LoggedLine[];
  /** All that handlers need, on the test's stores. The read lane is the primary. */
  services: HandlerServices;
}

export const test = replicaTest.extend<Fixtures>({
  objectStoreServer: [
    // biome-ignore lint/correctness/noEmptyPattern: vitest asks for a destructured first parameter.
    async ({}, use) => {
      const server = await startObjectStoreServer(['--import', 'jiti/register']);
      await use(server);
      await server.stop();
    },
    { scope: 'file' },
  ],
  objectStoreSettings: async ({ objectStoreServer }, use) => {
    const { settings } = objectStoreServer;
    const bucket = `test-${randomUUID()}`;
    const { endpoint, region, credentials } = settings;
    const client = new S3Client({
      endpoint,
      region,
      forcePathStyle: true,
      ...(credentials && { credentials }),
    });
    await client.send(new CreateBucketCommand({ Bucket: bucket }));
    client.destroy();
    await use({ ...settings, bucket });
  },
  objects: async ({ objectStoreSettings }, use) => {
    const objects = openObjectStore(objectStoreSettings);
    await use(objects);
    objects.close();
  },
  platform: async ({ database }, use) => {
    const platform: DemoDatabase = openDatabase(database.connection, POOL_MAX, 'platform');
    await createPlatformTables(platform);
    await use(platform);
    await platform.destroy();
  },
  explore: async ({ database }, use) => {
    const serverUrl = inject('serverUrl');
    const name = `${database.name.slice(0, 50)}_explore`;
    await administer(serverUrl, `CREATE DATABASE ${name}`);
    const explore: ExploreDatabase = openDatabase(urlOf(serverUrl, name), POOL_MAX, 'explore');
    await createExploreTables(explore);
    await use(explore);
    await explore.destroy();
    await administer(serverUrl, `DROP DATABASE ${name} WITH (FORCE)`);
  },
  stores: async ({ platform, explore, objects }, use) => {
    await use({ db: platform, explore, objects });
  },
  // biome-ignore lint/correctness/noEmptyPattern: vitest asks for a destructured first parameter.
  logged: async ({}, use) => {
    await use([]);
  },
  services: async ({ platform, explore, objects, logged }, use) => {
    const at = (level: LoggedLine['level']) => (fields: object, message: string) => {
      logged.push({ level, fields: { ...fields }, message });
    };
    const logger = { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
    const primary = primaryOf(platform);
    await use({ primary, replica: primary, explore, objects, logger });
  },
});

/** The handlers' view of the platform: without the demo's ledger. */
export function primaryOf(platform: DemoDatabase): Kysely<PlatformTables> {
  return platform as unknown as Kysely<PlatformTables>;
}

/** What a handler is given, with an hour to go unless said otherwise. Its task is nobody else's. */
export function contextOf(type: string, { signal = noSignal, remainingMs = 3_600_000 } = {}): HandlerContext {
  const context: Partial<HandlerContext> = {
    id: '1' as TaskId,
    type,
    queue: 'default',
    attempt: 1,
    maxAttempts: 20,
    headers: {},
    enqueuedAt: new Date(),
    signal,
    remainingMs: () => remainingMs,
    complete: async () => {},
  };
  return context as HandlerContext;
}

export async function addOrganisation(platform: DemoDatabase, seatCap = 10): Promise<string> {
  const { id } = await platform
    .insertInto('organisations')
    .values({ name: `organisation ${randomUUID()}`, seat_cap: seatCap })
    .returning('id')
    .executeTakeFirstOrThrow();
  return id;
}

/** A stack's identity, and the prefix's. */
export interface AddedStack {
  readonly stackId: string;
  readonly organisationId: string;
  readonly storageKey: string;
}

/** A live stack of generation 1, whose run has found two resources unless said otherwise. */
export async function addStack(
  { db, objects }: Pick<Stores, 'db' | 'objects'>,
  organisationId: string,
  name: string,
  found: Partial<Analysis> = {},
): Promise<AddedStack> {
  const storageKey = randomUUID();
  const { id: stackId } = await db
    .insertInto('stacks')
    .values({ organisation_id: organisationId, name, storage_key: storageKey, generation: 1 })
    .returning('id')
    .executeTakeFirstOrThrow();
  const stack = { stackId, organisationId, storageKey };
  await addDeployment({ db, objects }, stack, { generation: 1, name, ...found });
  return stack;
}

/** The deployment of a finished run, newest of its stack. Answers the key of its analysis. */
export async function addDeployment(
  { db, objects }: Pick<Stores, 'db' | 'objects'>,
  { stackId, storageKey }: AddedStack,
  deployment: { generation: number; name?: string } & Partial<Analysis>,
): Promise<string> {
  const { generation, name = 'stack', dependsOn = [] } = deployment;
  const { resources = ['license', 'version'].map((path) => ({ path, value: `${path} of ${name}` })) } =
    deployment;
  const key = analysisKey(storageKey, randomUUID());
  await writeAnalysis(objects, key, { dependsOn, resources }, noSignal);
  await db
    .insertInto('deployments')
    .values({
      stack_id: stackId,
      generation,
      change: 'deploy',
      name,
      depends_on: dependsOn,
      analysis_key: key,
    })
    .execute();
  await db
    .updateTable('stacks')
    .set(deployment.name === undefined ? { generation } : { generation, name })
    .where('id', '=', stackId)
    .where('generation', '<=', generation)
    .execute();
  return key;
}

/** Deletes a stack as the service does, without its tasks: the deletion is a generation of its own. */
export async function markDeleted(platform: DemoDatabase, stackId: string): Promise<number> {
  const { generation, name } = await platform
    .updateTable('stacks')
    .set((each) => ({ deleted_at: new Date(), generation: each('generation', '+', 1) }))
    .where('id', '=', stackId)
    .returning(['generation', 'name'])
    .executeTakeFirstOrThrow();
  await platform
    .insertInto('deployments')
    .values({ stack_id: stackId, generation, change: 'delete', name, depends_on: [], analysis_key: null })
    .execute();
  return generation;
}

/** Resources of a stack in the index, put there without a handler. */
export async function putInIndex(
  explore: ExploreDatabase,
  { stackId, organisationId }: AddedStack,
  facts: Readonly<Record<string, string>> = { license: 'put there', version: 'put there' },
  generation = 1,
): Promise<void> {
  await explore
    .insertInto('projections')
    .values({ stack_id: stackId, organisation_id: organisationId, generation })
    .execute();
  const rows = Object.entries(facts).map(([path, value]) => ({ stack_id: stackId, path, value }));
  await explore.insertInto('resources').values(rows).execute();
}

/** `path=value` of all that the index has of a stack. */
export async function indexedOf(explore: ExploreDatabase, stackId: string): Promise<string[]> {
  const rows = await explore
    .selectFrom('resources')
    .select(['path', 'value'])
    .where('stack_id', '=', stackId)
    .orderBy('path')
    .execute();
  return rows.map(({ path, value }) => `${path}=${value}`);
}

export async function edgesFrom(platform: DemoDatabase, stackId: string) {
  return platform
    .selectFrom('edges')
    .select(['to_stack_id', 'from_name', 'generation'])
    .where('from_stack_id', '=', stackId)
    .orderBy('to_stack_id')
    .execute();
}

/** Every key of the bucket below a prefix. */
export async function keysBelow(objects: ObjectStore, prefix: string): Promise<string[]> {
  const keys: string[] = [];
  let next: string | undefined;
  do {
    const page = await objects.listPage(prefix, next, noSignal);
    keys.push(...page.keys);
    next = page.next;
  } while (next !== undefined);
  return keys.sort();
}

/** Writes objects, some at once. */
export async function putObjects(objects: ObjectStore, keys: readonly string[]): Promise<void> {
  const rest = keys.values();
  const inTurn = async () => {
    for (const key of rest) await objects.write(key, 'x', noSignal);
  };
  await Promise.all(Array.from({ length: 8 }, inTurn));
}

/** Runs `work` while another session holds the locks that `lock` takes; they are given back at its end. */
export async function whileLocked<Tables, Result>(
  database: Kysely<Tables>,
  lock: (holder: Kysely<Tables>) => Promise<unknown>,
  work: () => Promise<Result>,
): Promise<Result> {
  return database.transaction().execute(async (holder) => {
    await lock(holder);
    return work();
  });
}

/** Resolves once `count` sessions of the database wait for a lock. */
export async function untilWaiting<Tables>(database: Kysely<Tables>, count: number): Promise<void> {
  await waitFor(
    async () => {
      const { rows } = await sql<{ waiting: number }>`
        SELECT count(*)::int AS waiting FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'`.execute(database);
      return (rows[0]?.waiting ?? 0) >= count;
    },
    { what: `${count} sessions wait for a lock` },
  );
}
