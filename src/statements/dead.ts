import { type ExpressionBuilder, type SqlBool, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { ACTOR_DEFAULT } from '../domain/actor.ts';
import type { CheckedFilter } from '../domain/dead-letter-filter.ts';
import type { TaskId } from '../domain/ids.ts';
import { DEAD_SCAN } from '../domain/limits.ts';
import type { Write } from '../domain/outcome.ts';
import { recordAudit } from './audit.ts';
import { filterValues, matchesFilter } from './dead-filter.ts';
import { freeWindows } from './keys.ts';
import type { ReadLane, WriteLane } from './lanes.ts';
import { databaseNow, epochText, isDead, isExhausted, isLive } from './predicates.ts';
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
  readonly payloadRevision: number;
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
    'payload_revision',
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
    .where('id', '>=', parameter<string>('floorId'))
    .where(matchesFilter)
    .orderBy('async_tasks.id', 'desc')
    .limit(parameter<number>('limit'))
    .select(deadColumns),
);

// Where a look at some thousands of dead letters ends: of a million that a filter does not match, one statement that
// looked at all would take too long.
const floorStatement = statement((db) =>
  db
    .selectFrom('async_tasks')
    .where(isExhausted)
    .where('id', '<', parameter<string>('beforeId'))
    .orderBy('async_tasks.id', 'desc')
    .offset(sql.lit(DEAD_SCAN - 1))
    .limit(sql.lit(1))
    .select(sql<string>`id::text`.as('id')),
);

const findStatement = statement((db) =>
  db.selectFrom('async_tasks').where(isDead).where('id', '=', parameter<string>('id')).select(deadColumns),
);

/** Attempts start again at 1 and the history stays: replayed with the counter at its end, it would get one run. */
export const replayed = {
  attempt_count: 0,
  retired: false,
  run_at: databaseNow,
  lease_token: null,
  lease_expires_at: null,
};

const woken = [
  'task_type',
  'queue',
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
        .returning(['async_tasks.task_type', 'async_tasks.queue']),
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
        .returning([
          'async_tasks.id',
          'async_tasks.unique_key',
          'async_tasks.task_type',
          'async_tasks.queue',
        ]),
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
        .returning([
          'async_tasks.id',
          'async_tasks.unique_key',
          'async_tasks.task_type',
          'async_tasks.queue',
        ]),
    )
    .with('freed', freeWindows)
    .selectFrom('deleted')
    .select(['task_type', 'queue']),
);

export const ID_AFTER_ALL = '9223372036854775807';

/**
 * Dead letters, newest first, from before `beforeId` on. With a filter it goes back in statements that each look at
 * some thousands, to the end if need be.
 */
export async function listDead(
  lane: ReadLane,
  page: { limit: number; beforeId?: TaskId; filter?: CheckedFilter },
): Promise<DeadLetter[]> {
  const { limit, filter = MATCH_ALL } = page;
  const matches = filterValues(filter);
  const isFiltered = Object.values(filter).some((part) => part !== null);
  const letters: DeadLetter[] = [];
  for (let beforeId: string = page.beforeId ?? ID_AFTER_ALL; ; ) {
    const [floor] = isFiltered ? await floorStatement.run(lane, { beforeId }) : [];
    const values = { ...matches, beforeId, floorId: floor?.id ?? '0', limit: limit - letters.length };
    letters.push(...(await listStatement.run(lane, values)).map(toDeadLetter));
    if (floor === undefined || letters.length >= limit) return letters;
    beforeId = floor.id;
  }
}

const MATCH_ALL: CheckedFilter = {
  type: null,
  queue: null,
  olderThanMs: null,
  newerThanMs: null,
  error: null,
};

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
 * What is written is audited in the same transaction.
 */
export async function replayDead(
  lane: WriteLane,
  id: TaskId,
  actor: string = ACTOR_DEFAULT,
): Promise<Replay> {
  return inTransaction(lane, async (within) => {
    const values = { id, channel: wakeChannel(lane.schema) };
    const [withoutKey] = await replayStatement.run(within, values);
    const answer = withoutKey ?? (await replayWithKey(within, values));
    if (typeof answer === 'string') return answer;
    const { task_type: type, queue } = answer;
    await recordAudit(within, { actor, action: 'dead.replay', subject: id, detail: { type, queue } });
    return 'written';
  });
}

async function replayWithKey(
  lane: WriteLane,
  values: { id: TaskId; channel: string },
): Promise<Exclude<Replay, 'written'> | { task_type: string; queue: string }> {
  await lockKeyStatement.run(lane, values);
  const rivals = await findRivalStatement.run(lane, values);
  // Also of a task that is no dead letter itself: then that is the reason, and nothing else.
  if (rivals.length > 0 && (await findStatement.run(lane, values)).length > 0) return 'key_taken';
  const [row] = await replayWithKeyStatement.run(lane, values);
  return row ?? 'refused';
}

/** Deletes a dead letter, audited in the same transaction. `refused` when it is none (any more). */
export async function dropDead(lane: WriteLane, id: TaskId, actor: string = ACTOR_DEFAULT): Promise<Write> {
  return inTransaction(lane, async (within) => {
    const [row] = await dropStatement.run(within, { id });
    if (row === undefined) return 'refused';
    const { task_type: type, queue } = row;
    await recordAudit(within, { actor, action: 'dead.drop', subject: id, detail: { type, queue } });
    return 'written';
  });
}

function toDeadLetter(row: Awaited<ReturnType<typeof listStatement.run>>[number]): DeadLetter {
  return {
    id: row.id as TaskId,
    type: row.task_type,
    queue: row.queue,
    payloadText: row.payload,
    payloadRevision: row.payload_revision,
    attemptCount: row.attempt_count,
    maxAttempts: row.max_attempts,
    lastError: row.last_error ?? undefined,
    errors: JSON.parse(row.errors) as StoredFailure[],
    enqueuedAt: new Date(Number(row.created_at) * 1_000),
    lastAttemptedAt:
      row.last_attempted_at === null ? undefined : new Date(Number(row.last_attempted_at) * 1_000),
  };
}
