import { type SqlBool, sql } from 'kysely';
import type { TaskId } from '../domain/ids.ts';
import type { ReadLane } from './lanes.ts';
import { databaseNow, isClaimable, type KnownRevisions, knownRevisionsValue } from './predicates.ts';
import { parameter, type Statement, statement } from './statement.ts';

/** The longest-due claimable tasks, oldest first. Only ids: a claim decides again on the primary. */
export interface Discovery {
  readonly known: KnownRevisions;
  /** The queues this replica serves; undefined for every queue there is. */
  readonly queues: readonly string[] | undefined;
  readonly limit: number;
}

/**
 * Reads up to `limit` candidate ids on the read lane. Writes nothing and locks nothing.
 * An answer may be stale in both directions when the lane is a replica.
 */
export async function discover(lane: ReadLane, { known, queues, limit }: Discovery): Promise<TaskId[]> {
  const values = { known: knownRevisionsValue(known), queues };
  const rows = await discoverStatement(limit, queues === undefined).run(lane, values);
  return rows.map((row) => row.id as TaskId);
}

/** One statement for a limit: as a parameter it would be planned badly, or each time. */
export function discoverStatement(limit: number, everyQueue: boolean): Statement<{ id: string }> {
  const key = `${limit} ${everyQueue}`;
  let made = statements.get(key);
  if (made === undefined) {
    made = makeDiscover(limit, everyQueue);
    statements.set(key, made);
  }
  return made;
}

const statements = new Map<string, Statement<{ id: string }>>();

// The index is ordered by (queue, run_at): each queue's oldest are its first entries, and future, dead and
// settled rows are never read. So the queues are walked one by one and merged, rather than all rows sorted.
// "Every queue" finds the names by hopping from one to the next in the same index, a probe per queue.
//
// Without statistics (a fresh table, a first burst) the planner expects one row in two hundred to be of a queue,
// fewer due rows than the LIMIT therefore, and then it reads every due row of the burst and sorts. So the queue is
// given as a range from (queue) to (queue, now()), which is expected to hold far more rows, and the LIMIT as a
// sub-select, whose value the planner does not see: it plans for the first tenth of the rows.
// Pinned by test/statements/a-burst-meets-no-statistics.test.ts.
function makeDiscover(limit: number, everyQueue: boolean): Statement<{ id: string }> {
  const rows = sql<number>`(select ${sql.lit(limit)})`;
  return statement((db) => {
    const namedQueues = sql<{ queue: string }>`unnest(${parameter<string[]>('queues')}::text[])`.as<'served'>(
      sql`served(queue)`,
    );
    const served = everyQueue
      ? db
          .withRecursive('hop(queue)', (cte) =>
            cte
              .selectFrom('async_tasks')
              .where((t) => t.not(t.ref('async_tasks.exhausted')))
              .select((t) => t.fn.min<string | null>('async_tasks.queue').as('queue'))
              .unionAll(
                cte
                  .selectFrom('hop')
                  .where('hop.queue', 'is not', null)
                  .select((h) =>
                    h
                      .selectFrom('async_tasks')
                      .where((t) => t.not(t.ref('async_tasks.exhausted')))
                      .whereRef('async_tasks.queue', '>', 'hop.queue')
                      .select((t) => t.fn.min<string | null>('async_tasks.queue').as('queue'))
                      .as('queue'),
                  ),
              ),
          )
          .selectFrom('hop as served')
      : db.selectFrom(namedQueues);
    return served
      .innerJoinLateral(
        (from) =>
          from
            .selectFrom('async_tasks')
            .whereRef('async_tasks.queue', '>=', 'served.queue')
            .where(sql<SqlBool>`(async_tasks.queue, async_tasks.run_at) <= (served.queue, ${databaseNow})`)
            .where(isClaimable)
            .orderBy('async_tasks.queue')
            .orderBy('async_tasks.run_at')
            .orderBy('async_tasks.id')
            .limit(rows)
            .select(['async_tasks.id', 'async_tasks.run_at'])
            .as('candidate'),
        (join) => join.onTrue(),
      )
      .orderBy('candidate.run_at')
      .orderBy('candidate.id')
      .limit(rows)
      .select(sql<string>`candidate.id::text`.as('id'));
  });
}
