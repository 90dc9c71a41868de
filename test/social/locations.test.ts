import { sql } from 'kysely';
import { embeddingOf, geohashOf } from '../../src/social/services/location-features.ts';
import { enqueueEnrichment } from '../../src/social/services/locations.ts';
import { drain, runTask } from '../../src/testing/index.ts';
import { addLocation } from './support/rows.ts';
import { describe, expect, test, untilWaiting } from './support/social.ts';

describe('location:enrich', () => {
  test('back-to-back enqueues for one location collapse into one execution', async ({ world }) => {
    const { db, handlers } = world;
    const [one, other] = [await addLocation(db), await addLocation(db)];
    for (const locationId of [one, one, other, one]) await enqueueEnrichment(db, locationId);
    const runs = await drain({ db, handlers });
    expect(runs.map(({ type, queue, outcome }) => `${type} ${queue} ${outcome}`)).toEqual([
      'location:enrich low success',
      'location:enrich low success',
    ]);
  });

  test('is of what the location is when it is written, not of what it was before an edit', async ({
    world,
  }) => {
    const { db, handlers } = world;
    const locationId = await addLocation(db, { name: 'old name' });
    const { enriching } = await db.transaction().execute(async (tx) => {
      await tx.updateTable('locations').set({ name: 'new name' }).where('id', '=', locationId).execute();
      const enriching = runTask(handlers, 'location:enrich', { locationId });
      await untilWaiting(db);
      return { enriching };
    });
    await enriching;
    const [location] = await db.selectFrom('locations').select('embedding').execute();
    const expected = embeddingOf({ name: 'new name', category: 'cafe' });
    expect(location?.embedding?.[0]).toBeCloseTo(expected[0] as number, 5);
  });

  test('its features are those that others would work out, too', () => {
    expect(geohashOf({ latitude: 57.64911, longitude: 10.40744 })).toBe('u4pruydqq');
    expect(geohashOf({ latitude: -90, longitude: -180 })).toBe('000000000');
    const similarity = (left: number[], right: number[]) =>
      left.reduce((sum, value, index) => sum + value * (right[index] ?? 0), 0);
    const cafe = embeddingOf({ name: 'Blue Café', category: 'cafe' });
    expect(similarity(cafe, cafe)).toBeCloseTo(1);
    const near = similarity(cafe, embeddingOf({ name: 'blue café garden', category: 'cafe' }));
    const far = similarity(cafe, embeddingOf({ name: 'Harbour Museum', category: 'museum' }));
    expect(near).toBeGreaterThan(far);
  });
});

describe('cron:location_enrich_sweep', () => {
  test('offers two thousand a wave, oldest first, and none twice while it waits', async ({ world }) => {
    const { db } = world;
    await sql`
      INSERT INTO locations (name, category, latitude, longitude, created_at)
      SELECT 'seed ' || n, 'park', 0, 0, timestamptz '2026-01-01' + n * interval '1 second'
      FROM generate_series(1, 2100) AS n`.execute(db);
    const first = await world.run('cron:location_enrich_sweep', {});
    expect(first.result).toEqual({ offered: 2_000, enqueued: 2_000 });
    const second = await world.run('cron:location_enrich_sweep', {});
    expect(second.result).toEqual({ offered: 2_000, enqueued: 0 });
    const tasks = await world.waiting('location:enrich');
    expect(tasks).toHaveLength(2_000);
    const waiting = new Set(tasks.map(({ payload }) => (payload as { locationId: string }).locationId));
    const oldest = await db.selectFrom('locations').select('id').orderBy('created_at').limit(2_000).execute();
    expect(oldest.every(({ id }) => waiting.has(id))).toBe(true);
    // What a wave has enriched makes room for the next.
    await sql`UPDATE locations SET enrichment_at = now() WHERE name IN ('seed 1', 'seed 2')`.execute(db);
    const third = await world.run('cron:location_enrich_sweep', {});
    expect(third.result).toEqual({ offered: 2_000, enqueued: 2 });
  });
});
