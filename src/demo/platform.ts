import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Kysely, PostgresDialect } from 'kysely';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../embedded/index.ts';
import { migrateUp } from '../index.ts';
import type { Closing } from './closing.ts';
import { WORKER_SLOTS } from './demo-timings.ts';
import { type LoadedOrganisation, loadLockfile } from './load-lockfile.ts';
import { openPool } from './pool.ts';
import { createTables, type DemoDatabase, type DemoTables } from './schema.ts';
import { type Service, startService } from './service.ts';
import type { Story } from './story.ts';
import { TaskEvents } from './task-events.ts';
import { WorkerProcess } from './worker-process.ts';

/** Everything that the demo runs. */
export interface Platform {
  readonly postgres: EmbeddedPostgres;
  readonly db: DemoDatabase;
  readonly organisation: LoadedOrganisation;
  readonly service: Service;
  readonly workers: readonly WorkerProcess[];
  readonly events: TaskEvents;
}

const SERVICE_CONNECTIONS = 8;

/** Starts PostgreSQL, loads the organisation, starts service and workers. What is started is handed to `closing` at once. */
export async function startPlatform(story: Story, closing: Closing): Promise<Platform> {
  const events = new TaskEvents();
  closing.defer(async () => events.close());
  const postgres = await startDatabase(story, closing);
  const db = openDatabase(postgres, closing);
  await createTables(db);
  const organisation = await loadLockfile(db, await readFile(findLockfile(), 'utf8'));
  story.say(
    `package-lock.json is now the organisation '${organisation.name}': ${organisation.stacks} stacks, ` +
      `${organisation.declaredEdges} dependencies between them, ${organisation.exploreRows} Explore rows`,
  );
  story.say(
    `the same transaction enqueued ${organisation.stacks} dependency_graph_reconcile and 1 seat_cap_audit: ` +
      'the graph is empty until workers have run them',
  );
  const service = await startService(db);
  closing.defer(() => service.close());
  story.say(`the service listens on ${service.url}`);
  const workers = ['A', 'B'].map((name) => {
    const onTrouble = (text: string) => story.say(`worker ${name}: ${text}`);
    return new WorkerProcess({ name, database: postgres.connection(), events, onTrouble });
  });
  closing.defer(async () => {
    await Promise.all(workers.map((worker) => worker.stop()));
  });
  await Promise.all(workers.map((worker) => worker.ready()));
  for (const { name, pid } of workers) {
    story.say(`worker ${name} is a process of its own (pid ${pid}) with ${WORKER_SLOTS} slots`);
  }
  return { postgres, db, organisation, service, workers, events };
}

async function startDatabase(story: Story, closing: Closing): Promise<EmbeddedPostgres> {
  // TCP, so that psql reaches it whoever runs the demo; the rows are thrown away with it.
  const postgres = await startEmbeddedPostgres({ tcp: true, onProgress: (step) => story.say(step) });
  closing.defer(() => postgres.stop());
  const { ran } = await migrateUp(postgres.connection());
  story.say(`PostgreSQL ${postgres.version} is up; migrated the schema taskq: ${ran.join(', ')}`);
  return postgres;
}

function openDatabase(postgres: EmbeddedPostgres, closing: Closing): DemoDatabase {
  const connection = postgres.connection();
  const pool = openPool({ ...connection, max: SERVICE_CONNECTIONS, application_name: 'service' });
  const db = new Kysely<DemoTables>({ dialect: new PostgresDialect({ pool }) });
  closing.defer(() => db.destroy());
  return db;
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
