import { createHash } from 'node:crypto';
import os from 'node:os';
import { parseArgs } from 'node:util';
import { type Kysely, sql } from 'kysely';
import { type PayloadInput, type TaskType, tasks } from '../../generated/tasks.ts';
import { startObjectStoreServer } from '../../src/demo/object-store-server.ts';
import { openDatabase } from '../../src/demo/pool.ts';
import {
  createExploreTables,
  createPlatformTables,
  type DemoDatabase,
  type ExploreDatabase,
} from '../../src/demo/schema.ts';
import { startEmbeddedPostgres } from '../../src/embedded/index.ts';
import {
  createHandlers,
  type HandlerServices,
  type ObjectStore,
  openObjectStore,
  type PlatformTables,
} from '../../src/handlers/index.ts';
import { runTask } from '../../src/testing/index.ts';

// Measures the worst case of each of the platform's task types in one organisation of so many stacks, and says how
// far its ceiling is above it. The stacks' analyses are made up as they are read: at a hundred thousand of them an
// object store on this machine would be all that is measured. What one read of s3rver costs is measured apart.

const USAGE = `node .taskq/bench/test/bench/ceilings.js [--stacks 10000] [--objects 3000] [--no-walk]

  --stacks <n>   of the one organisation; every tenth is deleted and waits for the reap
  --objects <n>  below the prefix that prefix_delete deletes
  --no-walk      leaves the two whole rebuilds out, which take by far the longest`;

/** What the diagnostics look at, and as much again that they do not. */
const PATHS = [
  'package',
  'version',
  'license',
  'integrity',
  ...Array.from({ length: 6 }, (_, at) => `path/${at}`),
];
/** Of the one stack that is out of all proportion. */
const PATHOLOGICAL = 100_000;
const ORGANISATION = uuid('organisation 0');
const DELETED_EVERY = 10;
const READS_MEASURED = 200;

interface Measured {
  readonly type: TaskType;
  readonly what: string;
  readonly ms: number;
  readonly note?: string;
}

/** The same uuid for the same text, in SQL as in JavaScript. */
function uuid(text: string): string {
  const hex = createHash('md5').update(text).digest('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`;
}

const SQL_UUID = (text: string) =>
  `overlay(overlay(md5(${text}) placing '4' from 13) placing '8' from 17)::uuid`;
const stackId = (at: number) => uuid(`stack ${at}`);
const analysisKey = (at: number | string) => `stacks/key-${at}/runs/1/analysis.json`;

/** Analyses as runs leave them: stack n depends on the first stack and on two others. */
function madeUpObjects(stacks: number, deleting: ObjectStore): ObjectStore {
  const resources = PATHS.map((path) => ({ path, value: 'x' }));
  const pathological = JSON.stringify({
    dependsOn: Array.from({ length: Math.min(stacks, PATHOLOGICAL) }, (_, at) => stackId(at)),
    resources: Array.from({ length: PATHOLOGICAL }, (_, at) => ({
      path: `path/${at}`,
      value: `value ${at}`,
    })),
  });
  return {
    async read(key) {
      const at = key.split('/')[1]?.slice('key-'.length);
      if (at === 'pathological') return pathological;
      const place = Number(at);
      const dependsOn = [0, (place * 7919 + 1) % stacks, (place * 104_729 + 3) % stacks].map(stackId);
      return JSON.stringify({ dependsOn: [...new Set(dependsOn)], resources });
    },
    write: async () => {},
    listPage: deleting.listPage.bind(deleting),
    deleteKeys: deleting.deleteKeys.bind(deleting),
  };
}

/** One organisation whose graph and index are full, so that a rebuild replaces all of it. */
async function fill(db: DemoDatabase, explore: ExploreDatabase, stacks: number): Promise<void> {
  const series = `generate_series(0, ${stacks - 1}) AS at`;
  const id = SQL_UUID("'stack ' || at");
  const isDeleted = `at % ${DELETED_EVERY} = ${DELETED_EVERY - 1}`;
  await run(db, `INSERT INTO organisations (id, name, seat_cap) VALUES ('${ORGANISATION}', 'one', 1)`);
  await run(
    db,
    `INSERT INTO stacks (id, organisation_id, name, storage_key, generation, published_generation, deleted_at)
     SELECT ${id}, '${ORGANISATION}', 'stack ' || at, 'key-' || at, 1, 1, CASE WHEN ${isDeleted} THEN now() END
     FROM ${series}`,
  );
  await run(
    db,
    `INSERT INTO deployments (stack_id, generation, change, name, depends_on, analysis_key)
     SELECT ${id}, 1, 'deploy', 'stack ' || at, '{}', '${analysisKey('#')}' FROM ${series}`.replace(
      "'stacks/key-#/runs/1/analysis.json'",
      "'stacks/key-' || at || '/runs/1/analysis.json'",
    ),
  );
  for (const target of [
    '0',
    `(at::bigint * 7919 + 1) % ${stacks}`,
    `(at::bigint * 104729 + 3) % ${stacks}`,
  ]) {
    const targetId = SQL_UUID(`'stack ' || ${target}`);
    await run(
      db,
      `INSERT INTO edges SELECT ${id}, ${targetId}, 'stack ' || at, 1 FROM ${series} ON CONFLICT DO NOTHING`,
    );
  }
  await run(
    explore,
    `INSERT INTO projections (stack_id, organisation_id, generation) SELECT ${id}, '${ORGANISATION}', 1 FROM ${series}`,
  );
  await run(
    explore,
    // Two stacks are of the same package each, in two versions: as many findings as there can be.
    `INSERT INTO resources SELECT ${id}, path,
       CASE path WHEN 'package' THEN 'package ' || at / 2 WHEN 'version' THEN at::text ELSE 'x' END
     FROM ${series}, unnest(ARRAY['${PATHS.join("','")}']) AS path WHERE path NOT IN ('license', 'integrity')`,
  );
  for (const database of [db, explore]) await sql`ANALYZE`.execute(database as Kysely<unknown>);
}

/** A live stack beside the others whose run found a hundred thousand resources, and a deleted one that has them. */
async function addPathological(db: DemoDatabase): Promise<{ live: string; deleted: string }> {
  const [live, deleted] = [uuid('pathological live'), uuid('pathological deleted')];
  for (const [at, id] of [live, deleted].entries()) {
    const storageKey = at === 0 ? 'pathological' : 'pathological-2';
    await db
      .insertInto('stacks')
      .values({ id, organisation_id: ORGANISATION, name: storageKey, storage_key: storageKey, generation: 1 })
      .execute();
    await db
      .insertInto('deployments')
      .values({
        stack_id: id,
        generation: 1,
        change: 'deploy',
        name: storageKey,
        depends_on: [],
        analysis_key: analysisKey('pathological'),
      })
      .execute();
  }
  return { live, deleted };
}

async function run<Tables>(database: Kysely<Tables>, statement: string): Promise<void> {
  await sql.raw(statement).execute(database);
}

class Measuring {
  readonly measured: Measured[] = [];
  readonly #handlers: ReturnType<typeof createHandlers>;

  constructor(services: HandlerServices) {
    this.#handlers = createHandlers(services);
  }

  /** Runs a task to its end, slice by slice; measured is the longest of them. */
  async measure<Type extends TaskType>(
    type: Type,
    what: string,
    payload: PayloadInput<Type>,
    from?: { readonly afterStackId: string },
  ): Promise<void> {
    const slicesMs: number[] = [];
    let cursor: unknown = from;
    for (;;) {
      const startedAt = performance.now();
      const options = cursor === undefined ? {} : { cursor };
      const { result, error, cursor: next } = await runTask(this.#handlers, type, payload, options as never);
      if (result === 'error') throw error;
      slicesMs.push(performance.now() - startedAt);
      if (result === 'done') break;
      cursor = next;
    }
    const sum = slicesMs.reduce((total, ms) => total + ms, 0);
    const note = slicesMs.length > 1 ? { note: `${slicesMs.length} slices, ${seconds(sum)} in all` } : {};
    this.measured.push({ type, what, ms: Math.max(...slicesMs), ...note });
    console.error(line(this.measured.at(-1) as Measured));
  }
}

interface Options {
  readonly stacks: number;
  readonly objectCount: number;
  readonly isWalking: boolean;
}

async function measureAll(options: Options): Promise<void> {
  const { stacks, objectCount } = options;
  const postgres = await startEmbeddedPostgres();
  const server = await startObjectStoreServer();
  const store = openObjectStore(server.settings);
  try {
    const maintenance = openDatabase<PlatformTables>(postgres.connection(), 1, 'bench');
    for (const name of ['platform', 'explore']) await run(maintenance, `CREATE DATABASE ${name}`);
    await maintenance.destroy();
    const db: DemoDatabase = openDatabase(postgres.connection('platform'), 4, 'bench');
    const explore: ExploreDatabase = openDatabase(postgres.connection('explore'), 4, 'bench');
    await createPlatformTables(db);
    await createExploreTables(explore);
    console.error(`filling an organisation of ${stacks} stacks`);
    await fill(db, explore, stacks);
    const primary = db as unknown as Kysely<PlatformTables>;
    const logger = { debug() {}, info() {}, warn: console.error, error: console.error };
    const objects = madeUpObjects(stacks, store);
    const measuring = new Measuring({ primary, replica: primary, explore, objects, logger });
    await measureEach(measuring, db, options);
    await measureObjects(measuring, store, objectCount);
    report(measuring.measured, stacks);
    await db.destroy();
    await explore.destroy();
  } finally {
    store.close();
    await server.stop();
    await postgres.stop();
  }
}

async function measureEach(
  measuring: Measuring,
  db: DemoDatabase,
  { stacks, isWalking }: Options,
): Promise<void> {
  const organisation = { organisationId: ORGANISATION };
  const single = { stackId: stackId(1), generation: 1 };
  const all = `${stacks.toLocaleString('en')} stacks`;
  await measuring.measure('seat_cap_audit', all, organisation);
  await measuring.measure('explore_diagnostics', `${all}, ${PATHS.length} resources each`, {
    ...organisation,
    generation: 1,
  });
  await measuring.measure('dependent_triggers_resolve', `nine in ten of ${all} depend on it`, {
    stackId: stackId(0),
    generation: 1,
  });
  await measuring.measure('resource_index_reindex', 'an ordinary stack', single);
  await measuring.measure('dependency_graph_reconcile', 'an ordinary stack', single);
  const behindAll = { afterStackId: 'ffffffff-ffff-4fff-bfff-ffffffffffff' };
  for (const type of ['dependency_graph_rebuild', 'resource_index_rebuild'] as const) {
    await measuring.measure(type, `the reap alone, a tenth of ${all}`, organisation, behindAll);
    if (isWalking) await measuring.measure(type, `the longest slice, ${all}`, organisation);
  }
  const { live, deleted } = await addPathological(db);
  const many = PATHOLOGICAL.toLocaleString('en');
  for (const id of [live, deleted]) {
    await measuring.measure('resource_index_reindex', `a stack of ${many} resources`, {
      stackId: id,
      generation: 1,
    });
  }
  const edges = Math.min(stacks, PATHOLOGICAL).toLocaleString('en');
  await measuring.measure('dependency_graph_reconcile', `a stack that depends on ${edges}`, {
    stackId: live,
    generation: 1,
  });
  await db.updateTable('stacks').set({ deleted_at: new Date() }).where('id', '=', deleted).execute();
  await measuring.measure('explore_purge', `a stack of ${many} resources`, { stackId: deleted });
}

/** On s3rver, which keeps each object in three files. */
async function measureObjects(measuring: Measuring, store: ObjectStore, objectCount: number): Promise<void> {
  const { signal } = new AbortController();
  const keys = Array.from({ length: objectCount }, (_, at) => `stacks/many/${at}`);
  const rest = keys.values();
  const write = async () => {
    for (const key of rest) await store.write(key, 'x', signal);
  };
  await Promise.all(Array.from({ length: 8 }, write));
  const startedAt = performance.now();
  for (const key of keys.slice(0, READS_MEASURED)) await store.read(key, signal);
  const readMs = (performance.now() - startedAt) / READS_MEASURED;
  console.error(
    `one read of the object store takes ${readMs.toFixed(1)} ms; a rebuild has one for each stack`,
  );
  await measuring.measure('prefix_delete', `${objectCount.toLocaleString('en')} objects on s3rver`, {
    prefix: 'stacks/many/',
  });
}

function report(measured: readonly Measured[], stacks: number): void {
  const [one] = os.cpus();
  console.log(
    `${stacks} stacks; ${os.availableParallelism()} × ${one?.model ?? 'unknown'}, load ${os.loadavg()[0]?.toFixed(1)}\n`,
  );
  console.log('| task type | worst case | measured | ceiling | ratio |\n| --- | --- | --- | --- | --- |');
  for (const each of measured) console.log(line(each));
}

function line({ type, what, ms, note }: Measured): string {
  const { ceilingMs } = tasks[type].definition;
  const measured = note === undefined ? seconds(ms) : `${seconds(ms)} (${note})`;
  return `| ${type} | ${what} | ${measured} | ${ceilingMs / 60_000} min | ${Math.round(ceilingMs / ms)} |`;
}

function seconds(ms: number): string {
  return ms < 1_000 ? `${Math.round(ms)} ms` : `${(ms / 1_000).toFixed(1)} s`;
}

const { values } = parseArgs({
  options: {
    stacks: { type: 'string', default: '10000' },
    objects: { type: 'string', default: '3000' },
    'no-walk': { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
const [stacks, objects] = [Number(values.stacks), Number(values.objects)];
if (values.help) console.log(USAGE);
else if (!Number.isInteger(stacks) || !Number.isInteger(objects) || stacks < 10 || objects < READS_MEASURED) {
  console.error(`${USAGE}\n\nat least 10 stacks and ${READS_MEASURED} objects`);
  process.exitCode = 2;
} else await measureAll({ stacks, objectCount: objects, isWalking: !values['no-walk'] });
