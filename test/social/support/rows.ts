import { randomUUID } from 'node:crypto';
import type { Insertable } from 'kysely';
import type { SocialDatabase } from '../../../src/social/services/run-limits.ts';
import type { SocialTables } from '../../../src/social/services/tables.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

export const hoursAgo = (hours: number): Date => new Date(Date.now() - hours * HOUR_MS);
export const daysAgo = (days: number): Date => new Date(Date.now() - days * DAY_MS);
export const inHours = (hours: number): Date => hoursAgo(-hours);

type Values<Table extends keyof SocialTables> = Partial<Insertable<SocialTables[Table]>>;

/** An active account. */
export async function addAccount(db: SocialDatabase, values: Values<'accounts'> = {}): Promise<string> {
  return idOf(
    db
      .insertInto('accounts')
      .values({ handle: `someone ${randomUUID()}`, ...values })
      .returning('id'),
  );
}

/** An event of two hours that begins in one. */
export async function addEvent(db: SocialDatabase, values: Values<'events'> = {}): Promise<string> {
  const host_id = values.host_id === undefined ? await addAccount(db) : values.host_id;
  const event = {
    title: 'meet',
    latitude: -36.85,
    longitude: 174.76,
    starts_at: inHours(1),
    ends_at: inHours(3),
  };
  return idOf(
    db
      .insertInto('events')
      .values({ ...event, ...values, host_id })
      .returning('id'),
  );
}

/** A moment that is still seen. */
export async function addMoment(db: SocialDatabase, values: Values<'moments'> = {}): Promise<string> {
  const account_id = values.account_id ?? (await addAccount(db));
  return idOf(
    db
      .insertInto('moments')
      .values({ expires_at: inHours(1), ...values, account_id })
      .returning('id'),
  );
}

export async function addLocation(db: SocialDatabase, values: Values<'locations'> = {}): Promise<string> {
  const place = { name: 'Blue Café', category: 'cafe', latitude: 52.52, longitude: 13.405 };
  return idOf(
    db
      .insertInto('locations')
      .values({ ...place, ...values })
      .returning('id'),
  );
}

/** A link that no item refers to, old enough to be swept. */
export async function addLink(db: SocialDatabase, values: Values<'parsed_links'> = {}): Promise<string> {
  return idOf(
    db
      .insertInto('parsed_links')
      .values({ url: `https://example.org/${randomUUID()}`, created_at: hoursAgo(2), ...values })
      .returning('id'),
  );
}

/** An item, with links to the addresses given; nothing is enqueued for it. */
export async function addItem(
  db: SocialDatabase,
  values: Values<'items'> & { readonly urls?: readonly string[] } = {},
): Promise<string> {
  const { urls = [], ...item } = values;
  const account_id = item.account_id ?? (await addAccount(db));
  const id = await idOf(
    db
      .insertInto('items')
      .values({ capture: 'a plan', ...item, account_id })
      .returning('id'),
  );
  for (const url of urls) {
    const link_id = await addLink(db, { url });
    await db.insertInto('item_links').values({ item_id: id, link_id }).execute();
  }
  return id;
}

export async function addCurio(db: SocialDatabase): Promise<string> {
  return idOf(db.insertInto('curios').values({ kind: 'stamp', name: 'a stamp' }).returning('id'));
}

/** A published challenge without an end that a first journey meets, unless said otherwise. */
export async function addChallenge(
  db: SocialDatabase,
  values: Values<'challenges'> & Pick<Insertable<SocialTables['challenges']>, 'reward'>,
): Promise<string> {
  const challenge = { title: 'travel', status: 'published' as const, starts_at: daysAgo(30), ends_at: null };
  return idOf(
    db
      .insertInto('challenges')
      .values({ ...challenge, rule: { visits: { atLeast: 1 } }, ...values })
      .returning('id'),
  );
}

export async function addTravelLog(
  db: SocialDatabase,
  accountId: string,
  values: Values<'travel_logs'> = {},
): Promise<string> {
  const log = { country: 'NZ', category: 'hike', travelled_at: hoursAgo(1) };
  return idOf(
    db
      .insertInto('travel_logs')
      .values({ ...log, ...values, account_id: accountId })
      .returning('id'),
  );
}

/** The ids that are left of a table, sorted. */
export async function idsOf(
  db: SocialDatabase,
  table: 'accounts' | 'events' | 'moments' | 'messages' | 'notifications' | 'parsed_links' | 'challenges',
): Promise<string[]> {
  const rows = await db.selectFrom(table).select('id').orderBy('id').execute();
  return rows.map(({ id }) => id);
}

async function idOf(query: { executeTakeFirstOrThrow(): Promise<{ id: string }> }): Promise<string> {
  return (await query.executeTakeFirstOrThrow()).id;
}
