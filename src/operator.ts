import {
  type CheckPayloadsOptions,
  checkPayloads,
  type PayloadReport,
} from './check-payloads/check-payloads.ts';
import { ACTOR_DEFAULT, checkActor } from './domain/actor.ts';
import { checkFilter, checkQueueName, type DeadLetterFilter } from './domain/dead-letter-filter.ts';
import { TaskqError } from './domain/errors.ts';
import type { TaskId } from './domain/ids.ts';
import { POOL_MAX_DEFAULT, QUEUE_WEIGHT_MAX } from './domain/limits.ts';
import type { Write } from './domain/outcome.ts';
import type { TaskSet } from './domain/task-set.ts';
import { createEnqueuer, type Enqueued, type EnqueueOptions } from './enqueue.ts';
import {
  type BulkOptions,
  type DeadLetterPreview,
  type DroppedMany,
  dropMany,
  type Looked,
  previewMany,
  type ReplayedMany,
  replayMany,
  type WalkOptions,
} from './maintenance/dead-letters.ts';
import {
  pruneAll,
  pruneAllCompleted,
  pruneOldAudit,
  pruneOldTicks,
  pruneUnusedKeys,
} from './maintenance/pruner.ts';
import { type Masked, maskOne, maskRows } from './masking/masked-rows.ts';
import { type OperatorPages, operatorPages } from './operator-pages.ts';
import { type ConnectionSettings, type Lanes, openLanes } from './postgres/lanes.ts';
import type { CronEntries } from './scheduler/entries.ts';
import { type CronStatus, listCron, runEntry } from './scheduler/operating.ts';
import { type AuditPage, type AuditRecord, listAudit, recordAudit } from './statements/audit.ts';
import { type CompletedTask as CompletedRow, findCompleted, listCompleted } from './statements/completed.ts';
import { countTasks, type TaskCounts } from './statements/counts.ts';
import {
  type DeadLetter as DeadRow,
  dropDead,
  findDead,
  listDead,
  type Replay,
  replayDead,
} from './statements/dead.ts';
import { findTask, type UnfinishedTask as UnfinishedRow } from './statements/find-task.ts';
import type { WriteLane } from './statements/lanes.ts';
import {
  listPaused,
  listQueues,
  type Pause,
  type PausedQueue,
  pauseQueue,
  type QueueState,
  resumeQueue,
  setQueueWeight,
  type WeightChange,
} from './statements/queues.ts';
import { checkSchema } from './statements/schema-check.ts';
import { inTransaction } from './statements/statement.ts';

export type { PayloadReport, RevisionReport } from './check-payloads/check-payloads.ts';
export { CHECK_STATUSES, type CheckStatus, type DoctorOptions, type Finding } from './doctor/check.ts';
export { type DoctorReport, doctor } from './doctor/doctor.ts';
export type { DeadLetterFilter } from './domain/dead-letter-filter.ts';
export { parseTaskId, type TaskId } from './domain/ids.ts';
export type { Write } from './domain/outcome.ts';
export type {
  BulkOptions,
  DeadLetterPreview,
  DroppedMany,
  Looked,
  ReplayedMany,
  WalkOptions,
} from './maintenance/dead-letters.ts';
export type { CronStatus } from './scheduler/operating.ts';
export type { AuditPage, AuditRecord } from './statements/audit.ts';
export type { TaskCounts } from './statements/counts.ts';
export type { Replay } from './statements/dead.ts';
export type { Pause, PausedQueue, QueueState, WeightChange } from './statements/queues.ts';

// Rows as they may be shown: what is secret in them is masked, and there is no way around it.
export type DeadLetter = Masked<DeadRow>;
export type UnfinishedTask = Masked<UnfinishedRow>;
export type CompletedTask = Masked<CompletedRow>;

/** One task, wherever it is. */
export type ShownTask = UnfinishedTask | (CompletedTask & { readonly state: 'completed' });

/** How many of each a prune has deleted. */
export interface Pruned {
  readonly deadLetters: number;
  readonly completed: number;
}

export interface OperatorOptions {
  /** The primary. */
  readonly database: ConnectionSettings;
  /** For counts and lists; the primary by default. It may lag. */
  readonly readDatabase?: ConnectionSettings;
  /** Default `'taskq'`. */
  readonly schema?: string;
  /** Default true; off behind PgBouncer below 1.21. */
  readonly preparedStatements?: boolean;
  /** Who acts, for the audit: 1 to 200 characters. Default `'operator'`. */
  readonly actor?: string;
}

/** What a person, or a program for one, does with the queue. Every call may reject with a database error. */
export interface Operator {
  /** Counts by type and queue; those without a row are absent. */
  stats(): Promise<TaskCounts[]>;
  /**
   * A task that waits, runs, is dead, or is done and has a record; undefined when it is none of these: done without a
   * record, pruned, dropped, or never enqueued.
   */
  showTask(id: TaskId): Promise<ShownTask | undefined>;
  /** Records of finished tasks, newest tasks first, from before the id `before` on. */
  listCompleted(page: { readonly limit: number; readonly before?: TaskId }): Promise<CompletedTask[]>;
  /**
   * Dead letters that the filter matches, newest first, from before the id `before` on.
   * @throws TaskqError as `replayMany`
   */
  listDead(page: {
    readonly limit: number;
    readonly before?: TaskId;
    readonly filter?: DeadLetterFilter;
  }): Promise<DeadLetter[]>;
  /** Undefined when the task is gone, waiting or running. */
  showDead(id: TaskId): Promise<DeadLetter | undefined>;
  /**
   * Puts a dead letter back. `refused` when it is none (any more); `key_taken` when it was enqueued with a key that
   * a live task has now.
   */
  replay(id: TaskId): Promise<Replay>;
  /** Deletes a dead letter. `refused` when it is none (any more). */
  drop(id: TaskId): Promise<Write>;
  /** What a bulk replay would do now, by type and error. On the read lane; writes nothing. */
  previewMany(filter: DeadLetterFilter, options?: WalkOptions<Looked>): Promise<DeadLetterPreview>;
  /**
   * Replays every dead letter that the filter matches (`{}`: all), in transactions of 200 with one wake each. What
   * changes or is locked meanwhile is left alone and counted; what dies again meanwhile is not replayed again.
   * @throws TaskqError `OPTION_INVALID`, `DURATION_INVALID`. What was done before an error stays done.
   */
  replayMany(filter: DeadLetterFilter, options?: BulkOptions<ReplayedMany>): Promise<ReplayedMany>;
  /** Deletes every dead letter that the filter matches, as `replayMany` replays them. */
  dropMany(filter: DeadLetterFilter, options?: BulkOptions<DroppedMany>): Promise<DroppedMany>;
  /** Queues with tasks and those that were paused or given a weight, by name. */
  listQueues(): Promise<QueueState[]>;
  /** By name; from the read lane. */
  pausedQueues(): Promise<PausedQueue[]>;
  /**
   * Nothing is claimed from the queue any more until it is resumed; what runs, runs on. Pausing it again changes
   * nothing, not even since when it is paused.
   * @throws TaskqError `OPTION_INVALID` for what can be the name of no queue; so do the two below
   */
  pauseQueue(queue: string): Promise<Pause>;
  /** Since when it was paused; undefined when it was not. */
  resumeQueue(queue: string): Promise<Date | undefined>;
  /**
   * Gives the queue a weight, 1 to 1000, in every replica; undefined gives it back what they are configured with.
   * @throws TaskqError `OPTION_INVALID`
   */
  setQueueWeight(queue: string, weight: number | undefined): Promise<WeightChange>;
  /**
   * The entries of the list with their last and next ticks, then those that were removed from it but have had ticks.
   * On the read lane, by its database's time.
   */
  listCron(cron: CronEntries): Promise<CronStatus[]>;
  /**
   * Enqueues the task of an entry now, which takes none of its ticks. `existing` when `overlap: 'skip'`, or the
   * entry's own unique rule, finds a task in the way: nothing was written then.
   * @throws TaskqError `OPTION_INVALID` when the list has no such entry; else as `enqueue`
   */
  runCron(cron: CronEntries, entry: string): Promise<Enqueued>;
  /** What operators have done, newest first; each deed stands here exactly when it was done. Kept for a year. */
  listAudit(page: AuditPage): Promise<AuditRecord[]>;
  /**
   * Deletes the dead letters whose last attempt is older than `retentionMs`, the records of finished tasks that are
   * past their own retention, unused keys, and what the audit has of more than a year ago.
   */
  prune(options: {
    readonly retentionMs: number;
    /** Told after each batch how many there were so far, of both together. */
    readonly onProgress?: (deleted: number) => void;
  }): Promise<Pruned>;
  /**
   * Parses every row, the dead letters too, as a worker with `tasks` would; reads on the read lane, writes nothing.
   */
  checkPayloads(tasks: TaskSet, options?: CheckPayloadsOptions): Promise<PayloadReport>;
  /**
   * Enqueues one task in a transaction of its own, which the audit shares.
   * @throws TaskqError as the `enqueue` of `createEnqueuer`, before anything is written
   */
  enqueue(
    tasks: TaskSet,
    task: { readonly type: string; readonly payload: unknown },
    options?: EnqueueOptions<string> & { readonly maxPayloadBytes?: number },
  ): Promise<Enqueued>;
  /** Reads for a screen: quick whatever the tables hold. */
  readonly pages: OperatorPages;
  /**
   * The same, for another who acts; closing one closes both.
   * @throws TaskqError `CONFIG_INVALID` for an actor that is no name
   */
  as(actor: string): Operator;
  close(): Promise<void>;
}

/**
 * Connects to a queue.
 * @throws TaskqError `CONFIG_INVALID` for an actor that is no name; `SCHEMA_BEHIND`, `SCHEMA_AHEAD`,
 *   `PRIVILEGE_MISSING`; database errors as they are
 */
export async function openOperator(options: OperatorOptions): Promise<Operator> {
  const { schema = 'taskq', database, readDatabase, preparedStatements = true } = options;
  const actor = checkActor(options.actor ?? ACTOR_DEFAULT);
  const lanes = openLanes({
    database,
    readDatabase,
    schema,
    preparedStatements,
    poolMax: POOL_MAX_DEFAULT,
    applicationName: 'taskq operator',
  });
  try {
    await checkSchema(lanes.write.executor, schema);
  } catch (error) {
    await lanes.close();
    throw error;
  }
  return operatorOver(lanes, actor);
}

function operatorOver(lanes: Lanes, actor: string): Operator {
  const { read, write } = lanes;
  return {
    stats: () => countTasks(read),
    async showTask(id) {
      // In this order: a task that is done between the two looks is found by the second.
      const unfinished = await maskOne(read, await findTask(read, id));
      if (unfinished !== undefined) return unfinished;
      const completed = await maskOne(read, await findCompleted(read, id));
      return completed === undefined ? undefined : { ...completed, state: 'completed' };
    },
    listCompleted: async ({ limit, before }) =>
      maskRows(
        read,
        await listCompleted(read, before === undefined ? { limit } : { limit, beforeId: before }),
      ),
    listCron: (cron) => listCron(read, cron),
    runCron: (cron, entry) => runEntry(write, cron, entry, actor),
    listAudit: (page) => listAudit(read, page),
    ...deadLetterCalls(lanes, actor),
    ...queueCalls(lanes, actor),
    prune: (options) => pruneNow(write, options),
    checkPayloads: (tasks, checkOptions) => checkPayloads(read, tasks, checkOptions),
    enqueue: (tasks, task, options) => enqueueByHand(write, actor, { tasks, ...task, options }),
    pages: operatorPages(lanes),
    as: (other) => operatorOver(lanes, checkActor(other)),
    close: () => lanes.close(),
  };
}

type DeadLetterCalls = Pick<
  Operator,
  'listDead' | 'showDead' | 'replay' | 'drop' | 'previewMany' | 'replayMany' | 'dropMany'
>;

function deadLetterCalls({ read, write }: Lanes, actor: string): DeadLetterCalls {
  return {
    listDead: async ({ limit, before, filter = {} }) => {
      const page = {
        limit,
        filter: checkFilter(filter),
        ...(before === undefined ? {} : { beforeId: before }),
      };
      return maskRows(read, await listDead(read, page));
    },
    showDead: async (id) => maskOne(read, await findDead(read, id)),
    replay: (id) => replayDead(write, id, actor),
    drop: (id) => dropDead(write, id, actor),
    previewMany: (filter, bulkOptions) => previewMany(read, filter, bulkOptions),
    replayMany: (filter, bulkOptions) => replayMany(write, actor, filter, bulkOptions),
    dropMany: (filter, bulkOptions) => dropMany(write, actor, filter, bulkOptions),
  };
}

type QueueCalls = Pick<
  Operator,
  'listQueues' | 'pausedQueues' | 'pauseQueue' | 'resumeQueue' | 'setQueueWeight'
>;

function queueCalls({ read, write }: Lanes, actor: string): QueueCalls {
  return {
    listQueues: () => listQueues(read, write),
    pausedQueues: () => listPaused(read),
    pauseQueue: async (queue) => pauseQueue(write, checkQueueName(queue), actor),
    resumeQueue: async (queue) => resumeQueue(write, checkQueueName(queue), actor),
    setQueueWeight: async (queue, weight) =>
      setQueueWeight(write, checkQueueName(queue), checkWeight(weight), actor),
  };
}

async function pruneNow(
  write: WriteLane,
  { retentionMs, onProgress }: Parameters<Operator['prune']>[0],
): Promise<Pruned> {
  const deadLetters = await pruneAll({ write, retentionMs }, undefined, onProgress);
  const completed = await pruneAllCompleted(write, undefined, (deleted) =>
    onProgress?.(deadLetters + deleted),
  );
  await pruneUnusedKeys(write);
  await pruneOldAudit(write);
  await pruneOldTicks(write);
  return { deadLetters, completed };
}

async function enqueueByHand(
  write: WriteLane,
  actor: string,
  {
    tasks,
    type,
    payload,
    options: { maxPayloadBytes, ...options } = {},
  }: {
    readonly tasks: TaskSet;
    readonly type: string;
    readonly payload: unknown;
    readonly options: Parameters<Operator['enqueue']>[2];
  },
): Promise<Enqueued> {
  const { schema } = write;
  const enqueuer = createEnqueuer(
    tasks,
    maxPayloadBytes === undefined ? { schema } : { schema, maxPayloadBytes },
  );
  return inTransaction(write, async (within) => {
    const enqueued = await enqueuer.enqueue(within.executor, type, payload, options);
    const { id, status } = enqueued;
    if (status === 'existing') return enqueued;
    const detail = { type, queue: options.queue ?? tasks[type]?.definition.queue, status };
    await recordAudit(within, { actor, action: 'task.enqueue', subject: id, detail });
    return enqueued;
  });
}

function checkWeight(weight: number | undefined): number | undefined {
  if (weight === undefined || (Number.isInteger(weight) && weight >= 1 && weight <= QUEUE_WEIGHT_MAX))
    return weight;
  throw new TaskqError('OPTION_INVALID', `weight: expected a whole number from 1 to ${QUEUE_WEIGHT_MAX}`);
}
