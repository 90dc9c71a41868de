import type { Kysely } from 'kysely';
import { TaskqError } from '../domain/errors.ts';
import type { TaskId } from '../domain/ids.ts';
import { DISCOVER_LIMIT, DRAIN_TASKS_MAX_DEFAULT, LEASE_MARGIN_MS } from '../domain/limits.ts';
import type { Outcome } from '../domain/outcome.ts';
import { checkSchemaName } from '../domain/schema-name.ts';
import type { HandlerRegistry } from '../domain/task-set.ts';
import { systemClock, systemTimers } from '../domain/time.ts';
import { type ConnectionSettings, openLanes } from '../postgres/lanes.ts';
import { readClocks } from '../processor/deadline.ts';
import { leaseMsOf } from '../processor/heartbeats.ts';
import { HeldTask } from '../processor/held-task.ts';
import type { RunMiddleware } from '../processor/run-middleware.ts';
import { Settler } from '../processor/settler.ts';
import { claim } from '../statements/claim.ts';
import { discover } from '../statements/discover.ts';
import { type ReadLane, readLane, type WriteLane, writeLane } from '../statements/lanes.ts';
import { registeredFor, runOnce, withoutHeartbeat } from './one-run.ts';

/** One run that was settled. A task that was continued, or failed and came round again, is here once for each run. */
export interface SettledRun {
  readonly id: TaskId;
  readonly type: string;
  readonly queue: string;
  readonly attempt: number;
  readonly outcome: Outcome;
  /** What went wrong, as a log would say it; undefined for `success` and `continued`. */
  readonly error: string | undefined;
  /** What the handler threw, as it is. */
  readonly thrown: unknown;
  /** The task is a dead letter now. */
  readonly dead: boolean;
}

export type DrainOptions = DrainTarget & {
  readonly handlers: HandlerRegistry;
  /** Default `'taskq'`. */
  readonly schema?: string;
  /** Queues served; every queue by default. */
  readonly queues?: readonly string[];
  /** Around every handler, as `createApp` takes it; what one throws is thrown here. */
  readonly middleware?: readonly RunMiddleware[];
  /** When to stop. Default `'empty'`: when nothing is claimable any more. Or after the run for which it answers true. */
  readonly until?: 'empty' | ((run: SettledRun) => boolean);
  /** Runs at the most, against handlers that enqueue themselves for ever. Default 1,000. */
  readonly maxTasks?: number;
};

type DrainTarget =
  /** The test's own Kysely, or its transaction: what was enqueued in it runs in it. */
  // biome-ignore lint/suspicious/noExplicitAny: any Kysely over any tables will do.
  | { readonly db: Kysely<any>; readonly database?: never }
  /** A URL or pg's connection settings: connections of its own, closed at the end. */
  | { readonly database: ConnectionSettings; readonly db?: never };

/**
 * Claims, runs and settles one task after the other in this process, oldest first, by the statements of a replica,
 * until nothing is claimable: not what failed and backs off, nor what is due later, held, or locked by somebody.
 * @returns the runs in order
 * @throws Error when more than `maxTasks` runs would be needed, or when a settlement could not be written (its cause
 *   is the database's error); database errors of a discovery or a claim as they are
 */
export async function drain(options: DrainOptions): Promise<SettledRun[]> {
  const { until = 'empty', maxTasks = DRAIN_TASKS_MAX_DEFAULT } = options;
  checkTarget(options);
  const lanes = openDrainLanes(options);
  try {
    const runs: SettledRun[] = [];
    for (;;) {
      const held = await nextTask(lanes, options);
      if (held === undefined) return runs;
      const run = await settledRun(lanes, options, held);
      runs.push(run);
      if (until !== 'empty' && until(run)) return runs;
      if (runs.length >= maxTasks && (await isAnyClaimable(lanes, options))) throw endless(runs, maxTasks);
    }
  } finally {
    await lanes.close();
  }
}

interface DrainLanes {
  readonly read: ReadLane;
  readonly write: WriteLane;
  readonly isTransaction: boolean;
  close(): Promise<void>;
}

function openDrainLanes({ db, database, schema: given = 'taskq' }: DrainOptions): DrainLanes {
  const schema = checkSchemaName(given);
  if (db !== undefined) {
    const close = async () => {};
    return {
      read: readLane(db, schema),
      write: writeLane(db, schema),
      isTransaction: db.isTransaction,
      close,
    };
  }
  const lanes = openLanes({
    database,
    readDatabase: undefined,
    schema,
    poolMax: 2,
    preparedStatements: true,
    applicationName: 'taskq drain',
  });
  return { ...lanes, isTransaction: false };
}

/** One claimed task; undefined when none can be claimed. */
async function nextTask(lanes: DrainLanes, options: DrainOptions): Promise<HeldTask | undefined> {
  const known = knownRevisions(options.handlers);
  const leaseMs = leases(options.handlers);
  const tried = new Set<TaskId>();
  for (;;) {
    // What another transaction has locked is found and not claimed: each further look reaches beyond it.
    const limit = tried.size + DISCOVER_LIMIT;
    const found = await discover(lanes.read, { known, queues: options.queues, limit });
    const ids = found.map(({ id }) => id).filter((id) => !tried.has(id));
    const sentAt = readClocks(systemClock);
    const [task] = await claim(lanes.write, { ids, known, leaseMs, marginMs: LEASE_MARGIN_MS, slots: 1 });
    if (task !== undefined) return new HeldTask(task, sentAt);
    if (found.length < limit) return undefined;
    for (const id of ids) tried.add(id);
  }
}

async function isAnyClaimable(lanes: DrainLanes, { handlers, queues }: DrainOptions): Promise<boolean> {
  const found = await discover(lanes.read, { known: knownRevisions(handlers), queues, limit: 1 });
  return found.length > 0;
}

async function settledRun(lanes: DrainLanes, options: DrainOptions, held: HeldTask): Promise<SettledRun> {
  const { task } = held;
  const registered = registeredFor(options.handlers, task.type);
  const giveUp = new AbortController();
  let failure: Error | undefined;
  const settler = new Settler({
    write: lanes.write,
    clock: systemClock,
    timers: systemTimers,
    closing: giveUp.signal,
    // A replica retries for as long as the lease lives; a test wants to hear of it.
    observe(event) {
      if (event.kind !== 'settlement_retried') return;
      failure = event.error;
      giveUp.abort();
    },
  });
  const { settled, call } = await runOnce(
    {
      registered: lanes.isTransaction ? withoutHeartbeat(registered) : registered,
      settler,
      write: lanes.write,
      clock: systemClock,
      timers: systemTimers,
      marginMs: LEASE_MARGIN_MS,
      aborting: new AbortController().signal,
      middleware: options.middleware ?? [],
    },
    held,
  );
  if (failure !== undefined) {
    throw new Error(`drain: task ${task.id} (${task.type}) could not be settled: ${failure.message}`, {
      cause: failure,
    });
  }
  const { outcome, error, dead } = settled;
  const { id, type, queue, attempt } = task;
  return { id, type, queue, attempt, outcome, error, thrown: call?.thrown, dead };
}

function knownRevisions(handlers: HandlerRegistry): Record<string, number> {
  return Object.fromEntries([...handlers].map(([type, { revision }]) => [type, revision]));
}

function leases(handlers: HandlerRegistry): Record<string, number> {
  return Object.fromEntries(
    [...handlers].map(([type, { definition }]) => [type, leaseMsOf(definition, LEASE_MARGIN_MS)]),
  );
}

function checkTarget({ db, database, maxTasks = DRAIN_TASKS_MAX_DEFAULT }: DrainOptions): void {
  if ((db === undefined) === (database === undefined)) {
    throw new TaskqError('OPTION_INVALID', 'drain: give either db or database');
  }
  if (!Number.isInteger(maxTasks) || maxTasks < 1) {
    throw new TaskqError(
      'OPTION_INVALID',
      `drain: maxTasks must be a whole number from 1, received ${maxTasks}`,
    );
  }
}

function endless(runs: readonly SettledRun[], maxTasks: number): Error {
  const counts = new Map<string, number>();
  for (const { type, outcome } of runs) {
    const key = `${type} ${outcome}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const summary = [...counts].map(([key, count]) => `${count} × ${key}`).join(', ');
  return new Error(
    `drain: ${maxTasks} runs (${summary}), and more is claimable. Does a handler enqueue itself, or say 'continue' for ever? If so many are right, raise maxTasks.`,
  );
}
