import { type SqlBool, sql } from 'kysely';
import type { TaskId } from '../domain/ids.ts';
import type { DbInstant } from '../domain/time.ts';
import type { ReadLane } from './lanes.ts';
import { dbInstant, epochText, isClaimable, type KnownRevisions, knownRevisionsValue } from './predicates.ts';
import { parameter, type Statement, statement } from './statement.ts';

/** A task that may be claimable. Only a hint: a claim decides again on the primary. */
export interface Candidate {
  readonly id: TaskId;
  readonly queue: string;
  readonly runAt: DbInstant;
}

/** Where a look begins in each queue: what was due before is left to the next whole look. */
export type Horizon = ReadonlyMap<string, DbInstant>;

export interface Discovery {
  readonly known: KnownRevisions;
  /** The queues this replica serves; undefined for every queue there is. */
  readonly queues: readonly string[] | undefined;
  readonly limit: number;
  /** Looks only at these queues, from these moments on; undefined for a whole look. */
  readonly from?: Horizon | undefined;
}

/**
 * Reads up to `limit` candidates on the read lane, oldest first. Writes nothing and locks nothing.
 * An answer may be stale in both directions when the lane is a replica.
 */
export async function discover(
  lane: ReadLane,
  { known, queues, limit, from }: Discovery,
): Promise<Candidate[]> {
  const values = {
    known: knownRevisionsValue(known),
    queues: from === undefined ? queues : [...from.keys()],
    from: from === undefined ? undefined : [...from.values()].map(({ dbMs }) => dbMs - FROM_TOLERANCE_MS),
  };
  const rows = await discoverStatement(limit, reachOf(queues, from)).run(lane, values);
  return rows.map(({ id, queue, run_at }) => ({ id: id as TaskId, queue, runAt: dbInstant(run_at) }));
}

/** A moment travels as a double, which may be a microsecond off. */
const FROM_TOLERANCE_MS = 1;

/** Every queue there is, the named ones, or the named ones from a moment on. */
export const REACHES = ['every', 'named', 'from'] as const;
export type Reach = (typeof REACHES)[number];

function reachOf(queues: Discovery['queues'], from: Horizon | undefined): Reach {
  if (from !== undefined) return 'from';
  return queues === undefined ? 'every' : 'named';
}

interface CandidateRow {
  readonly id: string;
  readonly queue: string;
  readonly run_at: string;
}

/** One statement for a limit: as a parameter it would be planned badly, or each time. */
export function discoverStatement(limit: number, reach: Reach): Statement<CandidateRow> {
  const key = `${limit} ${reach}`;
  let made = statements.get(key);
  if (made === undefined) {
    made = makeDiscover(limit, reach);
    statements.set(key, made);
  }
  return made;
}

const statements = new Map<string, Statement<CandidateRow>>();

// The index is ordered by (queue, run_at): each queue's oldest are its first entries, and future, dead and
// settled rows are never read. So the queues are walked one by one and merged, rather than all rows sorted.
// "Every queue" finds the names by hopping from one to the next in the same index, a probe per queue.
//
// Without statistics (a fresh table, a first burst) the planner expects a handful of due rows, fewer than the LIMIT:
// told the number, it reads every due row of the burst and sorts. So the LIMIT is a sub-select, whose value it does
// not see: it plans for the first tenth. The queue is compared for equality, not as a row with run_at, for such a
// comparison does not end the scan at the first row that is not due before PostgreSQL 18.
// Pinned by test/statements/a-burst-meets-no-statistics.test.ts.
//
// While a long transaction holds back vacuum, the entries of all tasks settled since then stand at the head of the
// index, and each look would walk them: hence a look may begin at the last one found (`from`), when there is plenty.
// Pinned by test/hazards/7-a-full-table-slows-the-claim.test.ts.
function makeDiscover(limit: number, reach: Reach): Statement<CandidateRow> {
  const rows = sql<number>`(select ${sql.lit(limit)})`;
  return statement((db) => {
    const namedQueues = sql<{ queue: string }>`unnest(${parameter<string[]>('queues')}::text[])`.as<'served'>(
      sql`served(queue)`,
    );
    const fromThere = sql<{
      queue: string;
      from_ms: number;
    }>`unnest(${parameter<string[]>('queues')}::text[], ${parameter<number[]>('from')}::float8[])`.as<'served'>(
      sql`served(queue, from_ms)`,
    );
    const begin = sql<SqlBool>`async_tasks.run_at >= to_timestamp(served.from_ms / 1000)`;
    const served =
      reach === 'every'
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
        : db.selectFrom(reach === 'from' ? fromThere : namedQueues);
    return served
      .innerJoinLateral(
        (from) =>
          from
            .selectFrom('async_tasks')
            .whereRef('async_tasks.queue', '=', 'served.queue')
            .$if(reach === 'from', (rest) => rest.where(begin))
            .where(isClaimable)
            .orderBy('async_tasks.run_at')
            .orderBy('async_tasks.id')
            .limit(rows)
            .select(['async_tasks.id', 'async_tasks.queue', 'async_tasks.run_at'])
            .as('candidate'),
        (join) => join.onTrue(),
      )
      .orderBy('candidate.run_at')
      .orderBy('candidate.id')
      .limit(rows)
      .select([
        sql<string>`candidate.id::text`.as('id'),
        'candidate.queue',
        epochText(sql`candidate.run_at`).as('run_at'),
      ]);
  });
}
