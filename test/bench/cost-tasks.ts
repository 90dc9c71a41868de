import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { z } from 'zod';
import type { EmbeddedPostgres } from '../../src/embedded/index.ts';
import {
  type App,
  createApp,
  createEnqueuer,
  createRegistry,
  defineTask,
  type HandlersFor,
  PreparingClient,
} from '../../src/index.ts';
import { COST_DATABASE, type Counts, countedDuring } from './cost-counts.ts';
import { SettledCount } from './drain.ts';

// What one task costs the database, from its enqueue to its last settlement.

const payload = z.strictObject({ deploymentId: z.string(), position: z.number() });
const costTask = defineTask({
  type: 'cost_task',
  payload,
  ceiling: '1m',
  backoff: { first: '1s', max: '1s' },
});
const beatingTask = defineTask({ type: 'beating_task', payload, ceiling: '1m', heartbeat: '1s' });
const tasks = {
  cost_task: { definition: costTask, revision: 1 },
  beating_task: { definition: beatingTask, revision: 1 },
};
type Handlers = HandlersFor<typeof tasks>;
const { enqueue, enqueueMany } = createEnqueuer(tasks);

const exampleOf = (position: number) => ({ deploymentId: '6f1d2a52-6a0c-4e6e-9a56-0c2b4f6f7a11', position });

export const costHandlers = (handlers: Partial<Handlers> = {}) =>
  createRegistry(tasks, { cost_task: done, beating_task: done, ...handlers });
const done = async () => 'done' as const;

export const enqueueExample = (db: Kysely<unknown>, position: number, wake: 'notify' | 'poll') =>
  enqueue(db, 'cost_task', exampleOf(position), { wake });

type Application = Kysely<unknown>;
type Transaction = Parameters<Parameters<ReturnType<Application['transaction']>['execute']>[0]>[0];

interface Way {
  readonly name: string;
  readonly tasks: number;
  readonly slots: number;
  readonly handlers?: Partial<Handlers>;
  /** One after the other, each settled before the next is enqueued; else all at once, in one transaction. */
  readonly oneByOne?: boolean;
  readonly enqueue: (transaction: Transaction, position: number) => Promise<unknown>;
  readonly enqueueAll?: (transaction: Transaction, tasks: number) => Promise<unknown>;
}

const HEARTBEAT_RUN_MS = 3_500;

/** Fails at its first run, and is done at its second. */
function failingOnce(): Partial<Handlers> {
  return {
    cost_task: async (_payload, { attempt }) => {
      if (attempt === 1) throw new Error('fails on purpose');
      return 'done';
    },
  };
}

const waiting: Partial<Handlers> = {
  beating_task: () => new Promise((resolve) => setTimeout(() => resolve('done'), HEARTBEAT_RUN_MS)),
};

const WAYS: readonly Way[] = [
  {
    name: 'alone, on an idle replica',
    tasks: 500,
    slots: 4,
    oneByOne: true,
    enqueue: (transaction, n) => enqueue(transaction, 'cost_task', exampleOf(n)),
  },
  {
    name: 'the same, its record kept',
    tasks: 500,
    slots: 4,
    oneByOne: true,
    enqueue: (transaction, n) => enqueue(transaction, 'cost_task', exampleOf(n), { retention: '1d' }),
  },
  {
    name: 'of many due ones, failing once, 20 slots',
    tasks: 500,
    slots: 20,
    handlers: failingOnce(),
    enqueue: (transaction, n) => enqueue(transaction, 'cost_task', exampleOf(n)),
  },
  {
    name: `of 100 that run for ${HEARTBEAT_RUN_MS / 1_000} s with a heartbeat of 1 s`,
    tasks: 100,
    slots: 100,
    handlers: waiting,
    enqueue: (transaction, n) => enqueue(transaction, 'beating_task', exampleOf(n)),
  },
  {
    name: 'of many due ones, 4 slots',
    tasks: 5_000,
    slots: 4,
    enqueue: (transaction, n) => enqueue(transaction, 'cost_task', exampleOf(n)),
  },
  {
    name: 'of many due ones, 20 slots',
    tasks: 5_000,
    slots: 20,
    enqueue: (transaction, n) => enqueue(transaction, 'cost_task', exampleOf(n)),
  },
  {
    name: 'of many due ones, 20 slots, enqueueMany by 1,000',
    tasks: 5_000,
    slots: 20,
    enqueue: () => Promise.resolve(),
    enqueueAll: (transaction, count) =>
      enqueueMany(
        transaction,
        'cost_task',
        Array.from({ length: count }, (_, position) => exampleOf(position)),
      ),
  },
];

export interface TaskCost {
  readonly name: string;
  readonly tasks: number;
  readonly counts: Counts;
}

export async function measureTasks(
  server: EmbeddedPostgres,
  { scale, progress }: { readonly scale: number; progress(message: string): void },
): Promise<TaskCost[]> {
  const costs: TaskCost[] = [];
  for (const way of WAYS) {
    const count = Math.max(20, Math.round(way.tasks * scale));
    progress(`${way.name}: ${count} tasks`);
    costs.push({ name: way.name, tasks: count, counts: await measure(server, way, count, progress) });
  }
  return costs;
}

async function measure(
  server: EmbeddedPostgres,
  way: Way,
  count: number,
  progress: (message: string) => void,
): Promise<Counts> {
  const pool = new pg.Pool({ ...server.connection(COST_DATABASE), max: 1, Client: PreparingClient });
  const application: Application = new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) });
  const settled = new SettledCount();
  const app = createApp({
    database: server.connection(COST_DATABASE),
    handlers: costHandlers(way.handlers),
    slots: way.slots,
    roles: ['processor'],
    // A task that is retried is found by the poll, or by a slot that comes free.
    pollInterval: '1s',
    observer: (event) => {
      const isOnPurpose = event.kind === 'settled' && event.outcome === 'failure';
      if (!isOnPurpose) settled.observe(event);
    },
  });
  try {
    await app.start();
    // What a session prepares and a table's first pages are not the cost of a task.
    await runTasks(application, way, settled, 20);
    return await countedDuring(server, () => runTasks(application, way, settled, count), progress);
  } finally {
    await stop(app, application);
  }
}

async function stop(app: App, application: Application): Promise<void> {
  await app.stop();
  await application.destroy();
}

async function runTasks(
  application: Application,
  way: Way,
  settled: SettledCount,
  count: number,
): Promise<void> {
  const { oneByOne = false } = way;
  if (oneByOne) {
    for (let position = 0; position < count; position += 1) {
      const next = settled.next(1);
      await application.transaction().execute((transaction) => way.enqueue(transaction, position));
      await next;
    }
    return;
  }
  const all = settled.next(count);
  await application.transaction().execute(async (transaction) => {
    if (way.enqueueAll !== undefined) await way.enqueueAll(transaction, count);
    else for (let position = 0; position < count; position += 1) await way.enqueue(transaction, position);
  });
  await all;
}
