import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../../src/domain/ids.ts';
import { insertRows, type RowOptions } from './rows.ts';
import { TEST_SCHEMA } from './schema.ts';

/** What a dead letter of a test has besides a row's own columns. */
export interface DeadOptions extends RowOptions {
  readonly error?: string | null;
  /** One for all of them, or for each its own. */
  readonly key?: string | ((place: number) => string);
}

/** Dead letters as workers leave them: out of attempts an hour ago. Ids ascend. */
export async function insertDead(
  db: Kysely<DB>,
  count: number,
  options: DeadOptions = {},
): Promise<TaskId[]> {
  const { error = 'no such customer', key, ...row } = options;
  const ids = await insertRows(db, count, { attemptCount: 20, attemptedSecondsAgo: 3_600, ...row });
  const keys =
    key === undefined ? ids.map(() => null) : ids.map((_, n) => (typeof key === 'string' ? key : key(n)));
  // As the enqueue hashes it.
  await sql`
    update ${sql.table(`${TEST_SCHEMA}.async_tasks`)} t set last_error = ${error},
      errors = jsonb_build_array(jsonb_build_object('attempt', 20, 'at', '2026-01-31T09:00:00Z',
        'outcome', 'failure', 'message', coalesce(${error}::text, ''))),
      unique_key = sha256(convert_to(t.task_type || E'\n' || given.key, 'UTF8'))
    from unnest(${ids}::bigint[], ${keys}::text[]) as given(id, key) where t.id = given.id`.execute(db);
  return ids;
}

export interface AuditRow {
  readonly actor: string;
  readonly action: string;
  readonly subject: string | null;
  readonly detail: Readonly<Record<string, unknown>> & { readonly ids?: readonly string[] };
}

/** What the audit holds, oldest first. */
export async function auditRows(db: Kysely<DB>): Promise<AuditRow[]> {
  const rows = await db
    .selectFrom('async_audit')
    .select(['actor', 'action', 'subject', 'detail'])
    .orderBy('id')
    .execute();
  return rows as unknown as AuditRow[];
}

/** The replayed, and with them every task that waits. */
export async function waitingIds(db: Kysely<DB>): Promise<TaskId[]> {
  const rows = await db
    .selectFrom('async_tasks')
    .select('id')
    .where('exhausted', '=', false)
    .orderBy('id')
    .execute();
  return rows.map(({ id }) => id as TaskId);
}
