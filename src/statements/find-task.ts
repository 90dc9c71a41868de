import { type ExpressionBuilder, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../domain/ids.ts';
import { decodeProgress, type SliceProgress } from '../domain/slice.ts';
import type { StoredFailure } from './dead.ts';
import type { ReadLane } from './lanes.ts';
import {
  epochText,
  instantDate,
  isDead,
  isLeased,
  isRetrying,
  isScheduled,
  isWaiting,
} from './predicates.ts';
import { parameter, statement } from './statement.ts';

/** Where a task stands that is not done: one of these at any moment, told from the row and the database's clock. */
export type TaskState = 'waiting' | 'scheduled' | 'retrying' | 'running' | 'dead';

/** A task that is not done, as it stands in the database. */
export interface UnfinishedTask {
  readonly id: TaskId;
  readonly type: string;
  readonly queue: string;
  readonly state: TaskState;
  readonly payloadText: string;
  readonly payloadRevision: number;
  /** Where the next slice begins, as it is stored; undefined before the first advance. */
  readonly cursorText: string | undefined;
  /** How far its slices have said they are. */
  readonly progress: SliceProgress | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** The run under way included. */
  readonly attemptCount: number;
  readonly maxAttempts: number;
  readonly lastError: string | undefined;
  readonly errors: readonly StoredFailure[];
  readonly enqueuedAt: Date;
  /** From when on it may be claimed. */
  readonly runAt: Date;
  readonly lastAttemptedAt: Date | undefined;
  /** Until when a worker holds it; undefined when none does. */
  readonly leaseExpiresAt: Date | undefined;
}

export const taskState = (t: ExpressionBuilder<DB, 'async_tasks'>) =>
  sql<TaskState>`case when ${isLeased(t)} then 'running' when ${isDead(t)} then 'dead' when ${isWaiting(t)} then 'waiting' when ${isRetrying(t)} then 'retrying' when ${isScheduled(t)} then 'scheduled' end`;

const findStatement = statement((db) =>
  db
    .selectFrom('async_tasks')
    .where('id', '=', parameter<string>('id'))
    .select((t) => [
      sql<string>`id::text`.as('id'),
      'task_type',
      'queue',
      taskState(t).as('state'),
      sql<string>`payload::text`.as('payload'),
      'payload_revision',
      sql<string | null>`cursor::text`.as('cursor'),
      sql<string | null>`progress::text`.as('progress'),
      sql<string>`headers::text`.as('headers'),
      'attempt_count',
      'max_attempts',
      'last_error',
      sql<string>`errors::text`.as('errors'),
      epochText(t.ref('created_at')).as('created_at'),
      epochText(t.ref('run_at')).as('run_at'),
      epochText(t.ref('last_attempted_at')).$castTo<string | null>().as('last_attempted_at'),
      sql<string | null>`case when ${isLeased(t)} then ${epochText(t.ref('lease_expires_at'))} end`.as(
        'lease_expires_at',
      ),
    ]),
);

/** One task that is not done, whatever its state; undefined when it is done, pruned, dropped, or never was. */
export async function findTask(lane: ReadLane, id: TaskId): Promise<UnfinishedTask | undefined> {
  const [row] = await findStatement.run(lane, { id });
  if (row === undefined) return undefined;
  const { last_attempted_at: attempted, lease_expires_at: leaseEnd } = row;
  return {
    id: row.id as TaskId,
    type: row.task_type,
    queue: row.queue,
    state: row.state,
    payloadText: row.payload,
    payloadRevision: row.payload_revision,
    cursorText: row.cursor ?? undefined,
    progress: decodeProgress(row.progress),
    headers: JSON.parse(row.headers) as Record<string, string>,
    attemptCount: row.attempt_count,
    maxAttempts: row.max_attempts,
    lastError: row.last_error ?? undefined,
    errors: JSON.parse(row.errors) as StoredFailure[],
    enqueuedAt: instantDate(row.created_at),
    runAt: instantDate(row.run_at),
    lastAttemptedAt: attempted === null ? undefined : instantDate(attempted),
    leaseExpiresAt: leaseEnd === null ? undefined : instantDate(leaseEnd),
  };
}
