import { type Expression, type SqlBool, sql } from 'kysely';
import {
  AUDIT_RETENTION_MS,
  DOCTOR_DEAD_NEWS_MS,
  DOCTOR_PRUNE_LATE_MS,
  DOCTOR_RECORDS_MAX,
} from '../domain/limits.ts';
import type { Lane } from './lanes.ts';
import {
  databaseNow,
  hasAttemptsLeft,
  isDead,
  isDue,
  isKnown,
  isLeased,
  isUnleased,
  isWaiting,
  type KnownRevisions,
  knownRevisionsValue,
} from './predicates.ts';
import { parameter, statement } from './statement.ts';

// What `taskq doctor` asks of the queue's own tables. Nothing here writes or locks; each reads its table once, as
// `taskq stats` does.

const ago = (ms: number) => sql<Date>`${databaseNow} - ${sql.lit(ms)} * interval '1 millisecond'`;
const agoOf = (name: string) =>
  sql<Date>`${databaseNow} - ${parameter<number>(name)}::float8 * interval '1 millisecond'`;
const countWhere = (condition: Expression<unknown>) =>
  sql<string>`(count(*) filter (where ${condition}))::text`;
const msSince = (instant: Expression<unknown>) =>
  sql<string | null>`(extract(epoch from ${databaseNow} - ${instant}) * 1000)::text`;

/** One queue, with what waits in it. */
export interface QueueBacklog {
  readonly queue: string;
  /** How long it has been paused; undefined when it is served. */
  readonly pausedMs: number | undefined;
  readonly due: number;
  readonly running: number;
  /** How long its longest-waiting due task has been due; 0 when none is. */
  readonly oldestDueMs: number;
}

const backlogStatement = statement((db) =>
  db
    .with('live', (cte) =>
      cte
        .selectFrom('async_tasks')
        .groupBy('async_tasks.queue')
        .select((t) => [
          'async_tasks.queue',
          countWhere(isWaiting(t)).as('due'),
          countWhere(isLeased(t)).as('running'),
          msSince(sql`min(async_tasks.run_at) filter (where ${isWaiting(t)})`).as('oldest_ms'),
        ]),
    )
    .with('paused', (cte) =>
      cte.selectFrom('async_queues').where('paused_at', 'is not', null).select(['name', 'paused_at']),
    )
    .selectFrom('live')
    .fullJoin('paused', (join) => join.onRef('paused.name', '=', 'live.queue'))
    .select([
      sql<string>`coalesce(live.queue, paused.name)`.as('queue_name'),
      'live.due',
      'live.running',
      'live.oldest_ms',
      msSince(sql.ref('paused.paused_at')).as('paused_ms'),
    ])
    .orderBy('queue_name'),
);

/** Queues with tasks, and those that are paused. */
export async function readBacklog(lane: Lane): Promise<QueueBacklog[]> {
  const rows = await backlogStatement.run(lane, {});
  return rows.map((row) => ({
    queue: row.queue_name,
    pausedMs: row.paused_ms === null ? undefined : Number(row.paused_ms),
    due: Number(row.due ?? 0),
    running: Number(row.running ?? 0),
    oldestDueMs: Number(row.oldest_ms ?? 0),
  }));
}

/** Waiting tasks of a type, or of a newer payload revision, that a code base does not know. */
export interface UnknownWork {
  readonly type: string;
  readonly revision: number;
  readonly rows: number;
  /** How long the oldest has been due; 0 when none is. */
  readonly oldestDueMs: number;
}

const unknownStatement = statement((db) =>
  db
    .selectFrom('async_tasks')
    .where(hasAttemptsLeft)
    .where(isUnleased)
    .where((t) => sql<SqlBool>`(${isKnown(t)}) is not true`)
    .groupBy(['task_type', 'payload_revision'])
    .orderBy('task_type')
    .orderBy('payload_revision')
    .select((t) => [
      'task_type',
      'payload_revision',
      sql<string>`count(*)::text`.as('rows'),
      msSince(sql`min(async_tasks.run_at) filter (where ${isDue(t)})`).as('oldest_ms'),
    ]),
);

export async function readUnknownWork(lane: Lane, known: KnownRevisions): Promise<UnknownWork[]> {
  const rows = await unknownStatement.run(lane, { known: knownRevisionsValue(known) });
  return rows.map((row) => ({
    type: row.task_type,
    revision: row.payload_revision,
    rows: Number(row.rows),
    oldestDueMs: Number(row.oldest_ms ?? 0),
  }));
}

/** Leases that have lapsed and were not taken over, by type and queue; those of paused queues are left out. */
export interface LapsedLeases {
  readonly type: string;
  readonly queue: string;
  readonly rows: number;
  /** How long ago the oldest of them ended. */
  readonly oldestMs: number;
}

const lapsedStatement = statement((db) =>
  db
    .selectFrom('async_tasks')
    .where(hasAttemptsLeft)
    .where(isDue)
    .where('async_tasks.lease_expires_at', '<', agoOf('lapsedMs'))
    .where((t) =>
      t.not(
        t.exists(
          t
            .selectFrom('async_queues')
            .whereRef('async_queues.name', '=', 'async_tasks.queue')
            .where('async_queues.paused_at', 'is not', null)
            .select(sql.lit(1).as('one')),
        ),
      ),
    )
    .groupBy(['task_type', 'async_tasks.queue'])
    .orderBy('task_type')
    .orderBy('async_tasks.queue')
    .select([
      'task_type',
      'async_tasks.queue',
      sql<string>`count(*)::text`.as('rows'),
      msSince(sql`min(async_tasks.lease_expires_at)`).as('oldest_ms'),
    ]),
);

export async function readLapsedLeases(lane: Lane, lapsedMs: number): Promise<LapsedLeases[]> {
  const rows = await lapsedStatement.run(lane, { lapsedMs });
  return rows.map((row) => ({
    type: row.task_type,
    queue: row.queue,
    rows: Number(row.rows),
    oldestMs: Number(row.oldest_ms ?? 0),
  }));
}

/** Live leases that end later than a claim of their type could have stamped now. */
export interface LongLeases {
  readonly type: string;
  readonly rows: number;
  /** How far in the future the last of them ends. */
  readonly longestMs: number;
  /** One of them. */
  readonly id: string;
}

const leaseLeft = sql<string>`extract(epoch from async_tasks.lease_expires_at - ${databaseNow}) * 1000`;

const longStatement = statement((db) =>
  db
    .selectFrom('async_tasks')
    .where(
      sql<SqlBool>`${leaseLeft} > coalesce((${parameter<string>('leaseMs')}::text::jsonb ->> async_tasks.task_type)::float8, ${parameter<number>('otherwiseMs')}::float8)`,
    )
    .groupBy('task_type')
    .orderBy('task_type')
    .select([
      'task_type',
      sql<string>`count(*)::text`.as('rows'),
      sql<string>`max(${leaseLeft})::text`.as('longest_ms'),
      sql<string>`min(async_tasks.id)::text`.as('id'),
    ]),
);

/** `leaseMs`: task type → the longest lease that it can have; `otherwiseMs` for types that are not there. */
export async function readLongLeases(
  lane: Lane,
  { leaseMs, otherwiseMs }: { leaseMs: Readonly<Record<string, number>>; otherwiseMs: number },
): Promise<LongLeases[]> {
  const rows = await longStatement.run(lane, { leaseMs: JSON.stringify(leaseMs), otherwiseMs });
  return rows.map((row) => ({
    type: row.task_type,
    rows: Number(row.rows),
    longestMs: Number(row.longest_ms),
    id: row.id,
  }));
}

/** How long the runs of a type took, by the records of finished tasks. */
export interface MeasuredRuns {
  readonly type: string;
  readonly runs: number;
  readonly p99Ms: number;
  readonly longestMs: number;
}

const took = sql<number>`extract(epoch from newest.completed_at - newest.started_at) * 1000`;

const runsStatement = statement((db) =>
  db
    .selectFrom((from) =>
      from
        .selectFrom('async_completed_tasks')
        .orderBy('id', 'desc')
        .limit(sql.lit(DOCTOR_RECORDS_MAX))
        .select(['task_type', 'started_at', 'completed_at'])
        .as('newest'),
    )
    .where('newest.started_at', 'is not', null)
    .groupBy('newest.task_type')
    .orderBy('newest.task_type')
    .select([
      'newest.task_type',
      sql<string>`count(*)::text`.as('runs'),
      sql<string>`(percentile_cont(0.99) within group (order by ${took}))::text`.as('p99_ms'),
      sql<string>`max(${took})::text`.as('longest_ms'),
    ]),
);

/** Of the newest records, by type. */
export async function readMeasuredRuns(lane: Lane): Promise<MeasuredRuns[]> {
  const rows = await runsStatement.run(lane, {});
  return rows.map((row) => ({
    type: row.task_type,
    runs: Number(row.runs),
    p99Ms: Number(row.p99_ms),
    longestMs: Number(row.longest_ms),
  }));
}

const timedOutStatement = statement((db) =>
  db
    .selectFrom('async_tasks')
    .where('attempt_count', '>', 0)
    .where(isUnleased)
    .where(sql<SqlBool>`async_tasks.errors -> -1 ->> 'outcome' = 'timeout'`)
    .groupBy('task_type')
    .orderBy(sql`count(*)`, 'desc')
    .orderBy('task_type')
    .select(['task_type', sql<string>`count(*)::text`.as('rows')]),
);

/** Tasks, dead letters included, whose last recorded run ended at its deadline. */
export async function readTimedOut(lane: Lane): Promise<{ readonly type: string; readonly rows: number }[]> {
  const rows = await timedOutStatement.run(lane, {});
  return rows.map((row) => ({ type: row.task_type, rows: Number(row.rows) }));
}

export interface DeadSums {
  readonly dead: number;
  /** Whose last attempt was within the last day. */
  readonly news: number;
  /** Whose retention was over two prunes ago. */
  readonly overdue: number;
  /** The type with the most of the news; undefined when there are none. */
  readonly newsType: string | undefined;
}

const lastAttempt = sql<Date>`coalesce(async_tasks.last_attempted_at, async_tasks.created_at)`;

const deadStatement = statement((db) =>
  db
    .selectFrom('async_tasks')
    .where(isDead)
    .groupBy('task_type')
    .orderBy(sql`count(*) filter (where ${lastAttempt} > ${ago(DOCTOR_DEAD_NEWS_MS)})`, 'desc')
    .orderBy('task_type')
    .select([
      'task_type',
      sql<string>`count(*)::text`.as('dead'),
      countWhere(sql`${lastAttempt} > ${ago(DOCTOR_DEAD_NEWS_MS)}`).as('news'),
      countWhere(sql`${lastAttempt} < ${agoOf('overdueMs')}`).as('overdue'),
    ]),
);

export async function readDead(lane: Lane, retentionMs: number): Promise<DeadSums> {
  const rows = await deadStatement.run(lane, { overdueMs: retentionMs + DOCTOR_PRUNE_LATE_MS });
  const sum = (column: 'dead' | 'news' | 'overdue') =>
    rows.reduce((total, row) => total + Number(row[column]), 0);
  const news = sum('news');
  return {
    dead: sum('dead'),
    news,
    overdue: sum('overdue'),
    newsType: news === 0 ? undefined : rows[0]?.task_type,
  };
}

const overdueStatement = statement((db) =>
  db.selectNoFrom((s) => [
    s
      .selectFrom('async_completed_tasks')
      .where('keep_until', '<', ago(DOCTOR_PRUNE_LATE_MS))
      .select(sql<string>`count(*)::text`.as('rows'))
      .as('records'),
    s
      .selectFrom('async_audit')
      .where('at', '<', ago(AUDIT_RETENTION_MS + DOCTOR_PRUNE_LATE_MS))
      .select(sql<string>`count(*)::text`.as('rows'))
      .as('audit'),
  ]),
);

/** What two prunes have left: records of finished tasks, and what the audit has of more than a year ago. */
export async function readOverdue(lane: Lane): Promise<{ readonly records: number; readonly audit: number }> {
  const [row] = await overdueStatement.run(lane, {});
  return { records: Number(row?.records ?? 0), audit: Number(row?.audit ?? 0) };
}
