import { sql } from 'kysely';
import { deleteBatch, inBatches } from './batches.ts';
import type { RunLimits, SocialDatabase } from './run-limits.ts';

/** What the search ranking learns from is kept for so long. */
const LABEL_DAYS = 180;

/** What a search has shown, and what was chosen of it. */
export class Rankings {
  readonly #db: SocialDatabase;

  constructor(db: SocialDatabase) {
    this.#db = db;
  }

  /** Deletes old impressions and selections. A selection goes with its impression, too. */
  async pruneLabels(limits: RunLimits): Promise<{ selections: number; impressions: number }> {
    const before = sql`now() - make_interval(days => ${sql.lit(LABEL_DAYS)})`;
    const selections = await inBatches(this.#db, limits, async (tx) => {
      const batch = await deleteBatch(tx, {
        from: 'ranking_selections',
        where: sql`selected_at < ${before}`,
      });
      return batch.deleted;
    });
    const impressions = await inBatches(this.#db, limits, async (tx) => {
      const batch = await deleteBatch(tx, { from: 'ranking_impressions', where: sql`shown_at < ${before}` });
      return batch.deleted;
    });
    return { selections, impressions };
  }
}
