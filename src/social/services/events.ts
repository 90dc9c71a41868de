import { sql } from 'kysely';
import { enqueueAssetDeletes } from './assets.ts';
import { BATCH_ROWS, deleteBatch, inBatches } from './batches.ts';
import type { GeoEvent, GeoIndex } from './geo-index.ts';
import { type RunLimits, type SocialDatabase, transactionWithin } from './run-limits.ts';

/** An archived event can be looked at for so long. */
const ARCHIVED_DAYS = 14;

/** What people meet at. */
export class Events {
  readonly #db: SocialDatabase;
  readonly #geo: GeoIndex | undefined;

  /** @param geo undefined where there is no Redis */
  constructor(db: SocialDatabase, geo: GeoIndex | undefined) {
    this.#db = db;
    this.#geo = geo;
  }

  /** Makes each event upcoming, live or finished, as its times say now; an archived one stays archived. */
  async updateStatus(limits: RunLimits): Promise<number> {
    return inBatches(this.#db, limits, async (tx) => {
      const { numAffectedRows = 0n } = await sql`
        WITH picked AS MATERIALIZED (
          SELECT id, due.status FROM events, LATERAL (
            SELECT CASE WHEN now() < starts_at THEN 'upcoming' WHEN now() < ends_at THEN 'live' ELSE 'finished' END
          ) AS due (status)
          WHERE events.status <> 'archived' AND events.status <> due.status
          LIMIT ${sql.lit(BATCH_ROWS)} FOR NO KEY UPDATE OF events SKIP LOCKED
        )
        UPDATE events SET status = picked.status FROM picked WHERE events.id = picked.id`.execute(tx);
      return Number(numAffectedRows);
    });
  }

  /** Puts every event that is to come or on now onto the map. Undefined where there is no map. */
  async syncGeo(limits: RunLimits): Promise<number | undefined> {
    return this.#geo?.replaceAll(this.#onTheMap(limits), limits.signal);
  }

  /** Deletes events that nobody hosts any more, and those that were archived long ago; their covers with them. */
  async purge(limits: RunLimits): Promise<number> {
    return inBatches(this.#db, limits, async (tx) => {
      const old = sql`archived_at < now() - make_interval(days => ${sql.lit(ARCHIVED_DAYS)})`;
      const where = sql`host_id IS NULL OR (status = 'archived' AND ${old})`;
      const { deleted, assetKeys } = await deleteBatch(tx, { from: 'events', where, assetKey: 'cover_key' });
      await enqueueAssetDeletes(tx, assetKeys);
      return deleted;
    });
  }

  async *#onTheMap(limits: RunLimits): AsyncGenerator<readonly GeoEvent[]> {
    let after: string | undefined;
    do {
      const page = await transactionWithin(this.#db, limits, (tx) =>
        tx
          .selectFrom('events')
          .select(['id', 'latitude', 'longitude'])
          .where('status', 'in', ['upcoming', 'live'])
          .where('deleted_at', 'is', null)
          .$if(after !== undefined, (query) => query.where('id', '>', after as string))
          .orderBy('id')
          .limit(BATCH_ROWS)
          .execute(),
      );
      yield page;
      after = page.length < BATCH_ROWS ? undefined : page.at(-1)?.id;
    } while (after !== undefined);
  }
}
