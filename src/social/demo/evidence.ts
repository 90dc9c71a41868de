import { sql } from 'kysely';
import { renderGauges } from '../services/gauges.ts';
import type { SocialDatabase } from '../services/run-limits.ts';
import type { Told } from './replicas.ts';
import type { DemoStores } from './stores.ts';
import { OWNED_KEY, STAMP_KEY, TOWN } from './town.ts';

/** Something that must be so at the end, and what was found. */
export interface Finding {
  readonly what: string;
  readonly expected: unknown;
  readonly found: unknown;
}

/** Tasks that wait or run, but for those that the clock goes on enqueueing. */
export async function unfinished(db: SocialDatabase): Promise<number> {
  const { rows } = await sql<{ tasks: number }>`
    SELECT count(*)::int AS tasks FROM taskq.async_tasks
    WHERE NOT exhausted AND task_type NOT LIKE 'cron:%'`.execute(db);
  return rows[0]?.tasks ?? 0;
}

/** What the tasks have done, as the stores have it. */
export async function findings(stores: DemoStores, told: Told): Promise<Finding[]> {
  const { db, storage } = stores;
  const count = async (what: ReturnType<typeof sql>): Promise<number> => {
    const { rows } = await sql<{ rows: number }>`SELECT count(*)::int AS rows FROM ${what}`.execute(db);
    return rows[0]?.rows ?? -1;
  };
  const listed = await storage.listPage({
    prefix: '',
    afterKey: undefined,
    token: undefined,
    signal: AbortSignal.timeout(10_000),
  });
  const locations = TOWN.locations + TOWN.seededLocations;
  const gauge = `tomoda_locations_embedded_total ${locations}`;
  return [
    of('residents with the stamp of two countries', TOWN.accounts, await count(sql`curio_grants`)),
    of('items parsed', TOWN.items, await count(sql`items WHERE parsed_revision = revision`)),
    of('pages known, shared by all items', 2, await count(sql`parsed_links WHERE enriched_at IS NOT NULL`)),
    of(
      'locations enriched, seeded ones too',
      locations,
      await count(sql`locations WHERE geohash IS NOT NULL`),
    ),
    of('gauge of embedded locations', gauge, (await renderGauges(db)).split('\n')[0]),
    of('messages left: the one that lasts', 1, await count(sql`messages`)),
    of('events live', TOWN.expired, await count(sql`events WHERE status = 'live'`)),
    of('moments seen', 0, await count(sql`moments WHERE deleted_at IS NULL AND NOT is_journaled`)),
    of('sessions, notifications and ranking labels left', 0, await count(leftovers)),
    of('accounts past their grace left', 0, await count(sql`accounts WHERE status = 'deactivated'`)),
    of(
      'objects left: those that are owned, and the stamp',
      [OWNED_KEY, STAMP_KEY],
      listed.objects.map(({ key }) => key),
    ),
    of(
      'dead letters: the refused delete alone',
      ['cleanup:s3_delete'],
      told.dead.map(({ type }) => type),
    ),
    of('ticks taken twice', 0, told.ticksTaken - told.ticks.size),
  ];
}

const leftovers = sql`(
  SELECT id FROM sessions UNION ALL SELECT id FROM notifications UNION ALL SELECT id FROM ranking_impressions
) AS leftovers`;

export function holds({ expected, found }: Finding): boolean {
  return JSON.stringify(expected) === JSON.stringify(found);
}

function of(what: string, expected: unknown, found: unknown): Finding {
  return { what, expected, found };
}
