import { type ExpressionBuilder, type QueryCreator, type RawBuilder, type Selectable, sql } from 'kysely';
import type { DB, JsonValue } from '../../generated/db.ts';
import type { Lease, TaskId } from '../domain/ids.ts';
import { ERROR_HISTORY_MAX, RECORD_RETENTION_MS_MAX } from '../domain/limits.ts';
import type { FailureRecord, Write } from '../domain/outcome.ts';
import type { DbInstant } from '../domain/time.ts';
import type { CallerLane, WriteLane } from './lanes.ts';
import { databaseNow, dbInstant, epochText, isUnleased } from './predicates.ts';
import { parameter, type Statement, statement } from './statement.ts';

// Everything that is written about a held row. Each statement is made from a Lease, and matches the row only
// while the row still carries that lease's token: a worker whose lease was taken over writes nothing.
// The token alone is the fence. Not the attempt number (a cursor or a replay resets it, so it comes round again)
// and not the expiry (a late holder that nobody has replaced may still say that it is finished).

type Tasks = ExpressionBuilder<DB, 'async_tasks'>;

/** The fence. A test compiles every statement of `SETTLE_STATEMENTS` and fails where it is missing. */
const isHeld = (t: Tasks) =>
  t.and([
    t('async_tasks.id', '=', parameter<string>('id')),
    t('async_tasks.lease_token', '=', parameter<string>('token')),
  ]);

const unleased = { lease_token: null, lease_expires_at: null };

const dequeueStatement = statement((db) =>
  db
    .deleteFrom('async_tasks')
    .using(
      sql<{
        id: string;
        token: string;
      }>`unnest(${parameter<string[]>('ids')}::bigint[], ${parameter<string[]>('tokens')}::uuid[])`.as<'held'>(
        sql`held(id, token)`,
      ),
    )
    .whereRef('async_tasks.id', '=', 'held.id')
    .whereRef('async_tasks.lease_token', '=', 'held.token')
    .returning(sql<string>`async_tasks.id::text`.as('id')),
);

// The record of a task that asked for one is written by the very statement that deletes the task, under its fence:
// no crash lies between the two, and a late holder writes neither. What a task without a record runs is a statement of
// its own, above, which names neither the other table nor a column beside the fence.

type Deleted = Pick<
  Selectable<DB['async_tasks']>,
  | 'id'
  | 'queue'
  | 'task_type'
  | 'payload'
  | 'payload_revision'
  | 'headers'
  | 'attempt_count'
  | 'errors'
  | 'created_at'
  | 'last_attempted_at'
  | 'retention_ms'
> & { result: JsonValue | null };

const deletedColumns = [
  'async_tasks.id',
  'async_tasks.queue',
  'async_tasks.task_type',
  'async_tasks.payload',
  'async_tasks.payload_revision',
  'async_tasks.headers',
  'async_tasks.attempt_count',
  'async_tasks.errors',
  'async_tasks.created_at',
  'async_tasks.last_attempted_at',
  'async_tasks.retention_ms',
] as const;

const recordColumns = [
  'id',
  'queue',
  'task_type',
  'payload',
  'payload_revision',
  'headers',
  'attempt_count',
  'errors',
  'created_at',
  'started_at',
  'result',
  'completed_at',
  'keep_until',
] as const;

/** Of the rows that a statement deletes, the records of those that asked for one. */
const keepRecords = (cte: QueryCreator<DB & { deleted: Deleted }>) =>
  cte
    .insertInto('async_completed_tasks')
    .columns(recordColumns)
    .expression((from) =>
      from
        .selectFrom('deleted')
        .where('retention_ms', 'is not', null)
        .select((d) => [
          'id',
          'queue',
          'task_type',
          'payload',
          'payload_revision',
          'headers',
          'attempt_count',
          'errors',
          'created_at',
          'last_attempted_at as started_at',
          'result',
          databaseNow.as('completed_at'),
          // Beyond the bound a timestamp would overflow, and the task could never be settled.
          sql<Date>`${databaseNow} + least(${d.ref('retention_ms')}, ${sql.lit(RECORD_RETENTION_MS_MAX)}) * interval '1 millisecond'`.as(
            'keep_until',
          ),
        ]),
    )
    // An id comes again only when somebody has set the sequence back, as a switch to a logical replica does. A task
    // that is done must be settled even then, or its work would be done again.
    .onConflict((conflict) =>
      conflict
        .column('id')
        .doUpdateSet((r) =>
          Object.fromEntries(recordColumns.map((name) => [name, r.ref(`excluded.${name}`)])),
        ),
    );

const dequeueKeepingStatement = statement((db) =>
  db
    .with('deleted', (cte) =>
      cte
        .deleteFrom('async_tasks')
        .using(
          sql<{
            id: string;
            token: string;
            result: string | null;
          }>`unnest(${parameter<string[]>('ids')}::bigint[], ${parameter<string[]>('tokens')}::uuid[], ${parameter<(string | null)[]>('results')}::text[])`.as<'held'>(
            sql`held(id, token, result)`,
          ),
        )
        .whereRef('async_tasks.id', '=', 'held.id')
        .whereRef('async_tasks.lease_token', '=', 'held.token')
        .returning([...deletedColumns, sql<JsonValue | null>`held.result::jsonb`.as('result')]),
    )
    .with('kept', keepRecords)
    .selectFrom('deleted')
    .select(sql<string>`id::text`.as('id')),
);

const recordFailureStatement = statement((db) =>
  db
    .updateTable('async_tasks')
    .where(isHeld)
    .set((t) => ({
      ...unleased,
      ...stampedFailure(t),
      run_at: sql<Date>`${databaseNow} + ${milliseconds('backoffMs')}`,
    }))
    .returning(sql<string>`id::text`.as('id')),
);

const retireStatement = statement((db) =>
  db
    .updateTable('async_tasks')
    .where(isHeld)
    .set((t) => ({ ...unleased, ...stampedFailure(t), retired: true }))
    .returning(sql<string>`id::text`.as('id')),
);

const releaseStatement = statement((db) =>
  db
    .updateTable('async_tasks')
    .where(isHeld)
    .set((t) => {
      const stamped = stampedFailure(t);
      const onFinalAttempt = t.ref('async_tasks.exhausted');
      return {
        ...unleased,
        last_error: sql<string>`case when ${onFinalAttempt} then ${stamped.last_error} else ${t.ref('async_tasks.last_error')} end`,
        errors: sql<string>`case when ${onFinalAttempt} then ${stamped.errors} else ${t.ref('async_tasks.errors')} end`,
      };
    })
    .returning(sql<string>`id::text`.as('id')),
);

const advanceCursorStatement = statement((db) =>
  db
    .updateTable('async_tasks')
    .where(isHeld)
    .set({
      ...unleased,
      cursor: sql<string>`${parameter<string>('cursor')}::text::jsonb`,
      progress: sql<string | null>`${parameter<string | null>('progress')}::text::jsonb`,
      run_at: databaseNow,
      attempt_count: 0,
      last_error: null,
    })
    .returning(sql<string>`id::text`.as('id')),
);

const extendLeaseStatement = statement((db) =>
  db
    .updateTable('async_tasks')
    .where(isHeld)
    .set((t) => ({
      lease_expires_at: sql<Date>`least(${databaseNow} + ${milliseconds('leaseMs')}, ${t.ref('async_tasks.last_attempted_at')} + ${milliseconds('limitMs')})`,
    }))
    .returning((t) => [
      sql<string>`id::text`.as('id'),
      epochText(t.ref('async_tasks.lease_expires_at')).as('lease_expires_at'),
      epochText(databaseNow).as('now'),
    ]),
);

function milliseconds(name: string): RawBuilder<unknown> {
  return sql`${parameter<number>(name)}::float8 * interval '1 millisecond'`;
}

const completeStatement = statement((db) =>
  db.deleteFrom('async_tasks').where(isHeld).returning(sql<string>`id::text`.as('id')),
);

const completeKeepingStatement = statement((db) =>
  db
    .with('deleted', (cte) =>
      cte
        .deleteFrom('async_tasks')
        .where(isHeld)
        .returning([
          ...deletedColumns,
          sql<JsonValue | null>`${parameter<string | null>('result')}::text::jsonb`.as('result'),
        ]),
    )
    .with('kept', keepRecords)
    .selectFrom('deleted')
    .select(sql<string>`id::text`.as('id')),
);

/** The whole family, for the test of the fence. */
export const SETTLE_STATEMENTS: Readonly<Record<string, Statement<{ id: string }>>> = {
  dequeue: dequeueStatement,
  dequeueKeeping: dequeueKeepingStatement,
  complete: completeStatement,
  completeKeeping: completeKeepingStatement,
  recordFailure: recordFailureStatement,
  retire: retireStatement,
  release: releaseStatement,
  advanceCursor: advanceCursorStatement,
  extendLease: extendLeaseStatement,
};

/**
 * Deletes finished tasks, each judged by its own token. Answers the ids that were deleted:
 * one that is missing was refused, because another worker holds that row or it is gone.
 */
export async function dequeue(lane: WriteLane, leases: readonly Lease[]): Promise<Set<TaskId>> {
  const values = { ids: leases.map((lease) => lease.id), tokens: leases.map((lease) => lease.token) };
  const rows = await dequeueStatement.run(lane, values);
  return new Set(rows.map((row) => row.id as TaskId));
}

/** A held task that is done, and what its handler said with `context.result`, encoded. */
export interface Finished {
  readonly lease: Lease;
  readonly resultText: string | undefined;
}

/**
 * As `dequeue`, and leaves the record of each task that was enqueued with a retention: the row as it was, the result,
 * and until when. A task that is refused leaves none.
 */
export async function dequeueKeeping(lane: WriteLane, finished: readonly Finished[]): Promise<Set<TaskId>> {
  const rows = await dequeueKeepingStatement.run(lane, {
    ids: finished.map(({ lease }) => lease.id),
    tokens: finished.map(({ lease }) => lease.token),
    results: finished.map(({ resultText }) => resultText ?? null),
  });
  return new Set(rows.map((row) => row.id as TaskId));
}

/**
 * Deletes a finished task inside the transaction in which its work was done. `refused` when another worker holds it
 * or it is gone: the caller throws, so that the work rolls back.
 */
export async function complete(lane: CallerLane, lease: Lease): Promise<Write> {
  return written(await completeStatement.run(lane, { ...lease }));
}

/** As `complete`, and leaves the record of a task that was enqueued with a retention, in the same transaction. */
export async function completeKeeping(lane: CallerLane, { lease, resultText }: Finished): Promise<Write> {
  return written(await completeKeepingStatement.run(lane, { ...lease, result: resultText ?? null }));
}

/** Records a failure: error kept, `run_at` pushed by the backoff, lease cleared, attempt kept. */
export async function recordFailure(
  lane: WriteLane,
  lease: Lease,
  failure: FailureRecord,
  backoffMs: number,
): Promise<Write> {
  return written(await recordFailureStatement.run(lane, { ...lease, ...failureValues(failure), backoffMs }));
}

/** Makes the task a dead letter now: error kept, lease cleared, the true attempt count kept. */
export async function retire(lane: WriteLane, lease: Lease, failure: FailureRecord): Promise<Write> {
  return written(await retireStatement.run(lane, { ...lease, ...failureValues(failure) }));
}

/**
 * Gives the row back, due at once; the attempt stays burnt. `failure` is stamped only on the final attempt,
 * since the row is a dead letter then, and it would carry no explanation.
 * `refused` is no alarm: a lease that already lapsed or was given up by a cursor needs no releasing.
 */
export async function release(lane: WriteLane, lease: Lease, failure: FailureRecord): Promise<Write> {
  return written(await releaseStatement.run(lane, { ...lease, ...failureValues(failure) }));
}

/**
 * Commits where the next slice begins: cursor, due now, attempts back to 0, no error, no lease.
 * In one statement, so that the row is never claimable without the progress that says where to go on.
 * Without `progressText` the row says none: what an earlier slice said is no longer true.
 */
export async function advanceCursor(
  lane: WriteLane,
  lease: Lease,
  cursorText: string,
  progressText?: string,
): Promise<Write> {
  const values = { ...lease, cursor: cursorText, progress: progressText ?? null };
  return written(await advanceCursorStatement.run(lane, values));
}

/**
 * Moves the end of a lease that is kept alive by heartbeats to `leaseMs` from now, but never beyond `limitMs`
 * after the claim. Answers the new stamp; undefined when another worker holds the row or it is gone.
 */
export async function extendLease(
  lane: WriteLane,
  lease: Lease,
  { leaseMs, limitMs }: { leaseMs: number; limitMs: number },
): Promise<{ leaseExpiresAt: DbInstant; databaseNow: DbInstant } | undefined> {
  const [row] = await extendLeaseStatement.run(lane, { ...lease, leaseMs, limitMs });
  if (row === undefined) return undefined;
  return { leaseExpiresAt: dbInstant(row.lease_expires_at), databaseNow: dbInstant(row.now) };
}

const dequeueUnleasedStatement = statement((db) =>
  db
    .deleteFrom('async_tasks')
    .where('async_tasks.id', '=', parameter<string>('id'))
    .where('async_tasks.retention_ms', 'is', null)
    .where(isUnleased)
    .returning(sql<string>`id::text`.as('id')),
);

const dequeueUnleasedKeepingStatement = statement((db) =>
  db
    .with('deleted', (cte) =>
      cte
        .deleteFrom('async_tasks')
        .where('async_tasks.id', '=', parameter<string>('id'))
        .where(isUnleased)
        .returning([...deletedColumns, sql<JsonValue | null>`null::jsonb`.as('result')]),
    )
    .with('kept', keepRecords)
    .selectFrom('deleted')
    .select(sql<string>`id::text`.as('id')),
);

/**
 * Deletes a task that nobody holds: for a caller that did the work itself, right after enqueuing it. One that was
 * enqueued with a retention leaves its record, without a result.
 * `refused` when a worker holds it or it is gone.
 */
export async function dequeueUnleased(lane: CallerLane, id: TaskId): Promise<Write> {
  const write = written(await dequeueUnleasedStatement.run(lane, { id }));
  // Of two statements, so that a role that may not write records can still take back a task that leaves none.
  return write === 'written' ? write : written(await dequeueUnleasedKeepingStatement.run(lane, { id }));
}

// The history is bounded: the oldest entry gives way. The moment is the database's, as everywhere on the row.
function stampedFailure(t: Tasks): { last_error: RawBuilder<string>; errors: RawBuilder<string> } {
  const entry = sql`jsonb_build_object('at', to_char(${databaseNow} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) || ${parameter<string>('entry')}::text::jsonb`;
  const errors = t.ref('async_tasks.errors');
  const bounded = sql`case when jsonb_array_length(${errors}) >= ${sql.lit(ERROR_HISTORY_MAX)} then ${errors} - 0 else ${errors} end`;
  return {
    last_error: sql<string>`${parameter<string>('message')}::text`,
    errors: sql<string>`${bounded} || jsonb_build_array(${entry})`,
  };
}

function failureValues(failure: FailureRecord): { message: string; entry: string } {
  return { message: failure.message, entry: JSON.stringify(failure) };
}

function written(rows: readonly unknown[]): Write {
  return rows.length === 0 ? 'refused' : 'written';
}
