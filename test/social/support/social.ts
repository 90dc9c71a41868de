import { randomUUID } from 'node:crypto';
import { ListObjectsV2Command, type S3Client } from '@aws-sdk/client-s3';
import { Kysely, PostgresDialect, sql } from 'kysely';
import pg from 'pg';
import { enqueue, type PayloadInput, type Tasks, type TaskType } from '../../../generated/social/tasks.ts';
import type { HandlerRegistry } from '../../../src/index.ts';
import { type ObjectStore, startObjectStore } from '../../../src/social/demo/object-store.ts';
import type { RedisClient, RedisServer } from '../../../src/social/demo/redis.ts';
import { startWebsite, type Website } from '../../../src/social/demo/website.ts';
import { createHandlers } from '../../../src/social/handlers/index.ts';
import { S3Storage } from '../../../src/social/services/file-storage.ts';
import { RedisGeoIndex } from '../../../src/social/services/geo-index.ts';
import { httpPreviewer } from '../../../src/social/services/link-preview.ts';
import type { SocialDatabase } from '../../../src/social/services/run-limits.ts';
import { createTables } from '../../../src/social/services/schema.ts';
import type { SocialTables } from '../../../src/social/services/tables.ts';
import { createServices, type Stores } from '../../../src/social/services/wiring.ts';
import { drain, type EnqueuedTask, enqueuedIn, type SettledRun } from '../../../src/testing/index.ts';
import { test as databaseTest } from '../../support/test.ts';
import { waitFor } from '../../support/wait.ts';
import { startTestRedis } from './redis.ts';

export { describe, expect, onTestFinished } from '../../support/test.ts';

/** A test's own tables, bucket and website, with the app's handlers over them. */
export interface World {
  readonly db: SocialDatabase;
  readonly databaseUrl: string;
  readonly s3: S3Client;
  /** Another client of the same store; the test destroys it. */
  connectS3(): S3Client;
  readonly bucket: string;
  readonly site: Website;
  /** Undefined where there is no Redis. */
  readonly redis: RedisClient | undefined;
  /** Of the test's own map in Redis. */
  readonly geoKey: string;
  /** What the handlers are made of; a test may make others of these, changed. */
  readonly stores: Stores;
  readonly handlers: HandlerRegistry<Tasks>;
  /** Enqueues a task and runs it, and no other. Answers its (last) run and what its record says. */
  run<Type extends TaskType>(type: Type, payload: PayloadInput<Type>, stores?: Partial<Stores>): Promise<Ran>;
  put(...keys: string[]): Promise<void>;
  /** Every key of the bucket, sorted. */
  keys(): Promise<string[]>;
  /** The tasks in the queue, dead letters too, of one type or of all. */
  waiting(type?: TaskType): Promise<EnqueuedTask[]>;
}

export interface Ran extends SettledRun {
  /** What the handler gave `context.result`; undefined when no record is kept. */
  readonly result: unknown;
}

interface Fixtures {
  world: World;
  objectStore: ObjectStore;
  redisServer: RedisServer | undefined;
}

/** More than any test holds open at once. */
const POOL_MAX = 20;
/** A statement that waits for a lock which its own test holds would wait for ever. */
const LOCK_MS_MAX = 20_000;

export const test = databaseTest.extend<Fixtures>({
  objectStore: [
    // biome-ignore lint/correctness/noEmptyPattern: vitest reads the fixtures it takes from the pattern.
    async ({}, use) => {
      const store = await startObjectStore();
      await use(store);
      await store.stop();
    },
    { scope: 'file' },
  ],
  redisServer: [
    // biome-ignore lint/correctness/noEmptyPattern: as above.
    async ({}, use) => {
      const server = await startTestRedis();
      await use(server);
      await server?.stop();
    },
    { scope: 'file' },
  ],
  world: async ({ database, objectStore, redisServer }, use) => {
    const db = openSocialDatabase(database.url);
    await createTables(db);
    const bucket = `test-${randomUUID()}`;
    await objectStore.createBucket(bucket);
    const connectS3 = () => objectStore.connect();
    const s3 = connectS3();
    const site = await startWebsite();
    const redis = await redisServer?.connect();
    const geoKey = `${bucket}:geo`;
    const stores: Stores = {
      db,
      storage: new S3Storage(s3, bucket),
      geo: redis && new RedisGeoIndex(redis, geoKey),
      previewer: httpPreviewer(() => true),
      orphanAgeMs: 0,
    };
    await use(
      makeWorld({ db, databaseUrl: database.url, bucket, s3, connectS3, site, redis, geoKey, stores }),
    );
    await site.stop();
    redis?.destroy();
    s3.destroy();
    await db.destroy();
  },
});

type Parts = Omit<World, 'handlers' | 'run' | 'put' | 'keys' | 'waiting'>;

function makeWorld(parts: Parts): World {
  const { db, stores, bucket, s3 } = parts;
  return {
    ...parts,
    handlers: createHandlers(createServices(stores)),
    async run(type, payload, changed = {}) {
      const handlers = createHandlers(createServices({ ...stores, ...changed }));
      // In a queue of its own, so that nothing else is run.
      const queue = 'one run';
      const { id } = await enqueue(db, type, payload, { queue });
      const runs = await drain({ db, handlers, queues: [queue] });
      return { ...(runs.at(-1) as SettledRun), result: await recordedResult(db, id) };
    },
    async put(...keys) {
      const { signal } = new AbortController();
      for (const key of keys) await stores.storage.put(key, `content of ${key}`, signal);
    },
    keys: () => listKeys(s3, bucket),
    async waiting(type) {
      const tasks = await enqueuedIn(db);
      return tasks.filter((task) => type === undefined || task.type === type);
    },
  };
}

/** `log` hears every statement, after it was run and before the next one is. */
export function openSocialDatabase(url: string, log: (text: string) => void | Promise<void> = () => {}) {
  const pool = new pg.Pool({ connectionString: url, max: POOL_MAX, lock_timeout: LOCK_MS_MAX });
  // Tests kill backends; an idle connection's end is reported here and would end the process unheard.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  return new Kysely<SocialTables>({
    dialect: new PostgresDialect({ pool }),
    log: (event) => (event.level === 'query' ? log(event.query.sql) : undefined),
  });
}

async function recordedResult(db: SocialDatabase, id: string): Promise<unknown> {
  const { rows } = await sql<{ result: unknown }>`
    SELECT result FROM taskq.async_completed_tasks WHERE id = ${id}`.execute(db);
  return rows[0]?.result;
}

async function listKeys(s3: S3Client, bucket: string): Promise<string[]> {
  const keys: string[] = [];
  let token: string | undefined;
  do {
    const page = await s3.send(new ListObjectsV2Command({ Bucket: bucket, ContinuationToken: token }));
    keys.push(...(page.Contents ?? []).flatMap(({ Key: key }) => (key === undefined ? [] : [key])));
    token = page.NextContinuationToken;
  } while (token !== undefined);
  return keys.sort();
}

/** Resolves once a session of the database waits for a lock. */
export async function untilWaiting(db: SocialDatabase): Promise<void> {
  await waitFor(
    async () => {
      const { rows } = await sql<{ waiting: number }>`
        SELECT count(*)::int AS waiting FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'`.execute(db);
      return (rows[0]?.waiting ?? 0) > 0;
    },
    { what: 'a session that waits for a lock' },
  );
}
