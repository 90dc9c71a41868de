import { type ExpressionBuilder, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../domain/ids.ts';
import { PRUNE_BATCH } from '../domain/limits.ts';
import { ID_AFTER_ALL, type StoredFailure } from './dead.ts';
import type { ReadLane, WriteLane } from './lanes.ts';
import { databaseNow, epochText, instantDate } from './predicates.ts';
import { parameter, statement } from './statement.ts';

// The records of finished tasks that somebody wanted to keep; settle.ts writes them. Nothing that a worker or an
// enqueue decides depends on one: a record stands in nobody's way.

/** A finished task, as it is remembered. */
export interface CompletedTask {
  readonly id: TaskId;
  readonly type: string;
  readonly queue: string;
  readonly payloadText: string;
  readonly payloadRevision: number;
  readonly headers: Readonly<Record<string, string>>;
  /** What its handler gave `context.result`, as it is stored; undefined for nothing. */
  readonly resultText: string | undefined;
  /** The run that succeeded included; 0 when the enqueuer did the work itself. */
  readonly attemptCount: number;
  /** The failures before it, oldest first. */
  readonly errors: readonly StoredFailure[];
  readonly enqueuedAt: Date;
  /** When the run that succeeded was claimed; undefined when no worker has ever held it. */
  readonly startedAt: Date | undefined;
  readonly completedAt: Date;
  /** It is pruned after this. */
  readonly keepUntil: Date;
}

const recordColumns = (t: ExpressionBuilder<DB, 'async_completed_tasks'>) =>
  [
    sql<string>`id::text`.as('id'),
    'task_type',
    'queue',
    sql<string>`payload::text`.as('payload'),
    'payload_revision',
    sql<string>`headers::text`.as('headers'),
    sql<string | null>`result::text`.as('result'),
    'attempt_count',
    sql<string>`errors::text`.as('errors'),
    epochText(t.ref('created_at')).as('created_at'),
    epochText(t.ref('started_at')).$castTo<string | null>().as('started_at'),
    epochText(t.ref('completed_at')).as('completed_at'),
    epochText(t.ref('keep_until')).as('keep_until'),
  ] as const;

const listStatement = statement((db) =>
  db
    .selectFrom('async_completed_tasks')
    .where('id', '<', parameter<string>('beforeId'))
    .orderBy('async_completed_tasks.id', 'desc')
    .limit(parameter<number>('limit'))
    .select(recordColumns),
);

const findStatement = statement((db) =>
  db.selectFrom('async_completed_tasks').where('id', '=', parameter<string>('id')).select(recordColumns),
);

const pruneStatement = statement((db) =>
  db
    .with(
      (cte) => cte('old').materialized(),
      (cte) =>
        cte
          .selectFrom('async_completed_tasks')
          .where('keep_until', '<', databaseNow)
          // Without it each batch would step over all that the batches before it deleted and nobody vacuumed yet.
          .where(
            'keep_until',
            '>=',
            sql<Date>`timestamptz 'epoch' + ${parameter<string>('afterMicros')}::bigint * interval '1 microsecond'`,
          )
          .orderBy('keep_until')
          .limit(sql.lit(PRUNE_BATCH))
          .forUpdate()
          .skipLocked()
          .select(['async_completed_tasks.id', 'async_completed_tasks.keep_until']),
    )
    .with('deleted', (cte) =>
      cte
        .deleteFrom('async_completed_tasks')
        .using('old')
        .whereRef('async_completed_tasks.id', '=', 'old.id')
        .returning('old.keep_until'),
    )
    .selectFrom('deleted')
    .select([
      sql<string>`count(*)::text`.as('deleted'),
      sql<string | null>`(extract(epoch from max(keep_until)) * 1000000)::bigint::text`.as('last_micros'),
    ]),
);

/** Records, the newest tasks first, from before `beforeId` on. */
export async function listCompleted(
  lane: ReadLane,
  page: { limit: number; beforeId?: TaskId },
): Promise<CompletedTask[]> {
  const rows = await listStatement.run(lane, { limit: page.limit, beforeId: page.beforeId ?? ID_AFTER_ALL });
  return rows.map(toCompletedTask);
}

/** The record of one task; undefined when there is none (any more). */
export async function findCompleted(lane: ReadLane, id: TaskId): Promise<CompletedTask | undefined> {
  const [row] = await findStatement.run(lane, { id });
  return row === undefined ? undefined : toCompletedTask(row);
}

export interface CompletedPruneBatch {
  readonly deleted: number;
  /** Where the next batch begins, in microseconds since the epoch; undefined when nothing old is left. */
  readonly nextAfterMicros: string | undefined;
}

/**
 * Deletes up to a thousand records that were to be kept until a moment that has passed, in the order of that.
 * Those that another replica has locked are left to it.
 */
export async function pruneCompleted(lane: WriteLane, afterMicros = '0'): Promise<CompletedPruneBatch> {
  const [row] = await pruneStatement.run(lane, { afterMicros });
  const deleted = Number(row?.deleted ?? 0);
  return { deleted, nextAfterMicros: deleted < PRUNE_BATCH ? undefined : (row?.last_micros ?? undefined) };
}

function toCompletedTask(row: Awaited<ReturnType<typeof findStatement.run>>[number]): CompletedTask {
  return {
    id: row.id as TaskId,
    type: row.task_type,
    queue: row.queue,
    payloadText: row.payload,
    payloadRevision: row.payload_revision,
    headers: JSON.parse(row.headers) as Record<string, string>,
    resultText: row.result ?? undefined,
    attemptCount: row.attempt_count,
    errors: JSON.parse(row.errors) as StoredFailure[],
    enqueuedAt: instantDate(row.created_at),
    startedAt: row.started_at === null ? undefined : instantDate(row.started_at),
    completedAt: instantDate(row.completed_at),
    keepUntil: instantDate(row.keep_until),
  };
}
