import { type Kysely, type QueryCreator, type SelectQueryBuilder, type SqlBool, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../domain/ids.ts';
import { QUEUES_OF_A_LOOK, RECENT_MS } from '../domain/limits.ts';
import type { DbInstant } from '../domain/time.ts';
import type { ReadLane } from './lanes.ts';
import {
  databaseNow,
  dbInstant,
  epochText,
  isClaimable,
  type KnownRevisions,
  knownRevisionsValue,
} from './predicates.ts';
import { parameter, type Statement, statement } from './statement.ts';

/** A task that may be claimable. Only a hint: a claim decides again on the primary. */
export interface Candidate {
  readonly id: TaskId;
  readonly queue: string;
  readonly runAt: DbInstant;
  /** What an operator has given its queue; undefined when nobody has. */
  readonly weight: number | undefined;
}

/**
 * Where a look begins in each queue: what was due before is left to the next whole look. Undefined for a queue in
 * which nothing was found: the last seconds are looked at, which is where what is new stands.
 */
export type Horizon = ReadonlyMap<string, DbInstant | undefined>;

export interface Discovery {
  readonly known: KnownRevisions;
  /** The queues this replica serves; undefined for every queue there is. */
  readonly queues: readonly string[] | undefined;
  /** Candidates of each queue. Of very many queues, each gives fewer: see `QUEUES_OF_A_LOOK`. */
  readonly limit: number;
  /** Looks only at these queues, from these moments on; undefined for a whole look. */
  readonly from?: Horizon | undefined;
}

/**
 * Reads up to `limit` candidates of each queue that is not paused, on the read lane, oldest first. Writes nothing and
 * locks nothing. An answer may be stale in both directions when the lane is a replica.
 */
export async function discover(
  lane: ReadLane,
  { known, queues, limit, from }: Discovery,
): Promise<Candidate[]> {
  const values = {
    known: knownRevisionsValue(known),
    queues: from === undefined ? queues : [...from.keys()],
    from: from === undefined ? undefined : [...from.values()].map(fromMs),
  };
  const rows = await discoverStatement(limit, reachOf(queues, from)).run(lane, values);
  return rows.map(({ id, queue, run_at, weight }) => ({
    id: id as TaskId,
    queue,
    runAt: dbInstant(run_at),
    weight: weight ?? undefined,
  }));
}

/** Candidates that one look answers at the most, of however many queues. */
export function candidatesMax(limit: number): number {
  return limit * QUEUES_OF_A_LOOK;
}

/** A moment travels as a double, which may be a microsecond off. */
const FROM_TOLERANCE_MS = 1;

function fromMs(from: DbInstant | undefined): number | null {
  return from === undefined ? null : from.dbMs - FROM_TOLERANCE_MS;
}

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
  readonly weight: number | null;
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
// settled rows are never read. So the queues are walked one by one, rather than all rows sorted.
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
//
// What operators have said about the queues comes with the candidates, so a change of theirs is known to every
// replica with its next look, at no statement more. Which queue is served first is not decided here.
function makeDiscover(limit: number, reach: Reach): Statement<CandidateRow> {
  const ofEachQueue = sql<number>`(select ${sql.lit(limit)})`;
  const ofAllQueues = sql<number>`(select ${sql.lit(candidatesMax(limit))})`;
  return statement((db) => {
    const found = db
      .selectFrom(servedQueues(db, reach).as('served'))
      .leftJoin('async_queues', 'async_queues.name', 'served.queue')
      .where('async_queues.paused_at', 'is', null)
      .innerJoinLateral(
        (from) =>
          from
            .selectFrom('async_tasks')
            .whereRef('async_tasks.queue', '=', 'served.queue')
            .$if(reach === 'from', (rest) => rest.where(sql<SqlBool>`async_tasks.run_at >= ${HORIZON}`))
            .where(isClaimable)
            .orderBy('async_tasks.run_at')
            .orderBy('async_tasks.id')
            .limit(ofEachQueue)
            .select(['async_tasks.id', 'async_tasks.queue', 'async_tasks.run_at'])
            .as('candidate'),
        (join) => join.onTrue(),
      )
      .select([
        'candidate.id',
        'candidate.queue',
        'candidate.run_at',
        'async_queues.weight',
        // The oldest of every queue come before the second of any, so that none is cut off by a hundred others.
        sql<string>`row_number() over (partition by candidate.queue order by candidate.run_at, candidate.id)`.as(
          'place',
        ),
      ]);
    return db
      .selectFrom(
        db
          .selectFrom(found.as('found'))
          .selectAll()
          .orderBy('found.place')
          .orderBy('found.run_at')
          .limit(ofAllQueues)
          .as('candidate'),
      )
      .orderBy('candidate.run_at')
      .orderBy('candidate.id')
      .select([
        sql<string>`candidate.id::text`.as('id'),
        'candidate.queue',
        epochText(sql`candidate.run_at`).as('run_at'),
        'candidate.weight',
      ]);
  });
}

const HORIZON = sql`coalesce(to_timestamp(served.from_ms / 1000), ${databaseNow} - ${sql.lit(RECENT_MS)} * interval '1 millisecond')`;

interface ServedQueue {
  readonly queue: string | null;
  readonly from_ms: number | null;
}

function servedQueues(db: Kysely<DB>, reach: Reach): SelectQueryBuilder<DB, never, ServedQueue> {
  const queues = sql`${parameter<string[]>('queues')}::text[]`;
  if (reach === 'from') {
    const from = sql`${parameter<(number | null)[]>('from')}::float8[]`;
    return db
      .selectFrom(sql<ServedQueue>`unnest(${queues}, ${from})`.as<'named'>(sql`named(queue, from_ms)`))
      .select(['named.queue', 'named.from_ms']) as never;
  }
  if (reach === 'named') {
    return db
      .selectFrom(sql<{ queue: string }>`unnest(${queues})`.as<'named'>(sql`named(queue)`))
      .select(['named.queue']) as never;
  }
  const firstQueue = (from: QueryCreator<DB>) =>
    from
      .selectFrom('async_tasks')
      .where((t) => t.not(t.ref('async_tasks.exhausted')))
      .select((t) => t.fn.min<string | null>('async_tasks.queue').as('queue'));
  return db
    .withRecursive('hop(queue)', (cte) =>
      firstQueue(cte).unionAll(
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
    .selectFrom('hop')
    .select('hop.queue') as never;
}
