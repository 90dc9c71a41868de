import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { sql } from 'kysely';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../embedded/index.ts';
import { type ObjectStoreSettings, openObjectStore } from '../handlers/index.ts';
import { type ConnectionSettings, migrateUp } from '../index.ts';
import type { Closing } from './closing.ts';
import { DEMO_PREFIX_DELETE_DELAY, WORKER_SLOTS } from './demo-timings.ts';
import { type LoadedOrganisation, loadLockfile } from './load-lockfile.ts';
import { startObjectStoreServer } from './object-store-server.ts';
import { openDatabase } from './pool.ts';
import { createExploreTables, createPlatformTables, type DemoDatabase } from './schema.ts';
import { type Service, startService } from './service.ts';
import type { Stores } from './stores.ts';
import type { Story } from './story.ts';
import { TaskEvents } from './task-events.ts';
import type { StoreSettings } from './worker-messages.ts';
import { WorkerProcess } from './worker-process.ts';

/** Everything that the demo runs. */
export interface Platform {
  readonly postgres: EmbeddedPostgres;
  readonly settings: StoreSettings;
  readonly stores: Stores;
  readonly organisation: LoadedOrganisation;
  readonly service: Service;
  readonly workers: readonly WorkerProcess[];
  readonly events: TaskEvents;
}

/** Stores that are there already, and empty; what is not given is started. */
export interface GivenStores {
  readonly explore?: ConnectionSettings | undefined;
  readonly objects?: ObjectStoreSettings | undefined;
}

const SERVICE_CONNECTIONS = 8;
const EXPLORE_DATABASE = 'explore';

/** Starts the stores, loads the organisation, starts service and workers. What is started is handed to `closing` at once. */
export async function startPlatform(
  given: GivenStores,
  story: Story,
  closing: Closing,
  signal: AbortSignal,
): Promise<Platform> {
  const events = new TaskEvents();
  closing.defer(async () => events.close());
  const postgres = await startDatabase(story, closing);
  const settings = await findStores(given, postgres, story, closing);
  const stores = await openStores(settings, closing);
  const organisation = await loadOrganisation(stores, story, signal);
  const service = await startService({ ...stores, prefixDeleteDelay: DEMO_PREFIX_DELETE_DELAY });
  closing.defer(() => service.close());
  story.say(`the service listens on ${service.url}`);
  const workers = ['A', 'B'].map((name) => {
    const onTrouble = (text: string) => story.say(`worker ${name}: ${text}`);
    return new WorkerProcess({ name, stores: settings, events, onTrouble });
  });
  closing.defer(async () => {
    await Promise.all(workers.map((worker) => worker.stop()));
  });
  await Promise.all(workers.map((worker) => worker.ready()));
  for (const { name, pid } of workers) {
    story.say(`worker ${name} is a process of its own (pid ${pid}) with ${WORKER_SLOTS} slots`);
  }
  return { postgres, settings, stores, organisation, service, workers, events };
}

async function startDatabase(story: Story, closing: Closing): Promise<EmbeddedPostgres> {
  // TCP, so that psql reaches it whoever runs the demo; the rows are thrown away with it.
  const postgres = await startEmbeddedPostgres({ tcp: true, onProgress: (step) => story.say(step) });
  closing.defer(() => postgres.stop());
  const { ran } = await migrateUp(postgres.connection());
  story.say(`PostgreSQL ${postgres.version} is up; migrated the schema taskq: ${ran.join(', ')}`);
  return postgres;
}

/** The stores as they were given; the others are a second database on the same server, and an s3rver. */
async function findStores(
  given: GivenStores,
  postgres: EmbeddedPostgres,
  story: Story,
  closing: Closing,
): Promise<StoreSettings> {
  const database = postgres.connection();
  if (given.explore === undefined) {
    const db: DemoDatabase = openDatabase(database, 1, 'service');
    await sql.raw(`CREATE DATABASE ${EXPLORE_DATABASE}`).execute(db);
    await db.destroy();
  }
  const explore = given.explore ?? postgres.connection(EXPLORE_DATABASE);
  let objects = given.objects;
  if (objects === undefined) {
    const server = await startObjectStoreServer();
    closing.defer(() => server.stop());
    objects = server.settings;
  }
  story.say(
    `two stores that no transaction spans: the database Explore, and the bucket '${objects.bucket}' ` +
      `at ${objects.endpoint ?? 'AWS'}`,
  );
  return { database, explore, objects };
}

async function openStores(settings: StoreSettings, closing: Closing): Promise<Stores> {
  const db: Stores['db'] = openDatabase(settings.database, SERVICE_CONNECTIONS, 'service');
  closing.defer(() => db.destroy());
  const explore: Stores['explore'] = openDatabase(settings.explore, SERVICE_CONNECTIONS, 'service');
  closing.defer(() => explore.destroy());
  const objects = openObjectStore(settings.objects);
  closing.defer(async () => objects.close());
  await createPlatformTables(db);
  await createExploreTables(explore);
  return { db, explore, objects };
}

async function loadOrganisation(
  stores: Stores,
  story: Story,
  signal: AbortSignal,
): Promise<LoadedOrganisation> {
  const organisation = await loadLockfile(stores, await readFile(findLockfile(), 'utf8'), signal);
  const { name, stacks, declaredEdges, resources } = organisation;
  story.say(
    `package-lock.json is now the organisation '${name}': ${stacks} stacks, each with the analysis of its first ` +
      `run in the bucket: ${declaredEdges} dependencies, ${resources} resources`,
  );
  story.say(
    `the transaction that made the stacks enqueued ${stacks} dependency_graph_reconcile, a resource_index_rebuild ` +
      'and a seat_cap_audit: graph and index are empty until workers have run them',
  );
  return organisation;
}

/** The lock file of the repository that this file is part of, as source or as build. */
function findLockfile(): string {
  const ownFolder = path.dirname(fileURLToPath(import.meta.url));
  for (let folder = ownFolder; folder !== path.dirname(folder); folder = path.dirname(folder)) {
    const file = path.join(folder, 'package-lock.json');
    if (existsSync(file)) return file;
  }
  throw new Error('there is no package-lock.json above the demo: run it in a clone of the repository');
}
