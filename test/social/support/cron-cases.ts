import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import type { TaskType } from '../../../generated/social/tasks.ts';
import { renderGauges } from '../../../src/social/services/gauges.ts';
import type { SocialDatabase } from '../../../src/social/services/run-limits.ts';
import { expect } from '../../support/test.ts';
import {
  addAccount,
  addChallenge,
  addCurio,
  addEvent,
  addItem,
  addLink,
  addLocation,
  addMoment,
  daysAgo,
  hoursAgo,
  idsOf,
  inHours,
} from './rows.ts';
import type { World } from './social.ts';

/** Rows that a task changes beside rows that it must leave alone, and a look at what became of them. */
export type Arrange = (world: World) => Promise<() => Promise<void>>;

export type CronType = Extract<TaskType, `cron:${string}`>;

/** What each entry of the cron list is there for. */
export const CRON_CASES: Readonly<Record<CronType, Arrange>> = {
  async 'cron:message_expiry'(world) {
    const account_id = await addAccount(world.db);
    const message = { account_id, body: 'hello' };
    const attachment_key = `chat/${randomUUID()}`;
    await insertInto(world.db, 'messages', { ...message, attachment_key, expires_at: hoursAgo(0.01) });
    const later = await insertInto(world.db, 'messages', { ...message, expires_at: inHours(1) });
    const lasting = await insertInto(world.db, 'messages', message);
    return async () => {
      expect(await idsOf(world.db, 'messages')).toEqual([later, lasting].sort());
      expect(await keysToDelete(world)).toEqual([attachment_key]);
    };
  },

  async 'cron:status_update'({ db }) {
    const [upcoming, live, finished, moved, archived] = [
      await addEvent(db),
      await addEvent(db, { starts_at: hoursAgo(1) }),
      await addEvent(db, { starts_at: hoursAgo(3), ends_at: hoursAgo(1), status: 'live' }),
      await addEvent(db, { status: 'finished' }),
      await addEvent(db, { status: 'archived', starts_at: hoursAgo(1) }),
    ];
    return async () => {
      const rows = await db.selectFrom('events').select(['id', 'status']).execute();
      expect(Object.fromEntries(rows.map(({ id, status }) => [id, status]))).toEqual({
        [upcoming]: 'upcoming',
        [live]: 'live',
        [finished]: 'finished',
        [moved]: 'upcoming',
        [archived]: 'archived',
      });
    };
  },

  async 'cron:redis_sync'({ db, redis, geoKey }) {
    const upcoming = await addEvent(db, { latitude: 52.52, longitude: 13.405 });
    const live = await addEvent(db, { status: 'live', latitude: -33.87, longitude: 151.21 });
    await addEvent(db, { status: 'finished' });
    await addEvent(db, { status: 'archived' });
    await addEvent(db, { deleted_at: hoursAgo(1) });
    await redis?.geoAdd(geoKey, { member: 'an event that is gone', latitude: 1, longitude: 1 });
    return async () => {
      if (redis === undefined) return;
      expect((await redis.zRange(geoKey, 0, -1)).sort()).toEqual([upcoming, live].sort());
      const [position] = await redis.geoPos(geoKey, upcoming);
      expect(Number(position?.latitude)).toBeCloseTo(52.52, 3);
      expect(Number(position?.longitude)).toBeCloseTo(13.405, 3);
    };
  },

  async 'cron:moment_cleanup'({ db }) {
    const expired = await addMoment(db, { expires_at: hoursAgo(0.01) });
    await addMoment(db, { expires_at: hoursAgo(1), is_journaled: true });
    await addMoment(db);
    return async () => {
      const deleted = await db
        .selectFrom('moments')
        .select('id')
        .where('deleted_at', 'is not', null)
        .execute();
      expect(deleted).toEqual([{ id: expired }]);
      expect(await idsOf(db, 'moments')).toHaveLength(3);
    };
  },

  async 'cron:token_cleanup'({ db }) {
    const account_id = await addAccount(db);
    const kinds = ['refresh_tokens', 'one_time_passwords', 'sessions'] as const;
    const valid = inHours(1);
    for (const kind of kinds) {
      await db
        .insertInto(kind)
        .values([
          { account_id, expires_at: hoursAgo(0.01) },
          { account_id, expires_at: valid },
        ])
        .execute();
    }
    return async () => {
      for (const kind of kinds) {
        const left = await db.selectFrom(kind).select('expires_at').execute();
        expect(left, kind).toEqual([{ expires_at: valid }]);
      }
    };
  },

  async 'cron:account_suspension'({ db }) {
    const flagged = await addAccount(db, { flagged_at: hoursAgo(1) });
    await addAccount(db);
    await addAccount(db, { flagged_at: hoursAgo(1), status: 'deactivated', deactivated_at: hoursAgo(1) });
    return async () => {
      const suspended = await db
        .selectFrom('accounts')
        .select(({ eb }) => ['id', eb('suspended_at', '<=', sql<Date>`now()`).as('is_dated')])
        .where('status', '=', 'suspended')
        .execute();
      expect(suspended).toEqual([{ id: flagged, is_dated: true }]);
    };
  },

  async 'cron:purge'(world) {
    const { db } = world;
    const orphan = `event-covers/${randomUUID()}`;
    const old = `event-covers/${randomUUID()}`;
    await addEvent(db, { host_id: null, cover_key: orphan });
    await addEvent(db, { status: 'archived', archived_at: daysAgo(15), cover_key: old });
    const kept = [
      await addEvent(db, { status: 'archived', archived_at: daysAgo(13), cover_key: 'event-covers/kept' }),
      await addEvent(db, { status: 'finished', starts_at: daysAgo(30), ends_at: daysAgo(29) }),
    ];
    return async () => {
      expect(await idsOf(db, 'events')).toEqual(kept.sort());
      expect(await keysToDelete(world)).toEqual([orphan, old].sort());
    };
  },

  async 'cron:deactivated_acct_purge'(world) {
    const { db } = world;
    const keys = ['avatars/', 'moments/', 'chat/'].map((prefix) => `${prefix}${randomUUID()}`) as [
      string,
      string,
      string,
    ];
    const [avatar_key, media_key, attachment_key] = keys;
    const gone = { status: 'deactivated' as const, deactivated_at: daysAgo(31) };
    const account_id = await addAccount(db, { ...gone, avatar_key });
    await addMoment(db, { account_id, media_key, deleted_at: hoursAgo(1) });
    await insertInto(db, 'messages', { account_id, body: 'hello', attachment_key });
    await addEvent(db, { host_id: account_id });
    const kept = [await addAccount(db, { ...gone, deactivated_at: daysAgo(29) }), await addAccount(db)];
    return async () => {
      expect(await idsOf(db, 'accounts')).toEqual(kept.sort());
      expect(await idsOf(db, 'moments')).toEqual([]);
      expect(await idsOf(db, 'messages')).toEqual([]);
      expect(await keysToDelete(world)).toEqual(keys.sort());
      // The event waits for cron:purge, as an orphan.
      expect(await db.selectFrom('events').select('host_id').execute()).toEqual([{ host_id: null }]);
    };
  },

  async 'cron:moment_purge'(world) {
    const { db } = world;
    const media_key = `moments/${randomUUID()}`;
    await addMoment(db, { deleted_at: daysAgo(8), media_key });
    const kept = [await addMoment(db, { deleted_at: daysAgo(6) }), await addMoment(db)];
    return async () => {
      expect(await idsOf(db, 'moments')).toEqual(kept.sort());
      expect(await keysToDelete(world)).toEqual([media_key]);
    };
  },

  async 'cron:challenge_archive'({ db }) {
    const reward = { grant: await addCurio(db) };
    const past = await addChallenge(db, { reward, ends_at: hoursAgo(0.01) });
    const [open, endless, draft] = [
      await addChallenge(db, { reward, ends_at: inHours(1) }),
      await addChallenge(db, { reward }),
      await addChallenge(db, { reward, status: 'draft', ends_at: hoursAgo(1) }),
    ];
    return async () => {
      const rows = await db.selectFrom('challenges').select(['id', 'status']).execute();
      expect(Object.fromEntries(rows.map(({ id, status }) => [id, status]))).toEqual({
        [past]: 'archived',
        [open]: 'published',
        [endless]: 'published',
        [draft]: 'draft',
      });
    };
  },

  async 'cron:user_stats_refresh'({ db }) {
    await addAccount(db, { country: 'NZ', last_active_at: hoursAgo(1) });
    await addAccount(db, { country: 'NZ', created_at: hoursAgo(30), last_active_at: hoursAgo(25) });
    await addAccount(db, { country: 'Côte "d\'Ivoire"', created_at: daysAgo(3) });
    // Of a country that nobody is of any more.
    const label = 'country="XX"';
    await db.insertInto('gauges').values({ name: 'tomoda_users_by_country', label, value: 7 }).execute();
    return async () => {
      expect((await renderGauges(db)).split('\n')).toEqual([
        'tomoda_users_active_24h 1',
        'tomoda_users_by_country{country="Côte \\"d\'Ivoire\\""} 1',
        'tomoda_users_by_country{country="NZ"} 2',
        'tomoda_users_new_24h 1',
        'tomoda_users_total 3',
        '',
      ]);
    };
  },

  async 'cron:notification_purge'({ db }) {
    const account_id = await addAccount(db);
    const notification = (values: object) => insertInto(db, 'notifications', { account_id, ...values });
    await notification({ read_at: daysAgo(31) });
    await notification({ expires_at: hoursAgo(0.01) });
    const kept = [
      await notification({ read_at: daysAgo(29) }),
      await notification({ expires_at: inHours(1) }),
      await notification({}),
    ];
    return async () => expect(await idsOf(db, 'notifications')).toEqual(kept.sort());
  },

  async 'cron:parsed_link_sweep'({ db }) {
    await addLink(db);
    const used = 'https://example.org/used';
    await addItem(db, { urls: [used] });
    const deleted = await addItem(db, { urls: ['https://example.org/of-a-deleted-item'] });
    await db.deleteFrom('items').where('id', '=', deleted).execute();
    const young = await addLink(db, { created_at: hoursAgo(0.5) });
    return async () => {
      const rows = await db.selectFrom('parsed_links').select(['id', 'url']).execute();
      expect(rows.map(({ id, url }) => (id === young ? 'young' : url)).sort()).toEqual([used, 'young']);
    };
  },

  async 'cron:location_enrich_sweep'(world) {
    const { db } = world;
    const never = await addLocation(db);
    await addLocation(db, { enrichment_at: hoursAgo(1) });
    return async () => {
      const tasks = await world.waiting('location:enrich');
      expect(tasks.map(({ payload, queue }) => ({ payload, queue }))).toEqual([
        { payload: { locationId: never }, queue: 'low' },
      ]);
    };
  },

  async 'cron:location_embedded_count'({ db }) {
    await addLocation(db, { embedding: [1, 0] });
    await addLocation(db, { embedding: [0, 1] });
    await addLocation(db, { embedding: [1, 0], is_active: false });
    await addLocation(db);
    return async () => expect(await renderGauges(db)).toBe('tomoda_locations_embedded_total 2\n');
  },

  async 'cron:ranking_label_prune'({ db }) {
    const impression = (query: string, days: number) =>
      insertInto(db, 'ranking_impressions', { query, shown_at: daysAgo(days) });
    const selection = (impression_id: string, days: number) =>
      insertInto(db, 'ranking_selections', { impression_id, selected_at: daysAgo(days) });
    await selection(await impression('old', 181), 181);
    const young = await impression('young', 179);
    const kept = await selection(young, 179);
    // A late selection goes with its impression.
    await selection(await impression('old too', 181), 179);
    return async () => {
      expect(await db.selectFrom('ranking_impressions').select('id').execute()).toEqual([{ id: young }]);
      expect(await db.selectFrom('ranking_selections').select('id').execute()).toEqual([{ id: kept }]);
    };
  },
};

/** What stands in waiting `cleanup:s3_delete` tasks, sorted. */
export async function keysToDelete({ waiting }: World): Promise<string[]> {
  const tasks = await waiting('cleanup:s3_delete');
  return tasks.map(({ payload }) => (payload as { key: string }).key).sort();
}

async function insertInto(
  db: SocialDatabase,
  table: 'messages' | 'notifications' | 'ranking_impressions' | 'ranking_selections',
  values: object,
): Promise<string> {
  const { id } = await db
    .insertInto(table)
    .values(values as never)
    .returning('id')
    .executeTakeFirstOrThrow();
  return id;
}
