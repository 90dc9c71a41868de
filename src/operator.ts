import {
  type CheckPayloadsOptions,
  checkPayloads,
  type PayloadReport,
} from './check-payloads/check-payloads.ts';
import type { TaskId } from './domain/ids.ts';
import { POOL_MAX_DEFAULT } from './domain/limits.ts';
import type { Write } from './domain/outcome.ts';
import type { TaskSet } from './domain/task-set.ts';
import { createEnqueuer, type Enqueued, type EnqueueOptions } from './enqueue.ts';
import { pruneAll, pruneUnusedKeys } from './maintenance/pruner.ts';
import { type ConnectionSettings, openLanes } from './postgres/lanes.ts';
import { countTasks, type TaskCounts } from './statements/counts.ts';
import { type DeadLetter, dropDead, findDead, listDead, type Replay, replayDead } from './statements/dead.ts';
import { checkSchema } from './statements/schema-check.ts';

export type { PayloadReport, RevisionReport } from './check-payloads/check-payloads.ts';
export { parseTaskId, type TaskId } from './domain/ids.ts';
export type { Write } from './domain/outcome.ts';
export type { TaskCounts } from './statements/counts.ts';
export type { DeadLetter, Replay } from './statements/dead.ts';

export interface OperatorOptions {
  /** The primary. */
  readonly database: ConnectionSettings;
  /** For counts and lists; the primary by default. It may lag. */
  readonly readDatabase?: ConnectionSettings;
  /** Default `'taskq'`. */
  readonly schema?: string;
  /** Default true; off behind PgBouncer below 1.21. */
  readonly preparedStatements?: boolean;
}

/** What a person, or a program for one, does with the queue. Every call may reject with a database error. */
export interface Operator {
  /** Counts by type and queue; those without a row are absent. */
  stats(): Promise<TaskCounts[]>;
  /** Dead letters, newest first, from before the id `before` on. */
  listDead(page: { readonly limit: number; readonly before?: TaskId }): Promise<DeadLetter[]>;
  /** Undefined when the task is gone, waiting or running. */
  showDead(id: TaskId): Promise<DeadLetter | undefined>;
  /**
   * Puts a dead letter back. `refused` when it is none (any more); `key_taken` when it was enqueued with a key that
   * a live task has now.
   */
  replay(id: TaskId): Promise<Replay>;
  /** Deletes a dead letter. `refused` when it is none (any more). */
  drop(id: TaskId): Promise<Write>;
  /** Deletes the dead letters whose last attempt is older than `retentionMs`, and unused keys; answers how many dead letters. */
  prune(options: {
    readonly retentionMs: number;
    /** Told after each batch how many there were so far. */
    readonly onProgress?: (deleted: number) => void;
  }): Promise<number>;
  /**
   * Parses every row, the dead letters too, as a worker with `tasks` would; reads on the read lane, writes nothing.
   */
  checkPayloads(tasks: TaskSet, options?: CheckPayloadsOptions): Promise<PayloadReport>;
  /**
   * Enqueues one task in a transaction of its own.
   * @throws TaskqError as the `enqueue` of `createEnqueuer`, before anything is written
   */
  enqueue(
    tasks: TaskSet,
    task: { readonly type: string; readonly payload: unknown },
    options?: EnqueueOptions<string> & { readonly maxPayloadBytes?: number },
  ): Promise<Enqueued>;
  close(): Promise<void>;
}

/**
 * Connects to a queue.
 * @throws TaskqError `SCHEMA_BEHIND`, `SCHEMA_AHEAD`, `PRIVILEGE_MISSING`; database errors as they are
 */
export async function openOperator(options: OperatorOptions): Promise<Operator> {
  const { schema = 'taskq', database, readDatabase, preparedStatements = true } = options;
  const lanes = openLanes({
    database,
    readDatabase,
    schema,
    preparedStatements,
    poolMax: POOL_MAX_DEFAULT,
    applicationName: 'taskq operator',
  });
  const { read, write } = lanes;
  try {
    await checkSchema(write.executor, schema);
  } catch (error) {
    await lanes.close();
    throw error;
  }
  return {
    stats: () => countTasks(read),
    listDead: ({ limit, before }) =>
      listDead(read, before === undefined ? { limit } : { limit, beforeId: before }),
    showDead: (id) => findDead(read, id),
    replay: (id) => replayDead(write, id),
    drop: (id) => dropDead(write, id),
    async prune({ retentionMs, onProgress }) {
      const deleted = await pruneAll({ write, retentionMs }, undefined, onProgress);
      await pruneUnusedKeys(write);
      return deleted;
    },
    checkPayloads: (tasks, checkOptions) => checkPayloads(read, tasks, checkOptions),
    enqueue(tasks, { type, payload }, { maxPayloadBytes, ...enqueueOptions } = {}) {
      const enqueuer = createEnqueuer(tasks, {
        schema,
        ...(maxPayloadBytes === undefined ? {} : { maxPayloadBytes }),
      });
      return enqueuer.enqueue(write.executor, type, payload, enqueueOptions);
    },
    close: () => lanes.close(),
  };
}
