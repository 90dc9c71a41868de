import {
  type ExpressionBuilder,
  type Kysely,
  type QueryCreator,
  type RawBuilder,
  type SqlBool,
  sql,
} from 'kysely';
import type { DB } from '../../generated/db.ts';
import {
  ADMIN_COUNT_MAX,
  GAUGE_ANSWER_ROWS_MAX,
  GAUGE_COMPLETED_ROWS_MAX,
  GAUGE_DEAD_ROWS_MAX,
  GAUGE_GROUPS_MAX,
  GAUGE_LAST_ATTEMPTS_MAX,
  GAUGE_LIVE_ROWS_MAX,
  GAUGE_READ_MS_MAX,
} from '../domain/limits.ts';
import { type ReadLane, readLane } from './lanes.ts';
import { databaseNow, hasAttemptsLeft, isExhausted, isLeased, isRetrying, isWaiting } from './predicates.ts';
import { type Statement, statement } from './statement.ts';

// What the gauges say, in one read. It comes every few seconds from every replica, so what it costs must have an end:
// each count goes through an index and stops at a bound, and the number then says "at least". Dead letters above all
// must cost nothing: they are found group by group (a probe for each type and queue), and only the newest are counted.
// `countTasks` counts everything exactly, for people.
// Pinned by test/metrics/gauges-cost.test.ts.

/** Counts of one task type in one queue. */
export interface GaugeCounts {
  readonly type: string;
  readonly queue: string;
  readonly pending: number;
  readonly running: number;
  readonly due: number;
  /** Backing off after a failure. */
  readonly retrying: number;
  readonly dead: number;
  readonly completed: number;
  /** 0 when none is due. */
  readonly oldestDueSeconds: number;
  /** Which counts have ended at their bound. */
  readonly capped: readonly ('pending' | 'due' | 'dead' | 'completed')[];
}

/** Unfinished tasks of one type and payload revision. */
export interface RevisionCount {
  readonly type: string;
  readonly revision: number;
  readonly tasks: number;
}

export interface GaugeReading {
  readonly counts: readonly GaugeCounts[];
  readonly revisions: readonly RevisionCount[];
  /** Queues of which operators have said something. */
  readonly queues: readonly { readonly queue: string; readonly isPaused: boolean }[];
}

type Part = 'due' | 'delayed' | 'exhausted' | 'completed' | 'queue';

/** Of a type, queue and revision (`due`, `delayed`), of a type and queue, or of a queue. */
interface GaugeRow {
  readonly part: Part;
  readonly task_type: string;
  readonly queue: string;
  readonly revision: number;
  readonly counted: string;
  readonly running: string;
  readonly waiting: string;
  readonly retrying: string;
  readonly oldest: string;
}

// As a number the planner would know that it is large, and would rather read everything and sort.
function subSelect(limit: number): RawBuilder<number> {
  return sql<number>`(select ${sql.lit(limit)})`;
}

/** Counts the rows of the sub-select `counted`, as text: a bigint of a session's own type parser may be anything. */
const count = (where?: RawBuilder<unknown>) =>
  where === undefined ? sql<string>`count(*)::text` : sql<string>`(count(*) filter (where ${where}))::text`;

const none = sql<string>`'0'`;
const noRevision = sql<number>`0`;
const one = sql.lit(1);

const statementOf = (liveRowsMax: number): Statement<GaugeRow> =>
  statement((db) =>
    withGroups(db)
      .with('due_part', (cte) => livePart(cte, 'due', liveRowsMax))
      .with('delayed_part', (cte) => livePart(cte, 'delayed', liveRowsMax))
      .with('exhausted_part', exhaustedPart)
      .with('completed_part', completedPart)
      .with('queue_part', queuePart)
      .selectFrom('due_part')
      .selectAll()
      .unionAll((part) => part.selectFrom('delayed_part').selectAll())
      .unionAll((part) => part.selectFrom('exhausted_part').selectAll())
      .unionAll((part) => part.selectFrom('completed_part').selectAll())
      .unionAll((part) => part.selectFrom('queue_part').selectAll()),
  );

/** For metrics: every quarter of a minute at the most. */
export const gaugesStatement = statementOf(GAUGE_LIVE_ROWS_MAX);

/** For a screen, that somebody waits for, and that asks every other second. */
export const overviewStatement = statementOf(ADMIN_COUNT_MAX);

type Groups = ReturnType<typeof withGroups>;
type GroupsDb = Groups extends QueryCreator<infer Known> ? Known : never;

const hopsMax = sql.lit(GAUGE_GROUPS_MAX);
const nextPlace = (hop: string) => sql<number>`${sql.ref(`${hop}.place`)} + 1`;

/** The names to count by. Each is found from the one before it, with one probe of an index. */
export function withGroups(db: Kysely<DB>) {
  return db
    .withRecursive('live_queue(queue, place)', (cte) =>
      cte
        .selectFrom('async_tasks')
        .where(hasAttemptsLeft)
        .select((t) => [t.fn.min<string | null>('async_tasks.queue').as('queue'), sql<number>`1`.as('place')])
        .unionAll(
          cte
            .selectFrom('live_queue')
            .where('live_queue.queue', 'is not', null)
            .where('live_queue.place', '<', hopsMax)
            .select((hop) => [
              hop
                .selectFrom('async_tasks')
                .where((t) => t.not(t.ref('async_tasks.exhausted')))
                .whereRef('async_tasks.queue', '>', 'live_queue.queue')
                .select((t) => t.fn.min<string | null>('async_tasks.queue').as('queue'))
                .as('queue'),
              nextPlace('live_queue').as('place'),
            ]),
        ),
    )
    .withRecursive('dead_group(task_type, queue, place)', (cte) =>
      cte
        .selectFrom(
          cte
            .selectFrom('async_tasks')
            .where(isExhausted)
            .orderBy('task_type')
            .orderBy('queue')
            .limit(one)
            .select(['task_type', 'queue'])
            .as('first'),
        )
        .select(['first.task_type', 'first.queue', sql<number>`1`.as('place')])
        .unionAll(
          cte
            .selectFrom('dead_group')
            .innerJoinLateral(
              (from) =>
                from
                  .selectFrom('async_tasks')
                  .where((t) => sql<SqlBool>`${t.ref('async_tasks.exhausted')}`)
                  .where(isBeyond('async_tasks', 'dead_group'))
                  .orderBy('async_tasks.task_type')
                  .orderBy('async_tasks.queue')
                  .limit(one)
                  .select(['async_tasks.task_type', 'async_tasks.queue'])
                  .as('next'),
              (join) => join.onTrue(),
            )
            .where('dead_group.place', '<', hopsMax)
            .select(['next.task_type', 'next.queue', nextPlace('dead_group').as('place')]),
        ),
    )
    .withRecursive('completed_group(task_type, queue, place)', (cte) =>
      cte
        .selectFrom(
          cte
            .selectFrom('async_completed_tasks')
            .orderBy('task_type')
            .orderBy('queue')
            .limit(one)
            .select(['task_type', 'queue'])
            .as('first'),
        )
        .select(['first.task_type', 'first.queue', sql<number>`1`.as('place')])
        .unionAll(
          cte
            .selectFrom('completed_group')
            .innerJoinLateral(
              (from) =>
                from
                  .selectFrom('async_completed_tasks')
                  .where(isBeyond('async_completed_tasks', 'completed_group'))
                  .orderBy('async_completed_tasks.task_type')
                  .orderBy('async_completed_tasks.queue')
                  .limit(one)
                  .select(['async_completed_tasks.task_type', 'async_completed_tasks.queue'])
                  .as('next'),
              (join) => join.onTrue(),
            )
            .where('completed_group.place', '<', hopsMax)
            .select(['next.task_type', 'next.queue', nextPlace('completed_group').as('place')]),
        ),
    );
}

function isBeyond(table: string, hop: string): RawBuilder<SqlBool> {
  const pair = (of: string) => sql`(${sql.ref(`${of}.task_type`)}, ${sql.ref(`${of}.queue`)})`;
  return sql<SqlBool>`${pair(table)} > ${pair(hop)}`;
}

/** Of every queue the tasks that are due, the oldest first, or those that are delayed; the running ones are due. */
function livePart(groups: Groups, part: 'due' | 'delayed', rowsMax: number) {
  return groups
    .selectFrom('live_queue')
    .innerJoinLateral(
      (from) =>
        from
          .selectFrom('async_tasks')
          .whereRef('async_tasks.queue', '=', 'live_queue.queue')
          .where((t) => t('async_tasks.run_at', part === 'due' ? '<=' : '>', databaseNow))
          .where(hasAttemptsLeft)
          .orderBy('async_tasks.run_at')
          .orderBy('async_tasks.id')
          .limit(subSelect(rowsMax))
          .select((t) => [
            'async_tasks.task_type',
            'async_tasks.queue',
            'async_tasks.payload_revision',
            'async_tasks.run_at',
            isLeased(t).as('is_leased'),
            isWaiting(t).as('is_waiting'),
            isRetrying(t).as('is_retrying'),
          ])
          .as('counted'),
      (join) => join.onTrue(),
    )
    .groupBy(['counted.task_type', 'counted.queue', 'counted.payload_revision'])
    .orderBy(sql`count(*)`, 'desc')
    .limit(subSelect(GAUGE_ANSWER_ROWS_MAX))
    .select([
      sql<Part>`${sql.lit(part)}`.as('part'),
      'counted.task_type',
      'counted.queue',
      'counted.payload_revision as revision',
      count().as('counted'),
      count(sql`is_leased`).as('running'),
      count(sql`is_waiting`).as('waiting'),
      count(sql`is_retrying`).as('retrying'),
      sql<string>`coalesce(extract(epoch from ${databaseNow} - min(counted.run_at) filter (where is_waiting)), 0)::text`.as(
        'oldest',
      ),
    ]);
}

/**
 * Of every type and queue those that are out of attempts: dead letters, and tasks that run for the last time. The
 * latter are looked for among the newest, since the lease is not in the index; the count needs the index alone.
 */
function exhaustedPart(groups: Groups) {
  return groups
    .selectFrom('dead_group')
    .innerJoinLateral(
      (from) =>
        from.selectFrom(newestExhausted(from, GAUGE_DEAD_ROWS_MAX)).select(count().as('rows')).as('counted'),
      (join) => join.onTrue(),
    )
    .innerJoinLateral(
      (from) =>
        from
          .selectFrom(newestExhausted(from, GAUGE_LAST_ATTEMPTS_MAX))
          .select(count(sql`is_leased`).as('running'))
          .as('newest'),
      (join) => join.onTrue(),
    )
    .select([
      sql<Part>`'exhausted'`.as('part'),
      'dead_group.task_type',
      'dead_group.queue',
      noRevision.as('revision'),
      'counted.rows as counted',
      'newest.running',
      none.as('waiting'),
      none.as('retrying'),
      none.as('oldest'),
    ]);
}

/** A column that nobody asks for is not read: of the leases, whose rows must be visited for it. */
function newestExhausted(from: Pick<ExpressionBuilder<GroupsDb, 'dead_group'>, 'selectFrom'>, limit: number) {
  return from
    .selectFrom('async_tasks')
    .where((t) => sql<SqlBool>`${t.ref('async_tasks.exhausted')}`)
    .whereRef('async_tasks.task_type', '=', 'dead_group.task_type')
    .whereRef('async_tasks.queue', '=', 'dead_group.queue')
    .orderBy('async_tasks.run_at', 'desc')
    .limit(subSelect(limit))
    .select((t) => ['async_tasks.run_at', isLeased(t).as('is_leased')])
    .as('newest_exhausted');
}

function completedPart(groups: Groups) {
  return groups
    .selectFrom('completed_group')
    .innerJoinLateral(
      (from) =>
        from
          .selectFrom('async_completed_tasks')
          .whereRef('async_completed_tasks.task_type', '=', 'completed_group.task_type')
          .whereRef('async_completed_tasks.queue', '=', 'completed_group.queue')
          .limit(subSelect(GAUGE_COMPLETED_ROWS_MAX))
          .select(one.as('one'))
          .as('counted'),
      (join) => join.onTrue(),
    )
    .groupBy(['completed_group.task_type', 'completed_group.queue'])
    .select([
      sql<Part>`'completed'`.as('part'),
      'completed_group.task_type',
      'completed_group.queue',
      noRevision.as('revision'),
      count().as('counted'),
      none.as('running'),
      none.as('waiting'),
      none.as('retrying'),
      none.as('oldest'),
    ]);
}

/** The queues of which operators have said something; one that is paused counts 1. */
function queuePart(groups: Groups) {
  return groups
    .selectFrom('async_queues')
    .orderBy('async_queues.name')
    .limit(subSelect(GAUGE_GROUPS_MAX))
    .select([
      sql<Part>`'queue'`.as('part'),
      sql<string>`''`.as('task_type'),
      'async_queues.name as queue',
      noRevision.as('revision'),
      sql<string>`(async_queues.paused_at is not null)::int::text`.as('counted'),
      none.as('running'),
      none.as('waiting'),
      none.as('retrying'),
      none.as('oldest'),
    ]);
}

/**
 * Reads the gauges, in a transaction of its own on the read lane.
 * The server gives it up after two seconds: rejects with its error then, as with any other.
 */
export async function readGauges(lane: ReadLane): Promise<GaugeReading> {
  return readCounts(lane, gaugesStatement, GAUGE_LIVE_ROWS_MAX);
}

/** The same with a lower bound for the tasks of a queue: ten thousand that are due, and as many that are delayed. */
export async function readOverview(lane: ReadLane): Promise<GaugeReading> {
  return readCounts(lane, overviewStatement, ADMIN_COUNT_MAX);
}

async function readCounts(
  lane: ReadLane,
  counts: Statement<GaugeRow>,
  liveRowsMax: number,
): Promise<GaugeReading> {
  const rows = await lane.executor
    .transaction()
    // A standby has no SERIALIZABLE, which the database may default to.
    .setIsolationLevel('read committed')
    .setAccessMode('read only')
    .execute(async (transaction) => {
      const within = readLane(transaction, lane.schema);
      await settingsStatement.run(within, {});
      return counts.run(within, {});
    });
  return toReading(rows, liveRowsMax);
}

const READ_SETTINGS = {
  statement_timeout: String(GAUGE_READ_MS_MAX),
  enable_seqscan: 'off',
  max_parallel_workers_per_gather: '0',
  jit: 'off',
};

// Until the end of the transaction. A plan that reads the table whole is never what is wanted, whatever the planner
// has heard of it last; and of a plan that can be nothing else (of a small table) JIT would compile the costs.
export const settingsStatement = statement((db) =>
  db.selectNoFrom(
    Object.entries(READ_SETTINGS).map(([name, value]) =>
      sql<string>`set_config(${sql.lit(name)}, ${sql.lit(value)}, true)`.as(name),
    ),
  ),
);

function toReading(rows: readonly GaugeRow[], liveRowsMax: number): GaugeReading {
  const counts = new Map<string, Tally>();
  const revisions: RevisionCount[] = [];
  const queues: { queue: string; isPaused: boolean }[] = [];
  const countedByQueue = new Map<string, number>();
  for (const row of rows) {
    if (row.part === 'queue') {
      queues.push({ queue: row.queue, isPaused: row.counted === '1' });
      continue;
    }
    const key = JSON.stringify([row.task_type, row.queue]);
    const tally = counts.get(key) ?? newTally(row);
    counts.set(key, tally);
    add(tally, row);
    if (row.part !== 'due' && row.part !== 'delayed') continue;
    const counted = Number(row.counted);
    revisions.push({ type: row.task_type, revision: row.revision, tasks: counted });
    const place = `${row.part} ${row.queue}`;
    countedByQueue.set(place, (countedByQueue.get(place) ?? 0) + counted);
  }
  return {
    counts: [...counts.values()].map((tally) => ({
      ...tally,
      capped: cappedOf(tally, countedByQueue, liveRowsMax),
    })),
    revisions,
    queues,
  };
}

type Tally = { -readonly [Field in Exclude<keyof GaugeCounts, 'capped'>]: GaugeCounts[Field] } & {
  exhausted: number;
};

function newTally({ task_type, queue }: GaugeRow): Tally {
  const counts = {
    pending: 0,
    running: 0,
    due: 0,
    retrying: 0,
    dead: 0,
    completed: 0,
    exhausted: 0,
    oldestDueSeconds: 0,
  };
  return { type: task_type, queue, ...counts };
}

function add(tally: Tally, { part, ...row }: GaugeRow): void {
  const counted = Number(row.counted);
  const running = Number(row.running);
  if (part === 'completed') {
    tally.completed = counted;
    return;
  }
  tally.running += running;
  if (part === 'exhausted') {
    tally.exhausted = counted;
    tally.dead = counted - running;
    tally.pending += running;
    return;
  }
  tally.pending += counted;
  tally.due += Number(row.waiting);
  tally.retrying += Number(row.retrying);
  tally.oldestDueSeconds = Math.max(tally.oldestDueSeconds, Number(row.oldest));
}

function cappedOf(
  tally: Tally,
  countedByQueue: ReadonlyMap<string, number>,
  liveRowsMax: number,
): GaugeCounts['capped'] {
  const isFull = (part: Part) => (countedByQueue.get(`${part} ${tally.queue}`) ?? 0) >= liveRowsMax;
  const isDueFull = isFull('due');
  return [
    ...(isDueFull || isFull('delayed') ? (['pending'] as const) : []),
    ...(isDueFull ? (['due'] as const) : []),
    ...(tally.exhausted >= GAUGE_DEAD_ROWS_MAX ? (['dead'] as const) : []),
    ...(tally.completed >= GAUGE_COMPLETED_ROWS_MAX ? (['completed'] as const) : []),
  ];
}
