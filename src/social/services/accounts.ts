import { sql } from 'kysely';
import { enqueueAssetDeletes } from './assets.ts';
import { BATCH_ROWS, inBatches } from './batches.ts';
import { type GaugeSample, labelOf, recordGauge } from './gauges.ts';
import {
  type RunLimits,
  type SocialDatabase,
  type SocialTransaction,
  transactionWithin,
} from './run-limits.ts';

/** A deactivated account can be taken up again for so long. */
const GRACE_DAYS = 30;

export class Accounts {
  readonly #db: SocialDatabase;

  constructor(db: SocialDatabase) {
    this.#db = db;
  }

  /** Suspends the active accounts that moderation has flagged. */
  async suspendFlagged(limits: RunLimits): Promise<number> {
    return inBatches(this.#db, limits, async (tx) => {
      const { numAffectedRows = 0n } = await sql`
        WITH picked AS MATERIALIZED (
          SELECT id FROM accounts WHERE status = 'active' AND flagged_at IS NOT NULL
          LIMIT ${sql.lit(BATCH_ROWS)} FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE accounts SET status = 'suspended', suspended_at = now()
        FROM picked WHERE accounts.id = picked.id`.execute(tx);
      return Number(numAffectedRows);
    });
  }

  /** Deletes accounts for good once their grace is over, with all that is theirs, in the object store too. */
  async purgeDeactivated(limits: RunLimits): Promise<number> {
    return inBatches(this.#db, limits, async (tx) => {
      // The lock keeps new rows of the account out until it is gone, so that no key is missed below.
      const { rows } = await sql<{ id: string }>`
        SELECT id FROM accounts
        WHERE status = 'deactivated' AND deactivated_at < now() - make_interval(days => ${sql.lit(GRACE_DAYS)})
        LIMIT ${sql.lit(BATCH_ROWS)} FOR UPDATE SKIP LOCKED`.execute(tx);
      const ids = rows.map(({ id }) => id);
      if (ids.length === 0) return 0;
      // The database deletes moments and messages along with the account, and would not say what their keys were.
      await enqueueAssetDeletes(tx, await assetKeysOf(tx, ids));
      await tx.deleteFrom('accounts').where('id', 'in', ids).execute();
      return ids.length;
    });
  }

  /** Samples the gauges of the analytics dashboard. */
  async refreshStats(limits: RunLimits): Promise<{ total: number }> {
    return transactionWithin(this.#db, limits, async (tx) => {
      const { rows } = await sql<{ total: number; active: number; new: number }>`
        SELECT
          count(*)::int AS total,
          (count(*) FILTER (WHERE last_active_at > now() - interval '24 hours'))::int AS active,
          (count(*) FILTER (WHERE created_at > now() - interval '24 hours'))::int AS new
        FROM accounts`.execute(tx);
      const { total = 0, active = 0, new: fresh = 0 } = rows[0] ?? {};
      const { rows: countries } = await sql<{ country: string; accounts: number }>`
        SELECT coalesce(country, 'unknown') AS country, count(*)::int AS accounts
        FROM accounts GROUP BY 1`.execute(tx);
      const byCountry = countries.map(
        ({ country, accounts }): GaugeSample => ({ label: labelOf('country', country), value: accounts }),
      );
      await recordGauge(tx, 'tomoda_users_active_24h', [{ label: '', value: active }]);
      await recordGauge(tx, 'tomoda_users_by_country', byCountry);
      await recordGauge(tx, 'tomoda_users_new_24h', [{ label: '', value: fresh }]);
      await recordGauge(tx, 'tomoda_users_total', [{ label: '', value: total }]);
      return { total };
    });
  }
}

async function assetKeysOf(tx: SocialTransaction, accountIds: readonly string[]): Promise<string[]> {
  const { rows } = await sql<{ key: string }>`
    SELECT avatar_key AS key FROM accounts WHERE id = ANY (${accountIds}::uuid[]) AND avatar_key IS NOT NULL
    UNION
    SELECT media_key FROM moments WHERE account_id = ANY (${accountIds}::uuid[]) AND media_key IS NOT NULL
    UNION
    SELECT attachment_key FROM messages
    WHERE account_id = ANY (${accountIds}::uuid[]) AND attachment_key IS NOT NULL`.execute(tx);
  return rows.map(({ key }) => key);
}
