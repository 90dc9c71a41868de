import { sql } from 'kysely';
import type { CheckedFilter } from '../domain/dead-letter-filter.ts';
import type { TaskId } from '../domain/ids.ts';
import {
  ADMIN_COUNT_MAX,
  ADMIN_PAYLOAD_SHOWN_BYTES_MAX,
  ADMIN_SCAN,
  ADMIN_SCANS_MAX,
  GAUGE_GROUPS_MAX,
} from '../domain/limits.ts';
import type { DeadLetter } from './dead.ts';
import { filterValues, matchesFilter } from './dead-filter.ts';
import type { ReadLane } from './lanes.ts';
import { epochText, instantDate, isDead, isUnleased } from './predicates.ts';
import { fromMicros, given, microsOf, rawStatement, type TableOf, taskRow, untold } from './raw-statement.ts';
import { inReadTransaction } from './read-transaction.ts';
import { parameter, type Statement } from './statement.ts';

// Dead letters, page by page, of any number of them: those that became due last come first. The pairs of type and queue
// are found with one probe of the index each, and each is walked from its newest row on; so a queue with three dead
// letters is listed at once beside another with ten million. The order is that of run_at, which a claim does not change,
// and of the id, both exact: no row stands on two pages.

/** Behind which dead letter a page begins. */
export interface DeadPlace {
  readonly runAtMicros: string;
  readonly id: string;
}

/** A dead letter in a list: without its payload when that is long. */
export type ListedDeadLetter = Omit<DeadLetter, 'payloadText' | 'errors'> & {
  readonly payloadText: string | undefined;
  readonly payloadRevision: number;
};

export interface DeadListPage {
  readonly tasks: readonly ListedDeadLetter[];
  /** Undefined at the end. A page whose filter matches rarely may be short and have a next one. */
  readonly next: DeadPlace | undefined;
}

const type = given(parameter('type'), 'text');
const queue = given(parameter('queue'), 'text');
const groupsMax = sql.lit(GAUGE_GROUPS_MAX);

/** Types and queues of rows that are out of attempts, each found from the one before; of a type, from its first on. */
export const deadGroups = (table: TableOf) => sql`recursive dead_group(task_type, queue, place) as (
    (select task_type, queue, 1 from ${table('async_tasks')}
      where exhausted and task_type >= coalesce(${type}, '') order by task_type, queue limit 1)
    union all
    select next.task_type, next.queue, dead_group.place + 1
      from dead_group cross join lateral (
        select t.task_type, t.queue from ${table('async_tasks')} as t
          where t.exhausted and (t.task_type, t.queue) > (dead_group.task_type, dead_group.queue)
          order by t.task_type, t.queue limit 1) as next
      where dead_group.place < ${groupsMax} and (${type} is null or next.task_type = ${type}))`;

const groupIsAsked = sql`(${type} is null or dead_group.task_type = ${type})
  and (${queue} is null or dead_group.queue = ${queue})`;

/** Rows out of attempts behind a place, the newest first; of each type and queue no more than all of them may need. */
export const exhaustedWalk = (table: TableOf) => sql`(
    select walked.id, walked.run_at
      from dead_group cross join lateral (
        select async_tasks.id, async_tasks.run_at from ${table('async_tasks')} as async_tasks
          where async_tasks.exhausted
            and async_tasks.task_type = dead_group.task_type and async_tasks.queue = dead_group.queue
            and (async_tasks.run_at, async_tasks.id)
              < (${fromMicros(parameter('beforeMicros'))}, ${given(parameter('beforeId'), 'bigint')})
          order by async_tasks.run_at desc, async_tasks.id desc
          limit ${untold(parameter('scan'))}) as walked
      where ${groupIsAsked}
      order by walked.run_at desc, walked.id desc
      limit ${untold(parameter('scan'))})`;

/** What a statement has looked at, and behind which row the next one goes on. */
export interface ScanEnd {
  readonly looked: string;
  readonly last_id: string | null;
  readonly last_micros: string | null;
}

/** In the order of the walk, `place` is what counts the rows of `looked`. */
export const scanEnd = sql`scan_end as (
  select count(*)::text as looked,
    (array_agg(id::text order by place desc))[1] as last_id,
    (array_agg(${microsOf(sql`run_at`)} order by place desc))[1] as last_micros
  from looked)`;

interface DeadRow extends ScanEnd {
  readonly id: string | null;
  readonly task_type: string;
  readonly queue: string;
  readonly payload: string | null;
  readonly payload_revision: number;
  readonly attempt_count: number;
  readonly max_attempts: number;
  readonly last_error: string | null;
  readonly created_at: string;
  readonly last_attempted_at: string | null;
  readonly run_at_micros: string;
}

const shownBytes = sql.lit(ADMIN_PAYLOAD_SHOWN_BYTES_MAX);

/** Of one that is too long nothing: cut JSON is none, and what is secret in it could not be found. */
export const shownPayload = sql`case when pg_column_size(async_tasks.payload) <= ${shownBytes}
      and octet_length(async_tasks.payload::text) <= ${shownBytes} then async_tasks.payload::text end`;

export const deadPageStatement: Statement<DeadRow> = rawStatement<DeadRow>(
  (table) => sql`with ${deadGroups(table)},
  looked as materialized (
    select walked.id, walked.run_at, row_number() over (order by walked.run_at desc, walked.id desc) as place
    from ${exhaustedWalk(table)} as walked),
  ${scanEnd},
  found as (
    select looked.id, looked.place from looked
      join ${table('async_tasks')} as async_tasks on async_tasks.id = looked.id
      where ${isDead(taskRow)} and ${matchesFilter(taskRow)}
      order by looked.place limit ${untold(parameter('limit'))} offset ${given(parameter('skip'), 'bigint')})
  select scan_end.*, async_tasks.id::text as id, async_tasks.task_type, async_tasks.queue,
    ${shownPayload} as payload,
    async_tasks.payload_revision, async_tasks.attempt_count, async_tasks.max_attempts, async_tasks.last_error,
    ${epochText(taskRow.ref('async_tasks.created_at'))} as created_at,
    ${epochText(taskRow.ref('async_tasks.last_attempted_at'))} as last_attempted_at,
    ${microsOf(sql`async_tasks.run_at`)} as run_at_micros
  from scan_end
    left join found on true
    left join ${table('async_tasks')} as async_tasks on async_tasks.id = found.id
  order by found.place`,
);

export const deadCountStatement: Statement<{ counted: string }> = rawStatement<{ counted: string }>(
  (table) => sql`with ${deadGroups(table)}
  select count(*)::text as counted from (
    select 1 from dead_group cross join lateral (
      select 1 from ${table('async_tasks')} as async_tasks
        where async_tasks.exhausted
          and async_tasks.task_type = dead_group.task_type and async_tasks.queue = dead_group.queue
          and ${isUnleased(taskRow)}
        order by async_tasks.run_at desc
        limit ${untold(sql.lit(ADMIN_COUNT_MAX + 1))}) as each_of_them
      where ${groupIsAsked}
      limit ${untold(sql.lit(ADMIN_COUNT_MAX + 1))}) as counted`,
);

/** Before everything there is: microseconds that a timestamptz holds, and more than an id can be. */
export const NEWEST: DeadPlace = { runAtMicros: '9000000000000000', id: '9223372036854775807' };

/** Dead letters that the filter matches, from behind `after` on. */
export async function listDeadPage(
  lane: ReadLane,
  page: {
    readonly limit: number;
    readonly filter: CheckedFilter;
    readonly after?: DeadPlace | undefined;
    /** For pages by number: so many are looked through first, in one statement. */
    readonly skip?: number;
  },
): Promise<DeadListPage> {
  const { filter, limit, skip = 0 } = page;
  const { type, queue, ...narrower } = filter;
  // Without a filter beyond the groups nearly every row matches: a few may be running for the last time.
  const isNarrow = Object.values(narrower).some((part) => part !== null);
  const scan = isNarrow ? ADMIN_SCAN : skip === 0 ? limit : skip + limit + ADMIN_SCAN;
  return inReadTransaction(lane, async (within) => {
    const tasks: ListedDeadLetter[] = [];
    let place = page.after ?? NEWEST;
    for (let scans = 0; scans < (skip === 0 ? ADMIN_SCANS_MAX : 1); scans += 1) {
      const wanted = limit - tasks.length;
      const rows = await deadPageStatement.run(within, {
        ...filterValues(filter),
        beforeMicros: place.runAtMicros,
        beforeId: place.id,
        scan,
        skip,
        limit: wanted,
      });
      const [end] = rows;
      const found = rows.filter((row) => row.id !== null);
      tasks.push(...found.map(toListedDeadLetter));
      const last = found.at(-1);
      if (last !== undefined && found.length === wanted) {
        return { tasks, next: { runAtMicros: last.run_at_micros, id: String(last.id) } };
      }
      if (end === undefined || end.last_id === null || Number(end.looked) < scan)
        return { tasks, next: undefined };
      place = { runAtMicros: String(end.last_micros), id: end.last_id };
    }
    return { tasks, next: place };
  });
}

/** How many dead letters a queue has, up to a bound. */
export async function countDead(
  lane: ReadLane,
  queue: string,
): Promise<{ readonly count: number; readonly isAtLeast: boolean }> {
  return inReadTransaction(lane, async (within) => {
    const [row] = await deadCountStatement.run(within, { queue, type: null });
    const counted = Number(row?.counted ?? 0);
    return { count: Math.min(counted, ADMIN_COUNT_MAX), isAtLeast: counted > ADMIN_COUNT_MAX };
  });
}

function toListedDeadLetter(row: DeadRow): ListedDeadLetter {
  return {
    id: String(row.id) as TaskId,
    type: row.task_type,
    queue: row.queue,
    payloadText: row.payload ?? undefined,
    payloadRevision: row.payload_revision,
    attemptCount: row.attempt_count,
    maxAttempts: row.max_attempts,
    lastError: row.last_error ?? undefined,
    enqueuedAt: instantDate(row.created_at),
    lastAttemptedAt: row.last_attempted_at === null ? undefined : instantDate(row.last_attempted_at),
  };
}
