import { sql } from 'kysely';
import type { TaskId } from '../domain/ids.ts';
import { ADMIN_QUEUES_OF_A_PAGE, ADMIN_SCAN, ADMIN_SCANS_MAX } from '../domain/limits.ts';
import { decodeProgress, type SliceProgress } from '../domain/slice.ts';
import { deadGroups, exhaustedWalk, NEWEST, type ScanEnd, scanEnd, shownPayload } from './dead-pages.ts';
import { type TaskState, taskState } from './find-task.ts';
import type { ReadLane } from './lanes.ts';
import {
  databaseNow,
  epochText,
  instantDate,
  isDead,
  isLeased,
  isRetrying,
  isScheduled,
  isWaiting,
} from './predicates.ts';
import { fromMicros, given, microsOf, rawStatement, type TableOf, taskRow, untold } from './raw-statement.ts';
import { inReadTransaction } from './read-transaction.ts';
import { parameter, type Statement, type Values } from './statement.ts';

// Tasks that are not done, page by page, of a table of any size. No index is made for it, since each would cost every
// enqueue: the pages walk those there are. A walk has a few stretches (the due tasks of a queue, its delayed ones, those
// out of attempts), each in the order of its index; one statement looks through a bounded number of rows, and one page
// is a bounded number of statements. So a page whose filter matches rarely may be short, and still have a next one.

/** A task in a list. */
export interface TaskSummary {
  readonly id: TaskId;
  readonly type: string;
  readonly queue: string;
  readonly state: TaskState;
  readonly attemptCount: number;
  readonly maxAttempts: number;
  readonly enqueuedAt: Date;
  readonly runAt: Date;
  readonly lastAttemptedAt: Date | undefined;
  /** Undefined when no worker holds it. */
  readonly leaseExpiresAt: Date | undefined;
  readonly lastError: string | undefined;
  readonly progress: SliceProgress | undefined;
  /** Undefined when it is longer than a list shows. */
  readonly payloadText: string | undefined;
  readonly payloadRevision: number;
}

export interface TaskFilter {
  readonly state?: TaskState | undefined;
  readonly type?: string | undefined;
  readonly queue?: string | undefined;
}

/** `newest`: all of them by id, when neither a state nor a queue says where to look. */
export const STRETCHES = ['due', 'delayed', 'exhausted', 'newest'] as const;
type Stretch = (typeof STRETCHES)[number];

/** Behind which row a page begins. */
export interface TaskPlace {
  readonly stretch: Stretch;
  /** Of `due` and `delayed`: the queue that the walk has come to; else empty. */
  readonly queue: string;
  readonly runAtMicros: string;
  readonly id: string;
}

export interface TaskListPage {
  readonly tasks: readonly TaskSummary[];
  /** Undefined at the end. */
  readonly next: TaskPlace | undefined;
}

interface TaskRow extends ScanEnd {
  readonly id: string | null;
  readonly task_type: string;
  readonly queue: string;
  readonly state: TaskState;
  readonly attempt_count: number;
  readonly max_attempts: number;
  readonly created_at: string;
  readonly run_at: string;
  readonly run_at_micros: string;
  readonly last_attempted_at: string | null;
  readonly lease_expires_at: string | null;
  readonly last_error: string | null;
  readonly progress: string | null;
  readonly payload: string | null;
  readonly payload_revision: number;
}

const state = given(parameter('state'), 'text');
const type = given(parameter('type'), 'text');
const queue = given(parameter('queue'), 'text');

const isAsked = sql`((${type} is null or async_tasks.task_type = ${type})
  and (${queue} is null or async_tasks.queue = ${queue})
  and case ${state} when 'waiting' then ${isWaiting(taskRow)} when 'running' then ${isLeased(taskRow)}
    when 'scheduled' then ${isScheduled(taskRow)} when 'retrying' then ${isRetrying(taskRow)}
    when 'dead' then ${isDead(taskRow)} else true end) is true`;

/** `looked` are the rows of the walk with their places; of these, those that are asked for. */
const askedOfLooked = (table: TableOf) => sql`found as (
    select looked.id, looked.place from looked
      join ${table('async_tasks')} as async_tasks on async_tasks.id = looked.id
      where ${isAsked}
      order by looked.place limit ${untold(parameter('limit'))})
  select scan_end.*, async_tasks.id::text as id, async_tasks.task_type, async_tasks.queue,
    ${taskState(taskRow)} as state, async_tasks.attempt_count, async_tasks.max_attempts,
    ${epochText(taskRow.ref('async_tasks.created_at'))} as created_at,
    ${epochText(taskRow.ref('async_tasks.run_at'))} as run_at,
    ${microsOf(sql`async_tasks.run_at`)} as run_at_micros,
    ${epochText(taskRow.ref('async_tasks.last_attempted_at'))} as last_attempted_at,
    case when ${isLeased(taskRow)} then ${epochText(taskRow.ref('async_tasks.lease_expires_at'))} end as lease_expires_at,
    async_tasks.last_error, async_tasks.progress::text as progress,
    ${shownPayload} as payload, async_tasks.payload_revision
  from scan_end
    left join found on true
    left join ${table('async_tasks')} as async_tasks on async_tasks.id = found.id
  order by found.place`;

const scan = sql.lit(ADMIN_SCAN);

const liveStatement = (stretch: 'due' | 'delayed') =>
  rawStatement<TaskRow>(
    (table) => sql<TaskRow>`with walked as (
    select async_tasks.id, async_tasks.run_at from ${table('async_tasks')} as async_tasks
      where async_tasks.queue = ${given(parameter('walkQueue'), 'text')} and not async_tasks.exhausted
        and async_tasks.run_at ${sql.raw(stretch === 'due' ? '<=' : '>')} ${databaseNow}
        and (async_tasks.run_at, async_tasks.id)
          > (${fromMicros(parameter('micros'))}, ${given(parameter('id'), 'bigint')})
      order by async_tasks.run_at, async_tasks.id limit ${untold(scan)}),
  looked as materialized (select id, run_at, row_number() over (order by run_at, id) as place from walked),
  ${scanEnd}, ${askedOfLooked(table)}`,
  );

const exhaustedStatement = rawStatement<TaskRow>(
  (table) => sql<TaskRow>`with ${deadGroups(table)},
  looked as materialized (
    select walked.id, walked.run_at, row_number() over (order by walked.run_at desc, walked.id desc) as place
    from ${exhaustedWalk(table)} as walked),
  ${scanEnd}, ${askedOfLooked(table)}`,
);

const newestStatement = rawStatement<TaskRow>(
  (table) => sql<TaskRow>`with walked as (
    select async_tasks.id, async_tasks.run_at from ${table('async_tasks')} as async_tasks
      where async_tasks.id < ${given(parameter('id'), 'bigint')}
      order by async_tasks.id desc limit ${untold(scan)}),
  looked as materialized (select id, run_at, row_number() over (order by id desc) as place from walked),
  ${scanEnd}, ${askedOfLooked(table)}`,
);

/** For the tests of their plans, and `runStretch`. */
export const STRETCH_STATEMENTS: Readonly<Record<Stretch, Statement<TaskRow>>> = {
  due: liveStatement('due'),
  delayed: liveStatement('delayed'),
  exhausted: exhaustedStatement,
  newest: newestStatement,
};

export const liveQueuesStatement: Statement<{ queue: string }> = rawStatement<{ queue: string }>(
  (table) => sql<{ queue: string }>`with recursive live_queue(queue, place) as (
    (select min(queue), 1 from ${table('async_tasks')} where not exhausted and queue >= ${given(parameter('fromQueue'), 'text')})
    union all
    select (select min(t.queue) from ${table('async_tasks')} as t where not t.exhausted and t.queue > live_queue.queue),
      live_queue.place + 1
      from live_queue where live_queue.queue is not null and live_queue.place <= ${sql.lit(ADMIN_QUEUES_OF_A_PAGE)})
  select queue from live_queue where queue is not null order by place`,
);

const OLDEST = { runAtMicros: '-62135596800000000', id: '0' };

/** Tasks that the filter matches, from behind `after` on: of each queue in the order in which they become due. */
export async function listTaskPage(
  lane: ReadLane,
  page: { readonly limit: number; readonly filter: TaskFilter; readonly after?: TaskPlace | undefined },
): Promise<TaskListPage> {
  return inReadTransaction(lane, async (within) => {
    const walk = new Walk(within, page.filter, page.limit);
    const stretches = stretchesOf(page.filter);
    const from = page.after === undefined ? 0 : Math.max(stretches.indexOf(page.after.stretch), 0);
    for (const stretch of stretches.slice(from)) {
      const after = page.after?.stretch === stretch ? page.after : undefined;
      const next =
        stretch === 'due' || stretch === 'delayed'
          ? await walk.queues(stretch, after)
          : await walk.one(stretch, '', after ?? { ...NEWEST });
      if (next !== undefined) return { tasks: walk.tasks, next };
    }
    return { tasks: walk.tasks, next: undefined };
  });
}

function stretchesOf({ state, queue }: TaskFilter): readonly Stretch[] {
  switch (state) {
    case 'waiting':
      return ['due'];
    case 'scheduled':
    case 'retrying':
      return ['delayed'];
    case 'running':
      return ['due', 'exhausted'];
    case 'dead':
      return ['exhausted'];
    default:
      return queue === undefined ? ['newest'] : ['due', 'delayed', 'exhausted'];
  }
}

/** One page in the making: each of its methods answers the place to go on at when the page ends there. */
class Walk {
  readonly #lane: ReadLane;
  readonly #values: Values;
  readonly #filter: TaskFilter;
  readonly #limit: number;
  #scans = 0;
  readonly tasks: TaskSummary[] = [];

  constructor(lane: ReadLane, filter: TaskFilter, limit: number) {
    this.#lane = lane;
    this.#filter = filter;
    this.#limit = limit;
    const { state = null, type = null, queue = null } = filter;
    this.#values = { state, type, queue };
  }

  async queues(stretch: 'due' | 'delayed', after: TaskPlace | undefined): Promise<TaskPlace | undefined> {
    const { queue } = this.#filter;
    const found =
      queue === undefined
        ? await liveQueuesStatement.run(this.#lane, { fromQueue: after?.queue ?? '' })
        : [{ queue }];
    for (const [position, each] of found.entries()) {
      // One more than a page walks through: it is where the next page begins.
      if (position === ADMIN_QUEUES_OF_A_PAGE) return { stretch, queue: each.queue, ...OLDEST };
      const from = after?.queue === each.queue ? after : OLDEST;
      const next = await this.one(stretch, each.queue, from);
      if (next !== undefined) return next;
    }
    return undefined;
  }

  async one(
    stretch: Stretch,
    queue: string,
    from: { readonly runAtMicros: string; readonly id: string },
  ): Promise<TaskPlace | undefined> {
    for (let place = from; ; ) {
      if (this.#scans >= ADMIN_SCANS_MAX) return { stretch, queue, ...place };
      const wanted = this.#limit - this.tasks.length;
      const rows = await STRETCH_STATEMENTS[stretch].run(this.#lane, {
        ...this.#values,
        walkQueue: queue,
        micros: place.runAtMicros,
        id: place.id,
        beforeMicros: place.runAtMicros,
        beforeId: place.id,
        scan: ADMIN_SCAN,
        limit: wanted,
      });
      const found = rows.filter((row) => row.id !== null);
      this.tasks.push(...found.map(toSummary));
      const last = found.at(-1);
      if (last !== undefined && found.length === wanted) {
        return { stretch, queue, runAtMicros: last.run_at_micros, id: String(last.id) };
      }
      const [end] = rows;
      if (end === undefined || end.last_id === null || Number(end.looked) < ADMIN_SCAN) return undefined;
      // Only a statement that looked through all it may counts: an empty queue costs next to nothing.
      this.#scans += 1;
      place = { runAtMicros: String(end.last_micros), id: end.last_id };
    }
  }
}

function toSummary(row: TaskRow): TaskSummary {
  const { last_attempted_at: attempted, lease_expires_at: leaseEnd } = row;
  return {
    id: String(row.id) as TaskId,
    type: row.task_type,
    queue: row.queue,
    state: row.state,
    attemptCount: row.attempt_count,
    maxAttempts: row.max_attempts,
    enqueuedAt: instantDate(row.created_at),
    runAt: instantDate(row.run_at),
    lastAttemptedAt: attempted === null ? undefined : instantDate(attempted),
    leaseExpiresAt: leaseEnd === null ? undefined : instantDate(leaseEnd),
    lastError: row.last_error ?? undefined,
    progress: decodeProgress(row.progress),
    payloadText: row.payload ?? undefined,
    payloadRevision: row.payload_revision,
  };
}
