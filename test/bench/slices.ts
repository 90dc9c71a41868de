import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { createApp, createEnqueuer, createRegistry, defineTask } from '../../src/index.ts';
import { type Bench, clearTasks, openApplication, scaled, TASKQ_DATABASE } from './bench.ts';
import { sample } from './latency.ts';
import { comparison, type Line, percentile } from './stats.ts';

// Whether long work holds up the rest: how long an ordinary task takes to start while a task that never ends runs in
// slices beside it, and without it. Two slots, so that the walk always has half of the replica.

const SLOTS = 2;
const SAMPLES = 150;
const SLICE_MS = 250;
const ITEM_MS = 1;
const PERCENTILES = [50, 95];

const probe = defineTask({ type: 'bench_probe', payload: z.object({}), ceiling: '1m' });
const walk = defineTask({
  type: 'bench_walk',
  payload: z.object({}),
  cursor: z.object({ item: z.number() }),
  ceiling: '1m',
});
const tasks = {
  bench_probe: { definition: probe, revision: 1 },
  bench_walk: { definition: walk, revision: 1 },
};
const { enqueue } = createEnqueuer(tasks);

/** From the call of enqueue to the first line of the handler. Milliseconds. */
export async function measureSlices(bench: Bench): Promise<Line[]> {
  const { options, progress } = bench;
  const samples = scaled(SAMPLES, options);
  const rounds: { beside: number[]; alone: number[] }[] = [];
  for (let round = 1; round <= options.rounds; round += 1) {
    const alone = await starts(bench, samples, { walks: false });
    const beside = await starts(bench, samples, { walks: true });
    rounds.push({ beside, alone });
    const [walking, quiet] = [percentile(beside, 50), percentile(alone, 50)];
    progress(
      `start beside slices, round ${round}/${options.rounds}: p50 ${walking.toFixed(2)} ms, without ${quiet.toFixed(2)} ms`,
    );
  }
  return PERCENTILES.map((percent) =>
    comparison({
      name: `enqueue to start, ${SLOTS} slots, beside a walk in slices (floor: without it), p${percent}`,
      unit: 'ms',
      better: 'lower',
      taskq: rounds.map(({ beside }) => percentile(beside, percent)),
      floor: rounds.map(({ alone }) => percentile(alone, percent)),
    }),
  );
}

async function starts({ server }: Bench, samples: number, { walks }: { walks: boolean }): Promise<number[]> {
  await clearTasks(server);
  let started: (at: number) => void = () => undefined;
  let listening: () => void = () => undefined;
  const ready = new Promise<void>((resolve) => {
    listening = resolve;
  });
  const app = createApp({
    database: server.connection(TASKQ_DATABASE),
    handlers: createRegistry(tasks, {
      bench_probe: async () => started(performance.now()),
      bench_walk: async (_payload, context) => {
        let item = context.cursor?.item ?? 0;
        const endsAt = performance.now() + SLICE_MS;
        while (performance.now() < endsAt && !context.signal.aborted) {
          await delay(ITEM_MS);
          item += 1;
        }
        await context.advanceCursor({ item });
        return 'continue';
      },
    }),
    slots: SLOTS,
    observer: (event) => {
      if (event.kind === 'listener_connected') listening();
    },
  });
  const application = openApplication(server, 1);
  await app.start();
  try {
    await ready;
    if (walks) await enqueue(application, 'bench_walk', {});
    return await sample(samples, async () => {
      const start = new Promise<number>((resolve) => {
        started = resolve;
      });
      const enqueuedAt = performance.now();
      await enqueue(application, 'bench_probe', {});
      return (await start) - enqueuedAt;
    });
  } finally {
    await app.stop();
    await application.destroy();
  }
}
