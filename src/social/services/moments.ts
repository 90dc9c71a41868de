import { sql } from 'kysely';
import { enqueueAssetDeletes } from './assets.ts';
import { BATCH_ROWS, deleteBatch, inBatches } from './batches.ts';
import type { RunLimits, SocialDatabase } from './run-limits.ts';

/** A moment can be brought back for so long. */
const SOFT_DELETED_DAYS = 7;

/** Pictures that are seen for a day, unless their owner keeps them in the journal. */
export class Moments {
  readonly #db: SocialDatabase;

  constructor(db: SocialDatabase) {
    this.#db = db;
  }

  /** Marks the expired moments as deleted, but for the journaled ones. */
  async softDeleteExpired(limits: RunLimits): Promise<number> {
    return inBatches(this.#db, limits, async (tx) => {
      const { numAffectedRows = 0n } = await sql`
        WITH picked AS MATERIALIZED (
          SELECT id FROM moments WHERE deleted_at IS NULL AND NOT is_journaled AND expires_at <= now()
          LIMIT ${sql.lit(BATCH_ROWS)} FOR UPDATE SKIP LOCKED
        )
        UPDATE moments SET deleted_at = now() FROM picked WHERE moments.id = picked.id`.execute(tx);
      return Number(numAffectedRows);
    });
  }

  /** Deletes for good what was marked long enough ago, and its media with it. */
  async purgeSoftDeleted(limits: RunLimits): Promise<number> {
    return inBatches(this.#db, limits, async (tx) => {
      const where = sql`deleted_at < now() - make_interval(days => ${sql.lit(SOFT_DELETED_DAYS)})`;
      const { deleted, assetKeys } = await deleteBatch(tx, { from: 'moments', where, assetKey: 'media_key' });
      await enqueueAssetDeletes(tx, assetKeys);
      return deleted;
    });
  }
}
