import { sql } from 'kysely';
import { enqueueAssetDeletes } from './assets.ts';
import { deleteBatch, inBatches } from './batches.ts';
import type { RunLimits, SocialDatabase } from './run-limits.ts';

/** Chat messages. */
export class Messages {
  readonly #db: SocialDatabase;

  constructor(db: SocialDatabase) {
    this.#db = db;
  }

  /** Deletes the disappearing messages whose time has come, and their attachments with them. */
  async deleteExpired(limits: RunLimits): Promise<number> {
    return inBatches(this.#db, limits, async (tx) => {
      const where = sql`expires_at <= now()`;
      const { deleted, assetKeys } = await deleteBatch(tx, {
        from: 'messages',
        where,
        assetKey: 'attachment_key',
      });
      await enqueueAssetDeletes(tx, assetKeys);
      return deleted;
    });
  }
}
