import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { createApp } from '../../src/index.ts';
import { benchHandlers, enqueueMany, payload } from './bench.ts';
import { SettledCount } from './drain.ts';
import type { MemoryReport } from './memory.ts';

// The process that test/bench/memory.ts looks at.

const SLOTS = 100;
const BATCH = 1_000;

const { connection, tasks } = JSON.parse(process.argv[2] as string) as {
  connection: pg.ClientConfig;
  tasks: number;
};

const memory = (): NodeJS.MemoryUsage => {
  (globalThis as { gc?: () => void }).gc?.();
  return process.memoryUsage();
};

const loaded = memory();
const settled = new SettledCount();
const app = createApp({
  database: connection,
  handlers: benchHandlers(async () => undefined),
  slots: SLOTS,
  observer: settled.observe,
});
await app.start();
const application = new Kysely<unknown>({
  dialect: new PostgresDialect({ pool: new pg.Pool({ ...connection, max: 1 }) }),
});
const drained = settled.next(tasks);
for (let done = 0; done < tasks; done += BATCH) {
  const length = Math.min(BATCH, tasks - done);
  await enqueueMany(
    application,
    'bench_task',
    Array.from({ length }, (_value, index) => payload(done + index)),
  );
}
await application.destroy();
await drained;
const report: MemoryReport = { loaded, drained: memory() };
process.send?.(report);
await app.stop();
process.disconnect?.();
