import { sql } from 'kysely';
import { PRUNE_BATCH } from '../domain/limits.ts';
import { freeWindows } from './keys.ts';
import type { WriteLane } from './lanes.ts';
import { databaseNow, isDead } from './predicates.ts';
import { parameter, statement } from './statement.ts';

const pruneStatement = statement((db) =>
  db
    .with(
      (cte) => cte('old').materialized(),
      (cte) =>
        cte
          .selectFrom('async_tasks')
          .where(isDead)
          .where('async_tasks.id', '>', parameter<string>('afterId'))
          .where(
            sql<Date>`coalesce(last_attempted_at, created_at)`,
            '<',
            sql<Date>`${databaseNow} - ${parameter<number>('retentionMs')}::float8 * interval '1 millisecond'`,
          )
          .orderBy('async_tasks.id')
          .limit(sql.lit(PRUNE_BATCH))
          .forUpdate()
          .skipLocked()
          .select('async_tasks.id'),
    )
    .with('deleted', (cte) =>
      cte
        .deleteFrom('async_tasks')
        .using('old')
        .whereRef('async_tasks.id', '=', 'old.id')
        .returning(['async_tasks.id', 'async_tasks.unique_key']),
    )
    .with('freed', freeWindows)
    .selectFrom('deleted')
    .select([sql<string>`count(*)::text`.as('deleted'), sql<string | null>`max(id)::text`.as('last_id')]),
);

export interface PruneBatch {
  readonly deleted: number;
  /** Where the next batch begins; undefined when nothing old is left. */
  readonly nextAfterId: string | undefined;
}

/**
 * Deletes up to a thousand dead letters whose last attempt is older than `retentionMs`, in id order.
 * The predicate is the gauge's: a row on its final attempt under a live lease is not dead and stays, and so
 * does one that was replayed. Rows that another replica or an operator has locked are left for the next hour.
 */
export async function pruneDead(lane: WriteLane, retentionMs: number, afterId = '0'): Promise<PruneBatch> {
  const [row] = await pruneStatement.run(lane, { retentionMs, afterId });
  const deleted = Number(row?.deleted ?? 0);
  return { deleted, nextAfterId: deleted < PRUNE_BATCH ? undefined : (row?.last_id ?? undefined) };
}
