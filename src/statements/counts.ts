import { sql } from 'kysely';
import type { ReadLane } from './lanes.ts';
import { databaseNow, hasAttemptsLeft, isDead, isDue, isLeased, isLive, isUnleased } from './predicates.ts';
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
  /** Waiting for a later time. */
  readonly scheduled: number;
  readonly dead: number;
  /** How long the longest-waiting due task has been due; 0 when none is. */
  readonly oldestDueSeconds: number;
}

const countsStatement = statement((db) =>
  db
    .selectFrom('async_tasks')
    .groupBy(['task_type', 'queue'])
    .orderBy('task_type')
    .orderBy('queue')
    .select((t) => {
      const isDueNow = t.and([isDue(t), hasAttemptsLeft(t), isUnleased(t)]);
      const count = t.fn.countAll();
      return [
        'task_type',
        'queue',
        sql<string>`(${count} filter (where ${isLive(t)}))::text`.as('pending'),
        sql<string>`(${count} filter (where ${isLeased(t)}))::text`.as('running'),
        sql<string>`(${count} filter (where ${isDueNow}))::text`.as('due'),
        sql<string>`(${count} filter (where ${t.and([t.not(isDue(t)), hasAttemptsLeft(t), isUnleased(t)])}))::text`.as(
          'scheduled',
        ),
        sql<string>`(${count} filter (where ${isDead(t)}))::text`.as('dead'),
        sql<string>`coalesce(extract(epoch from ${databaseNow} - min(run_at) filter (where ${isDueNow})), 0)::text`.as(
          'oldest',
        ),
      ];
    }),
);

/** Counts every task by type and queue, in one read of the table. Types and queues without a row are absent. */
export async function countTasks(lane: ReadLane): Promise<TaskCounts[]> {
  const rows = await countsStatement.run(lane, {});
  return rows.map((row) => ({
    type: row.task_type,
    queue: row.queue,
    pending: Number(row.pending),
    running: Number(row.running),
    due: Number(row.due),
    scheduled: Number(row.scheduled),
    dead: Number(row.dead),
    oldestDueSeconds: Number(row.oldest),
  }));
}
