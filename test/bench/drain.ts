import { createApp, type Observer } from '../../src/index.ts';
import {
  type Bench,
  benchHandlers,
  clearTasks,
  enqueueMany,
  FLOOR_DATABASE,
  inRounds,
  openApplication,
  payload,
  perSecond,
  scaled,
  TASKQ_DATABASE,
} from './bench.ts';
import { withFloor } from './floor.ts';
import { comparison, type Line } from './stats.ts';

/** Slots, and how many tasks they drain in a round: enough for seconds, whatever they share. */
const DRAINS = [
  { slots: 4, count: 8_000 },
  { slots: 10, count: 10_000 },
  { slots: 50, count: 20_000 },
  { slots: 100, count: 20_000 },
];
const TARGET_SLOTS = 10;
const TARGET = { at: 'least', value: 0.75 } as const;

/** Draining handlers that do nothing: from the commit that brings the tasks to the last settlement. */
export async function measureDrain(bench: Bench): Promise<Line[]> {
  const lines: Line[] = [];
  for (const { slots, count } of DRAINS) {
    const name = `drain, ${slots} slots / connections`;
    const tasks = scaled(count, bench.options);
    const figures = await inRounds(bench, name, {
      taskq: () => drainTaskq(bench, slots, tasks),
      floor: () => drainFloor(bench, slots, tasks),
    });
    const target = slots === TARGET_SLOTS ? TARGET : undefined;
    lines.push(comparison({ name, unit: 'tasks/s', better: 'higher', ...figures }, target));
  }
  return lines;
}

async function drainTaskq(bench: Bench, slots: number, count: number): Promise<number> {
  await clearTasks(bench.server);
  const settled = new SettledCount();
  const app = createApp({
    database: bench.server.connection(TASKQ_DATABASE),
    handlers: benchHandlers(async () => undefined),
    slots,
    observer: settled.observe,
  });
  await app.start();
  try {
    // Connections are opened and statements prepared by a first burst, as the floor's are.
    await drainOnce(bench, settled, slots * 4);
    return await drainOnce(bench, settled, count);
  } finally {
    await app.stop();
  }
}

async function drainOnce({ server }: Bench, settled: SettledCount, count: number): Promise<number> {
  const application = openApplication(server, 1);
  try {
    const transaction = await application.startTransaction().execute();
    await enqueueMany(
      transaction,
      'bench_task',
      Array.from({ length: count }, (_, index) => payload(index)),
    );
    const drained = settled.next(count);
    return await perSecond(count, async () => {
      await transaction.commit().execute();
      await drained;
    });
  } finally {
    await application.destroy();
  }
}

async function drainFloor({ server }: Bench, connections: number, count: number): Promise<number> {
  return withFloor(server.connection(FLOOR_DATABASE), connections, async (clients) => {
    await clients[0]?.insertMany(Array.from({ length: count }, (_, index) => JSON.stringify(payload(index))));
    return perSecond(count, () =>
      Promise.all(
        clients.map(async (client) => {
          for (let task = await client.claim(); task !== undefined; task = await client.claim()) {
            await client.delete(task);
          }
        }),
      ),
    );
  });
}

/** Waits for a number of settlements, and fails at the first that is no success: it would be measured as one. */
export class SettledCount {
  #left = 0;
  #drained: { resolve(): void; reject(error: Error): void } | undefined;

  readonly observe: Observer = (event) => {
    if (event.kind !== 'settled') return;
    if (event.outcome !== 'success') {
      this.#drained?.reject(new Error(`a task ended as ${event.outcome}: ${event.error}`));
    }
    this.#left -= 1;
    if (this.#left === 0) this.#drained?.resolve();
  };

  next(count: number): Promise<void> {
    this.#left = count;
    return new Promise((resolve, reject) => {
      this.#drained = { resolve, reject };
    });
  }
}
