import { setTimeout as delay } from 'node:timers/promises';
import { createApp } from '../../src/index.ts';
import {
  type Bench,
  benchHandlers,
  clearTasks,
  enqueue,
  FLOOR_DATABASE,
  openApplication,
  payload,
  scaled,
  TASKQ_DATABASE,
} from './bench.ts';
import { withFloor } from './floor.ts';
import { comparison, type Line, percentile } from './stats.ts';

const SLOTS = 10;
const SAMPLES = 200;
const WARM_UP_SAMPLES = 20;
/** Long enough for every slot to be idle again. */
const GAP_MS = 15;
const PERCENTILES = [50, 95, 99];

/** From the call of enqueue on an idle replica to the first line of the handler. Milliseconds. */
export async function measureLatency(bench: Bench): Promise<Line[]> {
  const { options, progress } = bench;
  const samples = scaled(SAMPLES, options);
  const rounds: { taskq: number[]; floor: number[] }[] = [];
  for (let round = 1; round <= options.rounds; round += 1) {
    const figures = { taskq: [] as number[], floor: [] as number[] };
    const order = round % 2 === 1 ? (['floor', 'taskq'] as const) : (['taskq', 'floor'] as const);
    for (const side of order) {
      figures[side] =
        side === 'taskq' ? await sampleTaskq(bench, samples) : await sampleFloor(bench, samples);
    }
    rounds.push(figures);
    const [taskq, floor] = [percentile(figures.taskq, 50), percentile(figures.floor, 50)];
    progress(
      `enqueue to start, round ${round}/${options.rounds}: p50 taskq ${taskq.toFixed(2)} ms, floor ${floor.toFixed(2)} ms`,
    );
  }
  return PERCENTILES.map((percent) =>
    comparison({
      name: `enqueue to start, p${percent}`,
      unit: 'ms',
      better: 'lower',
      taskq: rounds.map(({ taskq }) => percentile(taskq, percent)),
      floor: rounds.map(({ floor }) => percentile(floor, percent)),
    }),
  );
}

async function sampleTaskq({ server }: Bench, samples: number): Promise<number[]> {
  await clearTasks(server);
  let started: (at: number) => void = () => undefined;
  let listening: () => void = () => undefined;
  const ready = new Promise<void>((resolve) => {
    listening = resolve;
  });
  const app = createApp({
    database: server.connection(TASKQ_DATABASE),
    handlers: benchHandlers(async () => started(performance.now())),
    slots: SLOTS,
    observer: (event) => {
      if (event.kind === 'listener_connected') listening();
    },
  });
  const application = openApplication(server, 1);
  await app.start();
  try {
    await ready;
    return await sample(samples, async () => {
      const start = new Promise<number>((resolve) => {
        started = resolve;
      });
      const enqueuedAt = performance.now();
      await enqueue(application, 'bench_task', payload(1));
      return (await start) - enqueuedAt;
    });
  } finally {
    await app.stop();
    await application.destroy();
  }
}

/** One connection inserts and notifies, one listens, one claims. */
async function sampleFloor({ server }: Bench, samples: number): Promise<number[]> {
  return withFloor(server.connection(FLOOR_DATABASE), 3, async ([inserter, listener, worker]) => {
    if (inserter === undefined || listener === undefined || worker === undefined) throw new Error('no floor');
    let wake: () => void = () => undefined;
    listener.client.on('notification', () => wake());
    await listener.client.query('listen floor');
    return sample(samples, async () => {
      const woken = new Promise<void>((resolve) => {
        wake = resolve;
      });
      const enqueuedAt = performance.now();
      const inserted = inserter.insertAndNotify(JSON.stringify(payload(1)));
      await woken;
      const task = await worker.claim();
      const startedAt = performance.now();
      await inserted;
      if (task === undefined) throw new Error('the floor found no task');
      await worker.delete(task);
      return startedAt - enqueuedAt;
    });
  });
}

/** A value for each of so many calls, with a gap between them; the first ones are not counted. */
export async function sample(samples: number, measure: () => Promise<number>): Promise<number[]> {
  const values: number[] = [];
  for (let index = 0; index < samples + WARM_UP_SAMPLES; index += 1) {
    await delay(GAP_MS);
    const value = await measure();
    if (index >= WARM_UP_SAMPLES) values.push(value);
  }
  return values;
}
