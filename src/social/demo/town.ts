// What there is before anything happens, and what people then do.
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { PREFIX } from '../services/asset-prefixes.ts';
import { enqueueAssetDeletes, requestOrphanSweep } from '../services/assets.ts';
import { activateAccount, publishChallenge, requestReplay, writeTravelLog } from '../services/game-engine.ts';
import { createItem, reparseLinks } from '../services/items.ts';
import { enqueueEnrichment } from '../services/locations.ts';
import type { SocialDatabase, SocialTransaction } from '../services/run-limits.ts';
import type { DemoStores } from './stores.ts';

export const TOWN = {
  accounts: 60,
  travelLogs: 180,
  items: 90,
  locations: 60,
  seededLocations: 40,
  expired: 50,
  orphans: 20,
} as const;

export const STAMP_KEY = `${PREFIX.stamps}two-countries.png`;
export const OWNED_KEY = `${PREFIX.chat}of-a-message`;

export interface Town {
  readonly accountIds: readonly string[];
  readonly stampId: string;
  readonly deactivatedId: string;
}

/** Accounts, a challenge, and of everything that the clock cleans up something that is due. */
export async function buildTown(stores: DemoStores): Promise<Town> {
  const { db } = stores;
  const accounts = await db
    .insertInto('accounts')
    .values(
      Array.from({ length: TOWN.accounts }, (_, index) => ({ handle: `resident ${index}`, country: 'NZ' })),
    )
    .returning('id')
    .execute();
  const accountIds = accounts.map(({ id }) => id);
  const stampId = await publishTravelChallenge(db);
  await addDueWork(db, accountIds[0] as string);
  const deactivatedId = await addDeactivatedAccount(stores);
  return { accountIds, stampId, deactivatedId };
}

async function publishTravelChallenge(db: SocialDatabase): Promise<string> {
  return db.transaction().execute(async (tx) => {
    const stamp = await tx
      .insertInto('curios')
      .values({ kind: 'stamp', name: 'two countries' })
      .returning('id')
      .executeTakeFirstOrThrow();
    const challenge = await tx
      .insertInto('challenges')
      .values({
        title: 'See two countries',
        starts_at: new Date(0),
        ends_at: null,
        rule: { countries: { atLeast: 2 } },
        reward: { grant: stamp.id },
      })
      .returning('id')
      .executeTakeFirstOrThrow();
    await publishChallenge(tx, challenge.id, null);
    return stamp.id;
  });
}

/** Rows that the cron entries find. */
async function addDueWork(db: SocialDatabase, accountId: string): Promise<void> {
  const rows = sql`generate_series(1, ${sql.lit(TOWN.expired)}::int)`;
  const statements = [
    sql`INSERT INTO messages (account_id, body, expires_at)
        SELECT ${accountId}, 'gone soon', now() + interval '1 second' FROM ${rows}`,
    sql`INSERT INTO messages (account_id, body, attachment_key) VALUES (${accountId}, 'stays', ${OWNED_KEY})`,
    sql`INSERT INTO moments (account_id, expires_at) SELECT ${accountId}, now() FROM ${rows}`,
    sql`INSERT INTO sessions (account_id, expires_at) SELECT ${accountId}, now() FROM ${rows}`,
    sql`INSERT INTO events (host_id, title, latitude, longitude, starts_at, ends_at)
        SELECT ${accountId}, 'meet ' || n, n / 10.0, n / 5.0, now(), now() + interval '1 hour'
        FROM ${rows} AS n`,
    sql`INSERT INTO notifications (account_id, expires_at) SELECT ${accountId}, now() FROM ${rows}`,
    sql`INSERT INTO locations (name, category, latitude, longitude)
        SELECT 'seed ' || n, 'park', n, n FROM generate_series(1, ${sql.lit(TOWN.seededLocations)}::int) AS n`,
    sql`INSERT INTO ranking_impressions (query, shown_at) SELECT 'old', now() - interval '200 days' FROM ${rows}`,
  ];
  for (const statement of statements) await statement.execute(db);
}

/** Its grace is over: it goes, and its pictures with it. */
async function addDeactivatedAccount({ db, storage }: DemoStores): Promise<string> {
  const signal = AbortSignal.timeout(10_000);
  const avatar_key = `${PREFIX.avatars}${randomUUID()}`;
  const media_key = `${PREFIX.moments}${randomUUID()}`;
  await storage.put(avatar_key, 'a face', signal);
  await storage.put(media_key, 'a view', signal);
  const account = await db
    .insertInto('accounts')
    .values({ handle: 'gone', status: 'deactivated', deactivated_at: new Date(0), avatar_key })
    .returning('id')
    .executeTakeFirstOrThrow();
  await db
    .insertInto('moments')
    .values({ account_id: account.id, media_key, is_journaled: true, expires_at: new Date(0) })
    .execute();
  return account.id;
}

/** Rows and the tasks that follow from them, in the same transactions: enough to keep all three queues full. */
export async function liveADay({ db, site }: DemoStores, { accountIds }: Town): Promise<void> {
  site.pages.set('/hut', '<title>The hut</title><meta name="description" content="Twelve bunks">');
  site.pages.set('/moved-away', 404);
  const accountAt = (index: number) => accountIds[index % accountIds.length] as string;
  await db.transaction().execute(async (tx) => {
    for (let index = 0; index < TOWN.travelLogs; index += 1) {
      const country = ['NZ', 'DE', 'FR'][Math.floor(index / accountIds.length)] ?? 'NZ';
      await writeTravelLog(tx, { accountId: accountAt(index), country, category: 'hike' });
    }
    for (let index = 0; index < TOWN.items; index += 1) {
      const capture = `Walk ${index} #walk\n${site.url}/hut ${site.url}/moved-away`;
      await createItem(tx, { accountId: accountAt(index), capture });
    }
    for (let index = 0; index < TOWN.locations; index += 1) await addLocation(tx, index);
    await activateAccount(tx, accountAt(0));
  });
}

async function addLocation(tx: SocialTransaction, index: number): Promise<void> {
  const { id } = await tx
    .insertInto('locations')
    .values({ name: `Café ${index}`, category: 'cafe', latitude: index / 2, longitude: index })
    .returning('id')
    .executeTakeFirstOrThrow();
  await enqueueEnrichment(tx, id);
  // An edit right behind it shares the task that waits.
  await enqueueEnrichment(tx, id);
}

/** What an administrator asks for: a sweep, a replay, a forced reparse, and a delete that is refused. */
export async function administer({ db, storage }: DemoStores, { stampId }: Town): Promise<void> {
  const signal = AbortSignal.timeout(10_000);
  await storage.put(STAMP_KEY, 'a stamp', signal);
  await storage.put(OWNED_KEY, 'of a message', signal);
  for (let index = 0; index < TOWN.orphans; index += 1) {
    await storage.put(`${PREFIX.chat}${randomUUID()}`, 'of no message', signal);
  }
  await db.transaction().execute(async (tx) => {
    await requestOrphanSweep(tx, PREFIX.chat);
    await requestReplay(tx, { curioId: stampId });
    const item = await tx.selectFrom('items').select('id').orderBy('id').executeTakeFirstOrThrow();
    await reparseLinks(tx, item.id);
    await enqueueAssetDeletes(tx, [STAMP_KEY]);
  });
}
