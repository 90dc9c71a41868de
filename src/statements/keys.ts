import { type ExpressionBuilder, type QueryCreator, type SqlBool, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { KEY_PRUNE_SCAN, KEY_UNUSED_MS } from '../domain/limits.ts';
import type { WriteLane } from './lanes.ts';
import { databaseNow, isLive } from './predicates.ts';
import { inTransaction, parameter, statement } from './statement.ts';

// The keys of unique enqueues; sql/0002_unique_keys.sql says what they are for.

type Keys = ExpressionBuilder<DB, 'async_task_keys'>;

/**
 * Ends the windows of dead letters that a statement deletes: they stood in nobody's way, and gone they would look
 * like tasks that are done, and stand in the way. A key that an enqueuer has locked is left to it: it has seen the
 * dead letter. Waiting for it here would be waiting with the tasks locked, in the other order than an enqueue.
 */
export const freeWindows = (cte: QueryCreator<DB & { deleted: { id: string; unique_key: Buffer | null } }>) =>
  cte
    .updateTable('async_task_keys')
    .where('async_task_keys.key', 'in', (from) =>
      from
        .selectFrom('async_task_keys as keys')
        .innerJoin('deleted', (join) =>
          join.onRef('deleted.unique_key', '=', 'keys.key').onRef('deleted.id', '=', 'keys.task_id'),
        )
        .where('keys.window_ends_at', 'is not', null)
        .forUpdate('keys')
        .skipLocked()
        .select('keys.key'),
    )
    .set({ window_ends_at: null })
    .returning('async_task_keys.key');

/** Not used for a while, no window to keep, and no live task: an enqueue would find the same without the row. */
const isUnused = (k: Keys) =>
  k.and([
    sql<SqlBool>`(${k.ref('async_task_keys.window_ends_at')} > ${databaseNow}) is not true`,
    k(
      'async_task_keys.enqueued_at',
      '<',
      sql<Date>`${databaseNow} - ${sql.lit(KEY_UNUSED_MS)} * interval '1 millisecond'`,
    ),
    k.not(
      k.exists(
        k
          .selectFrom('async_tasks')
          .whereRef('async_tasks.unique_key', '=', 'async_task_keys.key')
          .where(isLive)
          .select(sql.lit(1).as('live')),
      ),
    ),
  ]);

// What is locked is judged again by the statement below, under a snapshot taken after the locks: a task that was
// enqueued between the two looks of one statement would be taken for gone.
const lockStatement = statement((db) =>
  db
    .with(
      (cte) => cte('page').materialized(),
      (cte) =>
        cte
          .selectFrom('async_task_keys')
          .where('key', '>', sql<Buffer>`decode(${parameter<string>('afterKey')}, 'hex')`)
          .orderBy('key')
          .limit(sql.lit(KEY_PRUNE_SCAN))
          .select('key'),
    )
    .with(
      (cte) => cte('locked').materialized(),
      (cte) =>
        cte
          .selectFrom('async_task_keys')
          .where('async_task_keys.key', 'in', (from) => from.selectFrom('page').select('page.key'))
          .where(isUnused)
          .forUpdate()
          .skipLocked()
          .select('async_task_keys.key'),
    )
    .selectNoFrom((s) => [
      s
        .selectFrom('page')
        .orderBy('page.key', 'desc')
        .limit(sql.lit(1))
        .select(sql<string>`encode(page.key, 'hex')`.as('key'))
        .as('last_key'),
      s.selectFrom('page').select(sql<string>`count(*)::text`.as('count')).as('scanned'),
      s
        .selectFrom('locked')
        .select(sql<string>`coalesce(jsonb_agg(encode(locked.key, 'hex')), '[]')::text`.as('keys'))
        .as('locked'),
    ]),
);

const deleteStatement = statement((db) =>
  db
    .deleteFrom('async_task_keys')
    .where(
      'key',
      'in',
      sql<Buffer>`(select decode(value, 'hex') from jsonb_array_elements_text(${parameter<string>('keys')}::text::jsonb))`,
    )
    .where(isUnused)
    .returning(sql<string>`encode(key, 'hex')`.as('key')),
);

export interface KeyPruneBatch {
  readonly deleted: number;
  /** Where the next batch begins; undefined at the end of the table. */
  readonly nextAfterKey: string | undefined;
}

/**
 * Looks through some thousands of keys in the order of the table, and deletes those that nobody needs: unused for
 * an hour, their task gone or dead, their window over. Keys that an enqueuer has locked are left for the next time.
 */
export async function pruneKeys(lane: WriteLane, afterKey = ''): Promise<KeyPruneBatch> {
  return inTransaction(lane, async (within) => {
    const [page] = await lockStatement.run(within, { afterKey });
    const keys = page?.locked ?? '[]';
    const deleted = keys === '[]' ? [] : await deleteStatement.run(within, { keys });
    const isLast = Number(page?.scanned ?? 0) < KEY_PRUNE_SCAN;
    return { deleted: deleted.length, nextAfterKey: isLast ? undefined : (page?.last_key ?? undefined) };
  });
}
