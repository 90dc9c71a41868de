import { sql } from 'kysely';
import type { TaskId } from '../domain/ids.ts';
import { ADMIN_SCAN, ADMIN_SCANS_MAX } from '../domain/limits.ts';
import type { AuditRecord } from './audit.ts';
import type { CompletedTask } from './completed.ts';
import { ID_AFTER_ALL } from './dead.ts';
import type { ReadLane } from './lanes.ts';
import { epochText, instantDate } from './predicates.ts';
import { given, rawStatement, untold } from './raw-statement.ts';
import { inReadTransaction } from './read-transaction.ts';
import { parameter, type Statement, type Values } from './statement.ts';

// Finished tasks and deeds, the newest first. Both are walked by id, a bounded number of rows for a page, whatever the
// filter matches.

/** A finished task in a list, without its payload and result. */
export type ListedCompletedTask = Pick<
  CompletedTask,
  'id' | 'type' | 'queue' | 'attemptCount' | 'enqueuedAt' | 'startedAt' | 'completedAt' | 'keepUntil'
>;

export interface RecordPage<Item> {
  readonly items: readonly Item[];
  /** The id to go on before; undefined at the end. */
  readonly next: string | undefined;
}

interface IdScan {
  readonly looked: string;
  readonly last_id: string | null;
  readonly id: string | null;
}

interface CompletedRow extends IdScan {
  readonly task_type: string;
  readonly queue: string;
  readonly attempt_count: number;
  readonly created_at: string;
  readonly started_at: string | null;
  readonly completed_at: string;
  readonly keep_until: string;
}

interface AuditRow extends IdScan {
  readonly at: string;
  readonly actor: string;
  readonly action: string;
  readonly subject: string | null;
  readonly detail: string;
}

const isGiven = (name: string, column: string) =>
  sql`(${given(parameter(name), 'text')} is null or r.${sql.ref(column)} = ${given(parameter(name), 'text')})`;

const before = given(parameter('beforeId'), 'bigint');
const scan = untold(sql.lit(ADMIN_SCAN));
const limit = untold(parameter('limit'));

const scanEnd = sql`scan_end as (select count(*)::text as looked, min(id)::text as last_id from looked)`;

export const completedPageStatement: Statement<CompletedRow> = rawStatement<CompletedRow>(
  (table) => sql<CompletedRow>`with looked as materialized (
    select id from ${table('async_completed_tasks')} where id < ${before} order by id desc limit ${scan}),
  ${scanEnd},
  found as (select r.* from looked join ${table('async_completed_tasks')} as r on r.id = looked.id
    where ${isGiven('type', 'task_type')} and ${isGiven('queue', 'queue')} order by r.id desc limit ${limit})
  select scan_end.*, found.id::text as id, found.task_type, found.queue, found.attempt_count,
    ${epochText(sql`found.created_at`)} as created_at, ${epochText(sql`found.started_at`)} as started_at,
    ${epochText(sql`found.completed_at`)} as completed_at, ${epochText(sql`found.keep_until`)} as keep_until
  from scan_end left join found on true order by found.id desc`,
);

export const auditPageStatement: Statement<AuditRow> = rawStatement<AuditRow>(
  (table) => sql<AuditRow>`with looked as materialized (
    select id from ${table('async_audit')} where id < ${before} order by id desc limit ${scan}),
  ${scanEnd},
  found as (select r.* from looked join ${table('async_audit')} as r on r.id = looked.id
    where ${isGiven('actor', 'actor')} and ${isGiven('action', 'action')}
      and (${isGiven('subject', 'subject')} or r.detail -> 'ids' @> to_jsonb(${given(parameter('subject'), 'text')}))
    order by r.id desc limit ${limit})
  select scan_end.*, found.id::text as id, ${epochText(sql`found.at`)} as at, found.actor, found.action, found.subject,
    found.detail::text as detail
  from scan_end left join found on true order by found.id desc`,
);

/** Records of finished tasks, of the newest tasks first. */
export async function listCompletedPage(
  lane: ReadLane,
  page: {
    readonly limit: number;
    readonly before?: string | undefined;
    readonly type?: string | undefined;
    readonly queue?: string | undefined;
  },
): Promise<RecordPage<ListedCompletedTask>> {
  const { type = null, queue = null } = page;
  return walk(lane, completedPageStatement, { type, queue }, page, toListedCompletedTask);
}

/** Deeds, newest first; a bulk deed is one with each of its tasks for a subject. */
export async function listAuditPage(
  lane: ReadLane,
  page: {
    readonly limit: number;
    readonly before?: string | undefined;
    readonly actor?: string | undefined;
    readonly action?: string | undefined;
    readonly subject?: string | undefined;
  },
): Promise<RecordPage<AuditRecord>> {
  const { actor = null, action = null, subject = null } = page;
  return walk(lane, auditPageStatement, { actor, action, subject }, page, toAuditRecord);
}

async function walk<Row extends IdScan, Item>(
  lane: ReadLane,
  statement: Statement<Row>,
  filter: Values,
  page: { readonly limit: number; readonly before?: string | undefined },
  toItem: (row: Row) => Item,
): Promise<RecordPage<Item>> {
  return inReadTransaction(lane, async (within) => {
    const items: Item[] = [];
    let beforeId = page.before ?? ID_AFTER_ALL;
    for (let scans = 0; scans < ADMIN_SCANS_MAX; scans += 1) {
      const wanted = page.limit - items.length;
      const rows = await statement.run(within, { ...filter, beforeId, limit: wanted });
      const found = rows.filter((row) => row.id !== null);
      items.push(...found.map(toItem));
      const last = found.at(-1);
      if (last !== undefined && found.length === wanted) return { items, next: String(last.id) };
      const [end] = rows;
      if (end === undefined || end.last_id === null || Number(end.looked) < ADMIN_SCAN) {
        return { items, next: undefined };
      }
      beforeId = end.last_id;
    }
    return { items, next: beforeId };
  });
}

function toListedCompletedTask(row: CompletedRow): ListedCompletedTask {
  return {
    id: String(row.id) as TaskId,
    type: row.task_type,
    queue: row.queue,
    attemptCount: row.attempt_count,
    enqueuedAt: instantDate(row.created_at),
    startedAt: row.started_at === null ? undefined : instantDate(row.started_at),
    completedAt: instantDate(row.completed_at),
    keepUntil: instantDate(row.keep_until),
  };
}

function toAuditRecord(row: AuditRow): AuditRecord {
  return {
    id: String(row.id),
    at: instantDate(row.at),
    actor: row.actor,
    action: row.action,
    subject: row.subject ?? undefined,
    detail: JSON.parse(row.detail) as Record<string, unknown>,
  };
}
