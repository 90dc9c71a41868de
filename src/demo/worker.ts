import { Kysely, PostgresDialect } from 'kysely';
import type pg from 'pg';
import { createHandlers, type PlatformTables } from '../handlers/index.ts';
import { type App, createApp, type QueueEvent } from '../index.ts';
import { DEMO_MARGIN_MS, DEMO_POLL_INTERVAL, WORKER_SLOTS, withDemoTimings } from './demo-timings.ts';
import { openPool } from './pool.ts';
import type { FromWorker, ToWorker } from './worker-messages.ts';

// The entry of a worker process. A worker of one's own looks much like it: handlers over a pool, an app over the
// handlers, a signal that stops it. Only the reports to the parent, which tells the story, are the demo's own.

type Start = Extract<ToWorker, { kind: 'start' }>;

function main(): void {
  let worker: Promise<Worker> | undefined;
  let isStopping = false;
  const stop = () => {
    if (!isStopping) void stopWorker(worker);
    isStopping = true;
  };
  process.on('message', (message: ToWorker) => {
    if (message.kind === 'stop') stop();
    else worker ??= startWorker(message);
    worker?.catch(fail);
  });
  // The parent is gone, however it went: nobody would ever stop this process.
  process.on('disconnect', stop);
  process.on('SIGTERM', stop);
  // Ctrl-C reaches the whole process group; the parent stops its workers in its own order.
  process.on('SIGINT', () => {});
}

interface Worker {
  readonly app: App;
  readonly pool: pg.Pool;
}

async function startWorker({ name, database }: Start): Promise<Worker> {
  const pool = openPool({ ...database, max: WORKER_SLOTS, application_name: `handlers of worker ${name}` });
  const primary = new Kysely<PlatformTables>({ dialect: new PostgresDialect({ pool }) });
  const app = createApp({
    database,
    handlers: withDemoTimings(createHandlers({ primary })),
    slots: WORKER_SLOTS,
    leaseMargin: DEMO_MARGIN_MS,
    pollInterval: DEMO_POLL_INTERVAL,
    observer: reportEvent,
  });
  await app.start();
  report({ kind: 'ready' });
  return { app, pool };
}

async function stopWorker(worker: Promise<Worker> | undefined): Promise<void> {
  try {
    const started = await worker;
    await started?.app.stop();
    await started?.pool.end();
  } catch {
    // It did not start, and has said so.
  }
  // The channel to the parent is all that keeps the process alive now; what was sent is delivered first.
  if (process.connected) process.disconnect();
}

function reportEvent(event: QueueEvent): void {
  if (event.kind === 'claimed') {
    const { id, type, attempt } = event.task;
    report({ kind: 'claimed', id, type, attempt });
  } else if (event.kind === 'settled') {
    const { outcome, dead, error } = event;
    const { id, type, attempt } = event.task;
    report({ kind: 'settled', id, type, attempt, outcome, dead, error });
  } else if ('error' in event) {
    report({ kind: 'trouble', text: `${event.kind}: ${event.error.message}` });
  }
}

function report(message: FromWorker): void {
  if (process.connected) process.send?.(message);
}

function fail(error: unknown): void {
  report({ kind: 'trouble', text: `did not start: ${String(error)}` });
  process.exitCode = 1;
  if (process.connected) process.disconnect();
}

main();
