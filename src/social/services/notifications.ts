import { sql } from 'kysely';
import { deleteBatch, inBatches } from './batches.ts';
import type { RunLimits, SocialDatabase } from './run-limits.ts';

/** A notification that was read is of no use after so long. */
const READ_DAYS = 30;

export class Notifications {
  readonly #db: SocialDatabase;

  constructor(db: SocialDatabase) {
    this.#db = db;
  }

  /** Deletes what was read long ago, and what has expired, read or not. */
  async purge(limits: RunLimits): Promise<number> {
    return inBatches(this.#db, limits, async (tx) => {
      const where = sql`expires_at <= now() OR read_at < now() - make_interval(days => ${sql.lit(READ_DAYS)})`;
      const { deleted } = await deleteBatch(tx, { from: 'notifications', where });
      return deleted;
    });
  }
}
