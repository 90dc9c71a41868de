import { PreparingClient } from '../../src/index.ts';
import {
  amongClients,
  type Bench,
  clearTasks,
  enqueue,
  enqueueMany,
  FLOOR_DATABASE,
  inRounds,
  openApplication,
  payload,
  perSecond,
  scaled,
} from './bench.ts';
import { type FloorClient, withFloor } from './floor.ts';
import { comparison, type Line, type Target } from './stats.ts';

const TARGET: Target = { at: 'least', value: 0.75 };
const BULK = 1_000;

type Application = ReturnType<typeof openApplication>;

interface Way {
  readonly name: string;
  readonly clients: number;
  /** Calls in a round, and the tasks that each of them enqueues. */
  readonly calls: number;
  readonly tasks: number;
  readonly target?: Target;
  /** The application's pool is made of clients that prepare their statements, as the floor's do. */
  readonly prepared?: boolean;
  taskq(application: Application): Promise<unknown>;
  floor(client: FloorClient): Promise<unknown>;
}

const single = (application: Application) => enqueue(application, 'bench_task', payload(1));
const inTransaction = (application: Application) =>
  application.transaction().execute((transaction) => enqueue(transaction, 'bench_task', payload(1)));
const floorSingle = (client: FloorClient) => client.insert(JSON.stringify(payload(1)));
const floorInTransaction = async (client: FloorClient) => {
  await client.begin();
  await client.insert(JSON.stringify(payload(1)));
  await client.commit();
};
const floorNotifying = async (client: FloorClient) => {
  await client.begin();
  await client.insertAndNotify(JSON.stringify(payload(1)));
  await client.commit();
};
const bulk = Array.from({ length: BULK }, (_value, index) => payload(index));

// With several clients NOTIFY itself is the limit: PostgreSQL commits notifying transactions one at a time.
// The floor with a wake shows how much of the distance that is.
const WAYS: readonly Way[] = [
  { name: 'enqueue, single', clients: 1, calls: 2_000, tasks: 1, taskq: single, floor: floorSingle },
  {
    name: 'enqueue, in a transaction',
    clients: 1,
    calls: 2_000,
    tasks: 1,
    taskq: inTransaction,
    floor: floorInTransaction,
  },
  {
    name: 'enqueue, in a transaction, prepared',
    clients: 1,
    calls: 2_000,
    tasks: 1,
    target: TARGET,
    prepared: true,
    taskq: inTransaction,
    floor: floorInTransaction,
  },
  {
    name: 'enqueue, in a transaction, 10 clients',
    clients: 10,
    calls: 5_000,
    tasks: 1,
    taskq: inTransaction,
    floor: floorInTransaction,
  },
  {
    name: 'the same, floor notifies too',
    clients: 10,
    calls: 5_000,
    tasks: 1,
    taskq: inTransaction,
    floor: floorNotifying,
  },
  {
    name: 'enqueue, bulk of 1,000',
    clients: 1,
    calls: 20,
    tasks: BULK,
    taskq: (application) => enqueueMany(application, 'bench_task', bulk),
    // Both begin with objects: making their JSON is a part of the work.
    floor: (client) => client.insertMany(bulk.map((given) => JSON.stringify(given))),
  },
];

const WARM_UP_CALLS = 50;

export async function measureEnqueue(bench: Bench): Promise<Line[]> {
  const lines: Line[] = [];
  for (const way of WAYS) {
    const calls = scaled(way.calls, bench.options);
    const figures = await inRounds(bench, way.name, {
      taskq: () => enqueueTaskq(bench, way, calls),
      floor: () => enqueueFloor(bench, way, calls),
    });
    const { name, target } = way;
    lines.push(comparison({ name, unit: 'tasks/s', better: 'higher', ...figures }, target));
  }
  return lines;
}

async function enqueueTaskq({ server }: Bench, way: Way, calls: number): Promise<number> {
  await clearTasks(server);
  const application = openApplication(server, way.clients, way.prepared ? PreparingClient : undefined);
  try {
    const run = (count: number) => amongClients(way.clients, count, () => way.taskq(application));
    await run(way.tasks === 1 ? WARM_UP_CALLS : way.clients);
    return await perSecond(calls * way.tasks, () => run(calls));
  } finally {
    await application.destroy();
  }
}

async function enqueueFloor({ server }: Bench, way: Way, calls: number): Promise<number> {
  return withFloor(server.connection(FLOOR_DATABASE), way.clients, async (clients) => {
    const run = (count: number) =>
      amongClients(way.clients, count, (client) => way.floor(clients[client] as FloorClient));
    await run(way.tasks === 1 ? WARM_UP_CALLS : way.clients);
    return perSecond(calls * way.tasks, () => run(calls));
  });
}
