import { type ExpressionBuilder, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../domain/ids.ts';
import type { Write } from '../domain/outcome.ts';
import type { ReadLane, WriteLane } from './lanes.ts';
import { databaseNow, epochText, isDead } from './predicates.ts';
import { parameter, statement } from './statement.ts';
import { wakeChannel } from './wake-channel.ts';

/** One kept failure, as the row stores it. `at` is UTC, from the database's clock. */
export interface StoredFailure {
  readonly at: string;
  readonly attempt: number;
  readonly outcome: string;
  readonly message: string;
  readonly stack?: string;
}

export interface DeadLetter {
  readonly id: TaskId;
  readonly type: string;
  readonly queue: string;
  readonly payloadText: string;
  readonly attemptCount: number;
  readonly maxAttempts: number;
  /** Undefined when the worker of the last attempt died without a word: it can write nothing then. */
  readonly lastError: string | undefined;
  readonly errors: readonly StoredFailure[];
  readonly enqueuedAt: Date;
  readonly lastAttemptedAt: Date | undefined;
}

const deadColumns = (t: ExpressionBuilder<DB, 'async_tasks'>) =>
  [
    sql<string>`id::text`.as('id'),
    'task_type',
    'queue',
    sql<string>`payload::text`.as('payload'),
    'attempt_count',
    'max_attempts',
    'last_error',
    sql<string>`errors::text`.as('errors'),
    epochText(t.ref('created_at')).as('created_at'),
    epochText(t.ref('last_attempted_at')).as('last_attempted_at'),
  ] as const;

const listStatement = statement((db) =>
  db
    .selectFrom('async_tasks')
    .where(isDead)
    .where('id', '<', parameter<string>('beforeId'))
    .orderBy('id', 'desc')
    .limit(parameter<number>('limit'))
    .select(deadColumns),
);

const findStatement = statement((db) =>
  db.selectFrom('async_tasks').where(isDead).where('id', '=', parameter<string>('id')).select(deadColumns),
);

/** Attempts start again at 1 and the history stays: replayed with the counter at its end, it would get one run. */
const replayStatement = statement((db) =>
  db
    .with('replayed', (cte) =>
      cte
        .updateTable('async_tasks')
        .where('id', '=', parameter<string>('id'))
        .where(isDead)
        .set({
          attempt_count: 0,
          retired: false,
          run_at: databaseNow,
          lease_token: null,
          lease_expires_at: null,
        })
        .returning('async_tasks.id'),
    )
    .selectFrom('replayed')
    .select([
      sql<string>`id::text`.as('id'),
      sql<string>`pg_notify(${parameter<string>('channel')}::text, '')::text`.as('sent'),
    ]),
);

const dropStatement = statement((db) =>
  db
    .deleteFrom('async_tasks')
    .where('id', '=', parameter<string>('id'))
    .where(isDead)
    .returning(sql<string>`id::text`.as('id')),
);

const ID_AFTER_ALL = '9223372036854775807';

/** Dead letters, newest first, from before `beforeId` on. */
export async function listDead(
  lane: ReadLane,
  page: { limit: number; beforeId?: TaskId },
): Promise<DeadLetter[]> {
  const rows = await listStatement.run(lane, { limit: page.limit, beforeId: page.beforeId ?? ID_AFTER_ALL });
  return rows.map(toDeadLetter);
}

/** One dead letter; undefined when the task is gone, waiting or running. */
export async function findDead(lane: ReadLane, id: TaskId): Promise<DeadLetter | undefined> {
  const [row] = await findStatement.run(lane, { id });
  return row === undefined ? undefined : toDeadLetter(row);
}

/**
 * Puts a dead letter back: due now, attempts from the start, history kept, one wake.
 * `refused` when it is no dead letter (any more): a running or waiting task is never touched.
 */
export async function replayDead(lane: WriteLane, id: TaskId): Promise<Write> {
  const rows = await replayStatement.run(lane, { id, channel: wakeChannel(lane.schema) });
  return rows.length === 0 ? 'refused' : 'written';
}

/** Deletes a dead letter. `refused` when it is none (any more). */
export async function dropDead(lane: WriteLane, id: TaskId): Promise<Write> {
  const rows = await dropStatement.run(lane, { id });
  return rows.length === 0 ? 'refused' : 'written';
}

function toDeadLetter(row: Awaited<ReturnType<typeof listStatement.run>>[number]): DeadLetter {
  return {
    id: row.id as TaskId,
    type: row.task_type,
    queue: row.queue,
    payloadText: row.payload,
    attemptCount: row.attempt_count,
    maxAttempts: row.max_attempts,
    lastError: row.last_error ?? undefined,
    errors: JSON.parse(row.errors) as StoredFailure[],
    enqueuedAt: new Date(Number(row.created_at) * 1_000),
    lastAttemptedAt:
      row.last_attempted_at === null ? undefined : new Date(Number(row.last_attempted_at) * 1_000),
  };
}
