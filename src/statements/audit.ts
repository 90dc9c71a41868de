import { type SqlBool, sql } from 'kysely';
import { AUDIT_RETENTION_MS, PRUNE_BATCH } from '../domain/limits.ts';
import type { ReadLane, WriteLane } from './lanes.ts';
import { databaseNow, epochText } from './predicates.ts';
import { parameter, statement } from './statement.ts';

/** One deed of a person, or of a program for one. */
export interface AuditEntry {
  /** Who: `'cli:anna'`. */
  readonly actor: string;
  readonly action:
    | 'dead.replay'
    | 'dead.drop'
    | 'queue.pause'
    | 'queue.resume'
    | 'queue.weight'
    | 'cron.run'
    | 'task.enqueue';
  /** The task's id, the queue's or the entry's name; undefined for many at once. */
  readonly subject?: string | undefined;
  /** Never a payload: it may hold secrets. */
  readonly detail?: Readonly<Record<string, unknown>> | undefined;
}

const recordStatement = statement((db) =>
  db
    .insertInto('async_audit')
    .values({
      actor: parameter<string>('actor'),
      action: parameter<string>('action'),
      subject: parameter<string | null>('subject'),
      detail: sql<string>`${parameter<string>('detail')}::text::jsonb`,
    })
    .returning(sql<string>`id::text`.as('id')),
);

/** Writes who did what; within the transaction that does it, so that neither exists without the other. */
export async function recordAudit(lane: WriteLane, entry: AuditEntry): Promise<void> {
  const { actor, action, subject = null, detail = {} } = entry;
  await recordStatement.run(lane, { actor, action, subject, detail: JSON.stringify(detail) });
}

/** A deed as it was written down. */
export interface AuditRecord {
  /** Grows with time; text, as it is a bigint. */
  readonly id: string;
  readonly at: Date;
  readonly actor: string;
  readonly action: string;
  readonly subject: string | undefined;
  readonly detail: Readonly<Record<string, unknown>>;
}

export interface AuditPage {
  readonly limit: number;
  /** Only those with a smaller id: the next page. */
  readonly before?: string | undefined;
  readonly actor?: string | undefined;
  readonly action?: string | undefined;
  /** A bulk deed is one with each of its tasks. */
  readonly subject?: string | undefined;
}

const given = (name: string) => sql<string | null>`${parameter<string | null>(name)}::text`;

const listStatement = statement((db) =>
  db
    .selectFrom('async_audit')
    .where(sql<SqlBool>`(${given('before')} is null or id < ${given('before')}::bigint)`)
    .where(sql<SqlBool>`(${given('actor')} is null or actor = ${given('actor')})`)
    .where(sql<SqlBool>`(${given('action')} is null or action = ${given('action')})`)
    .where(
      sql<SqlBool>`(${given('subject')} is null or subject = ${given('subject')}
        or detail -> 'ids' @> to_jsonb(${given('subject')}))`,
    )
    .orderBy('async_audit.id', 'desc')
    .limit(parameter<number>('limit'))
    .select((a) => [
      sql<string>`id::text`.as('id'),
      epochText(a.ref('at')).as('at'),
      'actor',
      'action',
      'subject',
      sql<string>`detail::text`.as('detail'),
    ]),
);

/** Deeds, newest first. */
export async function listAudit(lane: ReadLane, page: AuditPage): Promise<AuditRecord[]> {
  const { limit, before = null, actor = null, action = null, subject = null } = page;
  const rows = await listStatement.run(lane, { limit, before, actor, action, subject });
  return rows.map((row) => ({
    id: row.id,
    at: new Date(Number(row.at) * 1_000),
    actor: row.actor,
    action: row.action,
    subject: row.subject ?? undefined,
    detail: JSON.parse(row.detail) as Record<string, unknown>,
  }));
}

const pruneStatement = statement((db) =>
  db
    .with(
      (cte) => cte('old').materialized(),
      (cte) =>
        cte
          .selectFrom('async_audit')
          .where(
            'at',
            '<',
            sql<Date>`${databaseNow} - ${sql.lit(AUDIT_RETENTION_MS)} * interval '1 millisecond'`,
          )
          .orderBy('id')
          .limit(sql.lit(PRUNE_BATCH))
          .forUpdate()
          .skipLocked()
          .select('id'),
    )
    .deleteFrom('async_audit')
    .using('old')
    .whereRef('async_audit.id', '=', 'old.id')
    .returning(sql<string>`async_audit.id::text`.as('id')),
);

/** Deletes up to a thousand deeds that are a year old, and answers how many; fewer than that were the last. */
export async function pruneAudit(lane: WriteLane): Promise<number> {
  return (await pruneStatement.run(lane, {})).length;
}
