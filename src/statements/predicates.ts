import { type Expression, type ExpressionBuilder, type RawBuilder, type SqlBool, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { DbInstant } from '../domain/time.ts';
import { parameter } from './statement.ts';

// Each condition on a row exists once, here; the header of sql/0001_async_tasks.sql says what they mean.
// Thresholds stand as literals or as columns, never as parameters: with a parameter a generic plan
// could not use the partial indexes.

type Tasks = ExpressionBuilder<DB, 'async_tasks'>;

/** The database tells the time: no application clock decides what is due, leased or dead. */
export const databaseNow = sql<Date>`now()`;

export const isLeased = (t: Tasks) =>
  sql<SqlBool>`(${t.ref('async_tasks.lease_expires_at')} > ${databaseNow})`;

// IS NOT TRUE takes in the null of a row that was never claimed. Of an OR of two conditions the planner, without
// statistics, would expect half as many rows.
export const isUnleased = (t: Tasks) => sql<SqlBool>`${isLeased(t)} is not true`;

export const isDue = (t: Tasks) => t('async_tasks.run_at', '<=', databaseNow);

/** `NOT exhausted` to the letter: it is the predicate of the discovery index. */
export const hasAttemptsLeft = (t: Tasks) => t.not(t.ref('async_tasks.exhausted'));

export const isExhausted = (t: Tasks) => sql<SqlBool>`${t.ref('async_tasks.exhausted')}`;

export const isDead = (t: Tasks) => t.and([isExhausted(t), isUnleased(t)]);

/** Not dead: waiting, backing off or running. A dead letter is history and never stands in the way. */
export const isLive = (t: Tasks) => t.or([hasAttemptsLeft(t), isLeased(t)]);

/** Claimable as far as the row alone can tell: never tried, or its backoff is over. */
export const isWaiting = (t: Tasks) => t.and([isDue(t), hasAttemptsLeft(t), isUnleased(t)]);

/** Has failed, or its worker died, and backs off. */
export const isRetrying = (t: Tasks) => t.and([isDelayed(t), t('async_tasks.attempt_count', '>', 0)]);

/** Waits for the time it was enqueued for. */
export const isScheduled = (t: Tasks) => t.and([isDelayed(t), t('async_tasks.attempt_count', '=', 0)]);

const isDelayed = (t: Tasks) => t.and([t.not(isDue(t)), hasAttemptsLeft(t), isUnleased(t)]);

/** What a replica can run, as the statements take it: task type → newest payload revision it knows. */
export type KnownRevisions = Readonly<Record<string, number>>;

/** The value of the `known` parameter. */
export const knownRevisionsValue = (known: KnownRevisions): string => JSON.stringify(known);

/**
 * A registered type at a payload revision not newer than the replica's own. Rows of other types and of
 * newer revisions are left to the workers that know them: the look-up yields null for them, and so does NULLIF.
 * Written as a plain comparison the planner would expect a third of the rows; of a burst that it has no statistics
 * of, it expects so few already that it would then read them all and sort, rather than the first of the index.
 * Pinned by test/statements/a-burst-meets-no-statistics.test.ts and plans.test.ts, on every supported PostgreSQL.
 */
export const isKnown = (t: Tasks) =>
  sql<SqlBool>`nullif(${t.ref('async_tasks.payload_revision')} <= (${known} ->> ${t.ref('async_tasks.task_type')})::int, false) is not null`;

const known: RawBuilder<unknown> = sql`${parameter<string>('known')}::text::jsonb`;

/** Everything a claim asks of a row; discovery asks the same of rows it only hints at. */
export const isClaimable = (t: Tasks) => t.and([isDue(t), hasAttemptsLeft(t), isUnleased(t), isKnown(t)]);

/**
 * The same of rows that are named by id. `exhausted` is cast, so that the planner cannot match it to the predicate
 * of the discovery index: statistics from before a burst make it expect nothing due, and then it walks that
 * index through every due row of the burst rather than go to the few ids. Pinned by test/statements/plans.test.ts.
 */
export const isClaimableById = (t: Tasks) =>
  t.and([isDue(t), sql<SqlBool>`${t.ref('async_tasks.exhausted')}::int = 0`, isUnleased(t), isKnown(t)]);

/**
 * Not in a queue that an operator has paused. A sub-select that names no row of the task: it is read once for a
 * statement. Asked by the claim, on the primary, so that nothing is taken from a queue once its pause has committed.
 */
export const isServed = (t: Tasks) =>
  sql<SqlBool>`${t.ref('async_tasks.queue')} <> all(array(${t
    .selectFrom('async_queues')
    .where('async_queues.paused_at', 'is not', null)
    .select('async_queues.name')}))`;

/** Seconds since the epoch as text, microseconds kept: no session setting or type parser changes it. */
export const epochText = (instant: Expression<unknown>): RawBuilder<string> =>
  sql<string>`extract(epoch from ${instant})::text`;

/** Reads what `epochText` wrote, for people: to the millisecond. */
export function instantDate(epochSeconds: string): Date {
  return new Date(Number(epochSeconds) * 1_000);
}

/** Reads what `epochText` wrote. */
export function dbInstant(epochSeconds: string): DbInstant {
  return { dbMs: Number(epochSeconds) * 1_000 };
}
