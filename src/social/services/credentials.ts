import { sql } from 'kysely';
import { deleteBatch, inBatches } from './batches.ts';
import type { RunLimits, SocialDatabase } from './run-limits.ts';

const CREDENTIALS = ['refresh_tokens', 'one_time_passwords', 'sessions'] as const;

/** Refresh tokens, one-time passwords and sessions. */
export class Credentials {
  readonly #db: SocialDatabase;

  constructor(db: SocialDatabase) {
    this.#db = db;
  }

  /** Deletes what has expired, of each kind. */
  async deleteExpired(limits: RunLimits): Promise<Record<(typeof CREDENTIALS)[number], number>> {
    const deleted = { refresh_tokens: 0, one_time_passwords: 0, sessions: 0 };
    for (const from of CREDENTIALS) {
      deleted[from] = await inBatches(this.#db, limits, async (tx) => {
        const batch = await deleteBatch(tx, { from, where: sql`expires_at <= now()` });
        return batch.deleted;
      });
    }
    return deleted;
  }
}
