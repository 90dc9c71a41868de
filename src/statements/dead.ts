import { type ExpressionBuilder, type SqlBool, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../domain/ids.ts';
import type { Write } from '../domain/outcome.ts';
import { freeWindows } from './keys.ts';
import type { ReadLane, WriteLane } from './lanes.ts';
import { databaseNow, epochText, isDead, isLive } from './predicates.ts';
import { inTransaction, parameter, statement } from './statement.ts';
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
const replayed = {
  attempt_count: 0,
  retired: false,
  run_at: databaseNow,
  lease_token: null,
  lease_expires_at: null,
};

const woken = [
  sql<string>`id::text`.as('id'),
  sql<string>`pg_notify(${parameter<string>('channel')}::text, '')::text`.as('sent'),
] as const;

/** A dead letter without a key: nothing can stand in its way. */
const replayStatement = statement((db) =>
  db
    .with('replayed', (cte) =>
      cte
        .updateTable('async_tasks')
        .where('id', '=', parameter<string>('id'))
        .where('unique_key', 'is', null)
        .where(isDead)
        .set(replayed)
        .returning('async_tasks.id'),
    )
    .selectFrom('replayed')
    .select(woken),
);

// One with a key is replayed as it was enqueued: the key is locked first, and what is in the way is judged under a
// later snapshot. Key before task, as in the enqueue: the other way round the two would wait for each other.
const lockKeyStatement = statement((db) =>
  db
    .insertInto('async_task_keys')
    .columns(['key', 'enqueued_at'])
    .expression((from) =>
      from
        .selectFrom('async_tasks')
        .where('id', '=', parameter<string>('id'))
        .where('unique_key', 'is not', null)
        .where(isDead)
        .select(['unique_key as key', databaseNow.as('enqueued_at')]),
    )
    .onConflict((conflict) =>
      conflict
        .column('key')
        .doUpdateSet((k) => ({ enqueued_at: k.ref('async_task_keys.enqueued_at') }))
        .where(sql<SqlBool>`false`),
    ),
);

const findRivalStatement = statement((db) =>
  db
    .selectFrom('async_tasks')
    .where(
      'unique_key',
      '=',
      sql<Buffer>`(${db.selectFrom('async_tasks as own').where('own.id', '=', parameter<string>('id')).select('own.unique_key')})`,
    )
    .where('id', '<>', parameter<string>('id'))
    .where(isLive)
    .limit(sql.lit(1))
    .select(sql<string>`id::text`.as('id')),
);

// The key's row is written, not only locked: an enqueue above READ COMMITTED that does not see this replay must fail.
const replayWithKeyStatement = statement((db) =>
  db
    .with('replayed', (cte) =>
      cte
        .updateTable('async_tasks')
        .where('id', '=', parameter<string>('id'))
        .where(isDead)
        .set(replayed)
        .returning(['async_tasks.id', 'async_tasks.unique_key']),
    )
    .with('taken', (cte) =>
      cte
        .updateTable('async_task_keys')
        .from('replayed')
        .whereRef('async_task_keys.key', '=', 'replayed.unique_key')
        .set((k) => ({ task_id: k.ref('replayed.id'), enqueued_at: databaseNow }))
        .returning('async_task_keys.key'),
    )
    .selectFrom('replayed')
    .select(woken),
);

const dropStatement = statement((db) =>
  db
    .with('deleted', (cte) =>
      cte
        .deleteFrom('async_tasks')
        .where('id', '=', parameter<string>('id'))
        .where(isDead)
        .returning(['async_tasks.id', 'async_tasks.unique_key']),
    )
    .with('freed', freeWindows)
    .selectFrom('deleted')
    .select(sql<string>`id::text`.as('id')),
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
 * `refused`: it is no dead letter (any more). `key_taken`: it was enqueued with a key that a live task has now, so
 * that two of one key would run; it stays a dead letter.
 */
export type Replay = Write | 'key_taken';

/**
 * Puts a dead letter back: due now, attempts from the start, history kept, one wake. One that was enqueued with a
 * key has it again, and is refused while another live task has it. A running or waiting task is never touched.
 */
export async function replayDead(lane: WriteLane, id: TaskId): Promise<Replay> {
  const values = { id, channel: wakeChannel(lane.schema) };
  const rows = await replayStatement.run(lane, values);
  return rows.length === 0 ? inTransaction(lane, (within) => replayWithKey(within, values)) : 'written';
}

async function replayWithKey(lane: WriteLane, values: { id: TaskId; channel: string }): Promise<Replay> {
  await lockKeyStatement.run(lane, values);
  const rivals = await findRivalStatement.run(lane, values);
  // Also of a task that is no dead letter itself: then that is the reason, and nothing else.
  if (rivals.length > 0 && (await findStatement.run(lane, values)).length > 0) return 'key_taken';
  const rows = await replayWithKeyStatement.run(lane, values);
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
