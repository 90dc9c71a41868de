import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../embedded/index.ts';
import { migrateUp } from '../../index.ts';
import { S3Storage } from '../services/file-storage.ts';
import { RedisGeoIndex } from '../services/geo-index.ts';
import { httpPreviewer } from '../services/link-preview.ts';
import type { SocialDatabase } from '../services/run-limits.ts';
import { createTables } from '../services/schema.ts';
import type { SocialTables } from '../services/tables.ts';
import type { Stores } from '../services/wiring.ts';
import type { Closing } from './closing.ts';
import { startObjectStore } from './object-store.ts';
import { startRedis } from './redis.ts';
import { startWebsite, type Website } from './website.ts';

/** Everything that the demo stands on. */
export interface DemoStores extends Stores {
  readonly postgres: EmbeddedPostgres;
  readonly storage: S3Storage;
  readonly site: Website;
}

const BUCKET = 'assets';
/** For the app's own statements; each replica has connections of its own for the queue. */
const CONNECTIONS = 8;

/** Starts PostgreSQL, an object store, a website, and Redis where there is one. What is started is deferred at once. */
export async function startStores(say: (text: string) => void, closing: Closing): Promise<DemoStores> {
  const postgres = await startEmbeddedPostgres({ onProgress: say });
  closing.defer(() => postgres.stop());
  await migrateUp(postgres.connection());
  const db = openDatabase(postgres, closing);
  await createTables(db);
  say(`PostgreSQL ${postgres.version} is up, with the schema of the queue and the app's own tables`);
  const objects = await startObjectStore();
  closing.defer(() => objects.stop());
  await objects.createBucket(BUCKET);
  const s3 = objects.connect();
  closing.defer(() => s3.destroy());
  say(`the object store is up on ${objects.endpoint}`);
  const redis = await startRedis();
  if (redis !== undefined) closing.defer(() => redis.stop());
  const client = await redis?.connect();
  if (client !== undefined) closing.defer(() => client.destroy());
  say(redis === undefined ? 'there is no redis-server here: cron:redis_sync will skip' : 'Redis is up');
  const site = await startWebsite();
  closing.defer(() => site.stop());
  return {
    postgres,
    db,
    storage: new S3Storage(s3, BUCKET),
    site,
    geo: client && new RedisGeoIndex(client),
    // The links of the demo lead to its own website, and nowhere else.
    previewer: httpPreviewer(({ origin }) => origin === site.url),
    orphanAgeMs: 0,
  };
}

function openDatabase(postgres: EmbeddedPostgres, closing: Closing): SocialDatabase {
  const pool = new pg.Pool({ ...postgres.connection(), max: CONNECTIONS, application_name: 'social' });
  // Whoever uses a connection hears of its end as a failed query; these are for those that nobody uses.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  const db = new Kysely<SocialTables>({ dialect: new PostgresDialect({ pool }) });
  closing.defer(() => db.destroy());
  return db;
}
