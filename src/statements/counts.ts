import { type Expression, sql } from 'kysely';
import type { ReadLane } from './lanes.ts';
import { databaseNow, isDead, isLeased, isLive, isRetrying, isScheduled, isWaiting } from './predicates.ts';
import { statement } from './statement.ts';

/** What the table holds, for one task type in one queue. Running is a subset of pending, not its complement. */
export interface TaskCounts {
  readonly type: string;
  readonly queue: string;
  /** Unfinished work: waiting, backing off, or running. */
  readonly pending: number;
  /** Under a live lease. */
  readonly running: number;
  /** Claimable now, as far as the row alone can tell. */
  readonly due: number;
  /** Waiting for the later time it was enqueued for. */
  readonly scheduled: number;
  /** Backing off after a failure. */
  readonly retrying: number;
  readonly dead: number;
  /** Finished tasks whose record is kept. */
  readonly completed: number;
  /** How long the longest-waiting due task has been due; 0 when none is. */
  readonly oldestDueSeconds: number;
  /** Of the pending tasks whose slices say how far they are; undefined when none does. */
  readonly progress: ProgressSum | undefined;
}

export interface ProgressSum {
  readonly tasks: number;
  readonly done: number;
  /** Undefined when one of them does not know its total. */
  readonly total: number | undefined;
}

// One statement, so that a task that is being finished is counted once: as running, or as completed.
const countsStatement = statement((db) =>
  db
    .with('unfinished', (cte) =>
      cte
        .selectFrom('async_tasks')
        .groupBy(['task_type', 'queue'])
        .select((t) => {
          const count = (where: Expression<unknown>) =>
            sql<string>`(${t.fn.countAll()} filter (where ${where}))::text`;
          return [
            'task_type',
            'queue',
            count(isLive(t)).as('pending'),
            count(isLeased(t)).as('running'),
            count(isWaiting(t)).as('due'),
            count(isScheduled(t)).as('scheduled'),
            count(isRetrying(t)).as('retrying'),
            count(isDead(t)).as('dead'),
            sql<string>`coalesce(extract(epoch from ${databaseNow} - min(run_at) filter (where ${isWaiting(t)})), 0)::text`.as(
              'oldest',
            ),
            count(t.and([isLive(t), t('progress', 'is not', null)])).as('sliced'),
            sql<string | null>`(sum((progress ->> 'done')::numeric) filter (where ${isLive(t)}))::text`.as(
              'done',
            ),
            sql<string | null>`(sum((progress ->> 'total')::numeric) filter (where ${isLive(t)}))::text`.as(
              'total',
            ),
            count(t.and([isLive(t), sql<boolean>`progress ? 'total'`])).as('with_total'),
          ];
        }),
    )
    .with('records', (cte) =>
      cte
        .selectFrom('async_completed_tasks')
        .groupBy(['task_type', 'queue'])
        .select(['task_type', 'queue', sql<string>`count(*)::text`.as('completed')]),
    )
    .selectFrom('unfinished')
    .fullJoin('records', (join) =>
      join
        .onRef('records.task_type', '=', 'unfinished.task_type')
        .onRef('records.queue', '=', 'unfinished.queue'),
    )
    .select([
      sql<string>`coalesce(unfinished.task_type, records.task_type)`.as('type'),
      sql<string>`coalesce(unfinished.queue, records.queue)`.as('queue_name'),
      'pending',
      'running',
      'due',
      'scheduled',
      'retrying',
      'dead',
      'completed',
      'oldest',
      'sliced',
      'done',
      'total',
      'with_total',
    ])
    .orderBy('type')
    .orderBy('queue_name'),
);

/**
 * Counts every task and every record by type and queue, in one read of each table. Types and queues without either
 * are absent.
 */
export async function countTasks(lane: ReadLane): Promise<TaskCounts[]> {
  const rows = await countsStatement.run(lane, {});
  return rows.map((row) => ({
    type: row.type,
    queue: row.queue_name,
    pending: Number(row.pending ?? 0),
    running: Number(row.running ?? 0),
    due: Number(row.due ?? 0),
    scheduled: Number(row.scheduled ?? 0),
    retrying: Number(row.retrying ?? 0),
    dead: Number(row.dead ?? 0),
    completed: Number(row.completed ?? 0),
    oldestDueSeconds: Number(row.oldest ?? 0),
    progress: toProgressSum(row),
  }));
}

function toProgressSum(
  row: Readonly<Record<'sliced' | 'done' | 'total' | 'with_total', string | null>>,
): ProgressSum | undefined {
  const tasks = Number(row.sliced ?? 0);
  if (tasks === 0) return undefined;
  const isWhole = Number(row.with_total) === tasks;
  return { tasks, done: Number(row.done), total: isWhole ? Number(row.total) : undefined };
}
