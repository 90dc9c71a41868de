import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { z } from 'zod';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/index.ts';
import { createEnqueuer, createRegistry, defineTask, type HandlersFor } from '../../src/index.ts';
import { migrateUp } from '../../src/statements/migrate.ts';
import { createFloor } from './floor.ts';
import type { BenchOptions } from './options.ts';

// taskq and the floor have a database each on one durable server, so that neither sees the other's
// notifications, dead rows or statistics.

export const TASKQ_DATABASE = 'bench_taskq';
export const FLOOR_DATABASE = 'bench_floor';
/** The idle replica has its own, so that what counts its statements costs the others nothing. */
export const IDLE_DATABASE = 'bench_idle';

export interface Bench {
  readonly server: EmbeddedPostgres;
  readonly options: BenchOptions;
  /** Says what is going on, to people. */
  progress(message: string): void;
}

/** The one task type of the benchmark. */
const definition = defineTask({
  type: 'bench_task',
  payload: z.strictObject({ deploymentId: z.string(), position: z.number() }),
  ceiling: '1m',
});
const tasks = { bench_task: { definition, revision: 1 } };

export const { enqueue, enqueueMany } = createEnqueuer(tasks);

export const benchHandlers = (handler: HandlersFor<typeof tasks>['bench_task']) =>
  createRegistry(tasks, { bench_task: handler });

export const payload = (position: number) => ({
  deploymentId: '6f1d2a52-6a0c-4e6e-9a56-0c2b4f6f7a11',
  position,
});

export async function startServer(progress: (message: string) => void): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres({
    durable: true,
    settings: {
      shared_preload_libraries: 'pg_stat_statements',
      'pg_stat_statements.track': 'none',
    },
    onProgress: progress,
  });
  try {
    for (const name of [TASKQ_DATABASE, FLOOR_DATABASE, IDLE_DATABASE]) {
      await onClient(server, 'postgres', (client) => client.query(`create database ${name}`));
    }
    await migrateUp(server.connection(TASKQ_DATABASE), { schema: 'taskq' });
    await migrateUp(server.connection(IDLE_DATABASE), { schema: 'taskq' });
    await onClient(server, FLOOR_DATABASE, createFloor);
    return server;
  } catch (error) {
    await server.stop();
    throw error;
  }
}

/** What an application has: Kysely over a pool of plain pg, which prepares no statements unless it is told to. */
export function openApplication(
  server: EmbeddedPostgres,
  connections: number,
  Client: typeof pg.Client = pg.Client,
): Kysely<unknown> {
  const pool = new pg.Pool({ ...server.connection(TASKQ_DATABASE), max: connections, Client });
  return new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) });
}

export async function onClient<Answer>(
  server: EmbeddedPostgres,
  database: string,
  use: (client: pg.Client) => Promise<Answer>,
): Promise<Answer> {
  const client = new pg.Client(server.connection(database));
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

/** Empties the table, and with it forgets its statistics: every measurement begins at the same point. */
export async function clearTasks(server: EmbeddedPostgres): Promise<void> {
  await onClient(server, TASKQ_DATABASE, (client) => client.query('truncate taskq.async_tasks'));
}

/** Both sides of every round, in an order that turns round by round. */
export async function inRounds(
  { options, progress }: Bench,
  name: string,
  sides: { taskq(): Promise<number>; floor(): Promise<number> },
): Promise<{ taskq: number[]; floor: number[] }> {
  const figures = { taskq: [] as number[], floor: [] as number[] };
  for (let round = 1; round <= options.rounds; round += 1) {
    const order = round % 2 === 1 ? (['floor', 'taskq'] as const) : (['taskq', 'floor'] as const);
    for (const side of order) figures[side].push(await sides[side]());
    const [taskq, floor] = [figures.taskq.at(-1) as number, figures.floor.at(-1) as number];
    const ratio = (taskq / floor).toFixed(2);
    progress(
      `${name}, round ${round}/${options.rounds}: taskq ${taskq.toFixed(0)}, floor ${floor.toFixed(0)}, ratio ${ratio}`,
    );
  }
  return figures;
}

/** Per second, of something that `work` did `count` times. */
export async function perSecond(count: number, work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return count / ((performance.now() - startedAt) / 1_000);
}

/** Splits `count` calls among `clients` that each make theirs one after the other. */
export async function amongClients(
  clients: number,
  count: number,
  call: (client: number) => Promise<unknown>,
): Promise<void> {
  let left = count;
  const loop = async (client: number) => {
    while (left > 0) {
      left -= 1;
      await call(client);
    }
  };
  await Promise.all(Array.from({ length: clients }, (_value, client) => loop(client)));
}

export const scaled = (count: number, { scale }: BenchOptions): number =>
  Math.max(10, Math.round(count * scale));
