import { sql } from 'kysely';
import { enqueue, enqueueMany } from '../../../generated/social/tasks.ts';
import type { CallerTransaction, Enqueued } from '../../index.ts';
import { recordGauge } from './gauges.ts';
import { embeddingOf, geohashOf } from './location-features.ts';
import { type RunLimits, type SocialDatabase, transactionWithin } from './run-limits.ts';

/** Locations of one wave of the sweep: seed rows drain at this rate a minute, and leave the queue room for others. */
export const SWEEP_WAVE = 2_000;

/** Places that can be searched for. */
export class Locations {
  readonly #db: SocialDatabase;

  constructor(db: SocialDatabase) {
    this.#db = db;
  }

  /** Works out what search needs to know of a location. `gone` when there is no such location. */
  async enrich(locationId: string, limits: RunLimits): Promise<'enriched' | 'gone'> {
    return transactionWithin(this.#db, limits, async (tx) => {
      // Locked: an edit must come before this look or after the result, or the result would be of neither.
      const location = await tx
        .selectFrom('locations')
        .select(['name', 'category', 'latitude', 'longitude'])
        .where('id', '=', locationId)
        .forNoKeyUpdate()
        .executeTakeFirst();
      if (location === undefined) return 'gone';
      await tx
        .updateTable('locations')
        .set({
          geohash: geohashOf(location),
          embedding: embeddingOf(location),
          enrichment_at: sql<Date>`now()`,
        })
        .where('id', '=', locationId)
        .execute();
      return 'enriched';
    });
  }

  /** Enqueues a wave of locations that were never enriched, oldest first. Those that wait already stay one task each. */
  async enqueueNeverEnriched(limits: RunLimits): Promise<{ offered: number; enqueued: number }> {
    return transactionWithin(this.#db, limits, async (tx) => {
      const rows = await tx
        .selectFrom('locations')
        .select('id as locationId')
        .where('enrichment_at', 'is', null)
        .orderBy('created_at')
        .orderBy('id')
        .limit(SWEEP_WAVE)
        .execute();
      const answers = await enqueueMany(tx, 'location:enrich', rows);
      const enqueued = answers.filter(({ status }) => status === 'enqueued').length;
      return { offered: rows.length, enqueued };
    });
  }

  /** Samples how many active locations carry an embedding. */
  async countEmbedded(limits: RunLimits): Promise<number> {
    return transactionWithin(this.#db, limits, async (tx) => {
      const { embedded } = await tx
        .selectFrom('locations')
        .select(({ fn }) => fn.countAll<string>().as('embedded'))
        .where('is_active', '=', true)
        .where('embedding', 'is not', null)
        .executeTakeFirstOrThrow();
      await recordGauge(tx, 'tomoda_locations_embedded_total', [{ label: '', value: Number(embedded) }]);
      return Number(embedded);
    });
  }
}

/** Asks for the enrichment of a location, in the transaction that wrote it. */
export function enqueueEnrichment(tx: CallerTransaction, locationId: string): Promise<Enqueued> {
  return enqueue(tx, 'location:enrich', { locationId });
}
