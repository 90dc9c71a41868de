import { type RawBuilder, sql } from 'kysely';
import {
  type RunLimits,
  type SocialDatabase,
  type SocialTransaction,
  transactionWithin,
} from './run-limits.ts';
import type { SocialTables } from './tables.ts';

/** Rows of one transaction: locks are held for milliseconds, and an interrupted sweep loses one batch at the most. */
export const BATCH_ROWS = 1_000;

/**
 * Repeats a batch, each in a transaction of its own, until one was not full. What is done when the run is interrupted
 * stays done, and the next run goes on behind it.
 * @returns rows in all
 */
export async function inBatches(
  db: SocialDatabase,
  limits: RunLimits,
  batch: (tx: SocialTransaction) => Promise<number>,
): Promise<number> {
  let rows = 0;
  for (;;) {
    const done = await transactionWithin(db, limits, batch);
    rows += done;
    if (done < BATCH_ROWS) return rows;
  }
}

interface Doomed<Table extends keyof SocialTables> {
  readonly from: Table;
  readonly where: RawBuilder<unknown>;
  /** Its values are answered, those that are not null. */
  readonly assetKey?: keyof SocialTables[Table] & string;
}

/** Deletes up to a batch of rows. Those that somebody has locked are passed over: the next run finds them. */
export async function deleteBatch<Table extends keyof SocialTables>(
  tx: SocialTransaction,
  { from, where, assetKey }: Doomed<Table>,
): Promise<{ deleted: number; assetKeys: string[] }> {
  const key = assetKey === undefined ? sql`NULL::text` : sql`doomed.${sql.ref(assetKey)}`;
  // Materialised: a subquery could be looked through again for each row, and each time lock and take others.
  const { rows } = await sql<{ asset_key: string | null }>`
    WITH picked AS MATERIALIZED (
      SELECT id FROM ${sql.table(from)} WHERE ${where} LIMIT ${sql.lit(BATCH_ROWS)} FOR UPDATE SKIP LOCKED
    )
    DELETE FROM ${sql.table(from)} AS doomed USING picked WHERE doomed.id = picked.id
    RETURNING ${key} AS asset_key`.execute(tx);
  const assetKeys = rows.flatMap(({ asset_key }) => (asset_key === null ? [] : [asset_key]));
  return { deleted: rows.length, assetKeys };
}
