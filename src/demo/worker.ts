import type { Kysely } from 'kysely';
import {
  createHandlers,
  type ExploreTables,
  openObjectStore,
  type PlatformTables,
} from '../handlers/index.ts';
import { type App, createApp, type Logger, type QueueEvent } from '../index.ts';
import {
  DEMO_MARGIN_MS,
  DEMO_POLL_INTERVAL,
  DEMO_SLICE,
  WORKER_SLOTS,
  withDemoTimings,
} from './demo-timings.ts';
import { openDatabase } from './pool.ts';
import { withoutSdkNotice } from './sdk-notice.ts';
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
  close(): Promise<void>;
}

/** One for each slot, those that a rebuild works with at once, and one to cancel what must end. */
const CONNECTIONS = WORKER_SLOTS + 4;

async function startWorker({ name, stores }: Start): Promise<Worker> {
  const application = `handlers of worker ${name}`;
  const primary: Kysely<PlatformTables> = openDatabase(stores.database, CONNECTIONS, application);
  const explore: Kysely<ExploreTables> = openDatabase(stores.explore, CONNECTIONS, application);
  const objects = openObjectStore(stores.objects);
  const handlers = createHandlers({
    primary,
    // The demo runs no replica.
    replica: primary,
    explore,
    objects,
    logger,
    slice: DEMO_SLICE,
  });
  const app = createApp({
    database: stores.database,
    handlers: withDemoTimings(handlers),
    slots: WORKER_SLOTS,
    leaseMargin: DEMO_MARGIN_MS,
    pollInterval: DEMO_POLL_INTERVAL,
    observer: reportEvent,
  });
  await app.start();
  report({ kind: 'ready' });
  return {
    app,
    async close() {
      await app.stop();
      await Promise.all([primary.destroy(), explore.destroy()]);
      objects.close();
    },
  };
}

async function stopWorker(worker: Promise<Worker> | undefined): Promise<void> {
  try {
    await (await worker)?.close();
  } catch {
    // It did not start, and has said so.
  }
  // The channel to the parent is all that keeps the process alive now; what was sent is delivered first.
  if (process.connected) process.disconnect();
}

/** What the handlers log, for the parent's story. */
const logger: Logger = {
  debug() {},
  info() {},
  warn: (fields, message) => reportTrouble(fields, message),
  error: (fields, message) => reportTrouble(fields, message),
};

function reportTrouble(fields: object, message: string): void {
  const { error, ...others } = fields as { error?: unknown };
  report({ kind: 'trouble', text: `${message} ${JSON.stringify(others)}: ${String(error)}` });
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

withoutSdkNotice();
main();
