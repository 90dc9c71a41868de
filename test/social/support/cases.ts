import { randomUUID } from 'node:crypto';
import type { PayloadInput, TaskType } from '../../../generated/social/tasks.ts';
import { EMBEDDING_DIMENSIONS } from '../../../src/social/services/location-features.ts';
import { expect } from '../../support/test.ts';
import { CRON_CASES, type CronType, keysToDelete } from './cron-cases.ts';
import { addAccount, addChallenge, addCurio, addItem, addLocation, addTravelLog, hoursAgo } from './rows.ts';
import type { World } from './social.ts';

/** One task with something to do, a look at whether it is done, and payloads that are none. */
export interface Case<Type extends TaskType> {
  arrange(world: World): Promise<{ payload: PayloadInput<Type>; check(): Promise<void> }>;
  /** Its payload when what it is about is gone. Undefined for a task that is about nothing in particular. */
  readonly gone: PayloadInput<Type> | undefined;
  /** What the schema refuses. */
  readonly refused: readonly unknown[];
}

type EventType = Exclude<TaskType, CronType>;

const NO_ID = ['', 'x', '00000000-0000-0000-0000-00000000000', 1, null, undefined];
const refusedIds = (field: string) => [
  ...NO_ID.map((value) => ({ [field]: value })),
  { [field]: randomUUID(), more: 1 },
  null,
  [],
];

const triggered = new Date('2027-01-15T12:00:00Z');

const EVENT_CASES: { readonly [Type in EventType]: Case<Type> } = {
  'location:enrich': {
    async arrange({ db }) {
      const locationId = await addLocation(db);
      return {
        payload: { locationId },
        async check() {
          const [location] = await db.selectFrom('locations').selectAll().execute();
          expect(location?.enrichment_at).toBeInstanceOf(Date);
          expect(location?.geohash).toMatch(/^u33d/);
          expect(location?.embedding).toHaveLength(EMBEDDING_DIMENSIONS);
        },
      };
    },
    gone: { locationId: randomUUID() },
    refused: refusedIds('locationId'),
  },

  'engine:eval_travel_log': {
    async arrange(world) {
      const { accountId, check } = await addEarner(world);
      return { payload: { travelLogId: await addTravelLog(world.db, accountId) }, check };
    },
    gone: { travelLogId: randomUUID() },
    refused: refusedIds('travelLogId'),
  },

  'engine:eval_user_activated': {
    async arrange(world) {
      const { accountId, check } = await addEarner(world);
      await addTravelLog(world.db, accountId);
      return { payload: { accountId }, check };
    },
    gone: { accountId: randomUUID() },
    refused: refusedIds('accountId'),
  },

  'engine:expire_challenge': {
    async arrange({ db }) {
      const reward = { grant: await addCurio(db) };
      const challenge_id = await addChallenge(db, { reward, ends_at: hoursAgo(0.01) });
      const [met, unmet] = [await addAccount(db), await addAccount(db)];
      await db
        .insertInto('challenge_progress')
        .values([
          { account_id: met, challenge_id, is_satisfied: true },
          { account_id: unmet, challenge_id, is_satisfied: false },
        ])
        .execute();
      return {
        payload: { challengeId: challenge_id },
        async check() {
          const progress = await db.selectFrom('challenge_progress').select('account_id').execute();
          expect(progress).toEqual([{ account_id: met }]);
          const challenges = await db.selectFrom('challenges').select('status').execute();
          expect(challenges).toEqual([{ status: 'archived' }]);
        },
      };
    },
    gone: { challengeId: randomUUID() },
    refused: refusedIds('challengeId'),
  },

  'engine:replay_challenge': {
    async arrange(world) {
      const { accountId, challengeId, check } = await addEarner(world);
      await addTravelLog(world.db, accountId);
      return { payload: { challengeId }, check };
    },
    gone: { challengeId: randomUUID() },
    refused: refusedIds('challengeId'),
  },

  'engine:replay_stamp': {
    async arrange(world) {
      const { db } = world;
      const curioId = await addCurio(db);
      const naming = await addChallenge(db, { reward: { all: [{ grant: curioId }] } });
      await addChallenge(db, { reward: { grant: await addCurio(db) } });
      return {
        payload: { curioId },
        async check() {
          const replays = await world.waiting('engine:replay_challenge');
          expect(replays.map(({ payload }) => payload)).toEqual([{ challengeId: naming }]);
        },
      };
    },
    gone: { curioId: randomUUID() },
    refused: refusedIds('curioId'),
  },

  'item:parse': {
    async arrange(world) {
      const { db } = world;
      const capture = 'Hike the #Routeburn\nhttps://example.org/a#top and https://example.org/b.';
      const itemId = await addItem(db, { capture, urls: ['https://example.org/of-an-earlier-capture'] });
      return {
        payload: { itemId },
        async check() {
          const items = await db.selectFrom('items').select(['title', 'tags', 'parsed_revision']).execute();
          expect(items).toEqual([{ title: 'Hike the #Routeburn', tags: ['routeburn'], parsed_revision: 1 }]);
          expect(await urlsOf(world, itemId)).toEqual(['https://example.org/a', 'https://example.org/b']);
          expect(await world.waiting('link:enrich')).toMatchObject([{ payload: { itemId }, queue: 'low' }]);
        },
      };
    },
    gone: { itemId: randomUUID() },
    refused: refusedIds('itemId'),
  },

  'link:enrich': {
    async arrange({ db, site }) {
      site.pages.set('/a', '<title>About a</title><meta name="description" content="All of a">');
      const url = `${site.url}/a`;
      const itemId = await addItem(db, { urls: [url, `${site.url}/gone`] });
      return {
        payload: { itemId },
        async check() {
          const links = await db
            .selectFrom('parsed_links')
            .select(['title', 'description', 'problem'])
            .orderBy('url')
            .execute();
          expect(links).toEqual([
            { title: 'About a', description: 'All of a', problem: null },
            { title: null, description: null, problem: 'the page answers 404' },
          ]);
          // The quota is taken once, however often the task has run.
          const spends = await db.selectFrom('enrichment_spends').select('links').execute();
          expect(spends).toEqual([{ links: 2 }]);
        },
      };
    },
    gone: { itemId: randomUUID() },
    refused: [...refusedIds('itemId'), { itemId: randomUUID(), force: 'yes' }],
  },

  'cleanup:s3_delete': {
    async arrange({ put, keys }) {
      await put('avatars/gone', 'avatars/kept');
      return {
        payload: { key: 'avatars/gone', triggered },
        check: async () => expect(await keys()).toEqual(['avatars/kept']),
      };
    },
    gone: { key: 'avatars/deleted-already', triggered },
    refused: [{ triggered }, { key: null, triggered }, { key: 'a' }, { key: 'a', triggered: 'now' }, null],
  },

  'cleanup:s3_orphan_sweep': {
    async arrange(world) {
      await addAccount(world.db, { avatar_key: 'avatars/owned' });
      await world.put('avatars/owned', 'avatars/orphan', 'moments/of-another-prefix');
      return {
        payload: { prefix: 'avatars/', triggered },
        async check() {
          expect(await keysToDelete(world)).toEqual(['avatars/orphan']);
          expect(await world.keys()).toHaveLength(3);
        },
      };
    },
    gone: { prefix: 'chat/', triggered },
    refused: [{}, { prefix: 1, triggered }, { prefix: 'avatars/', triggered, more: 1 }],
  },
};

/** The same for every task type. */
export const CASES: { readonly [Type in TaskType]: Case<Type> } = { ...EVENT_CASES, ...cronCases() };

function cronCases(): { readonly [Type in CronType]: Case<Type> } {
  const cases = Object.entries(CRON_CASES).map(([type, arrange]) => [
    type,
    {
      arrange: async (world: World) => ({ payload: {}, check: await arrange(world) }),
      gone: undefined,
      refused: [{ unexpected: 1 }, null, [], ''],
    },
  ]);
  return Object.fromEntries(cases) as { readonly [Type in CronType]: Case<Type> };
}

/** An account, and a challenge whose stamp it earns with its first journey. */
async function addEarner({ db }: World) {
  const accountId = await addAccount(db);
  const curioId = await addCurio(db);
  const challengeId = await addChallenge(db, { reward: { grant: curioId } });
  return {
    accountId,
    challengeId,
    async check() {
      const grants = await db
        .selectFrom('curio_grants')
        .select(['account_id', 'curio_id', 'challenge_id'])
        .execute();
      expect(grants).toEqual([{ account_id: accountId, curio_id: curioId, challenge_id: challengeId }]);
    },
  };
}

export async function urlsOf({ db }: World, itemId: string): Promise<string[]> {
  const rows = await db
    .selectFrom('item_links')
    .innerJoin('parsed_links', 'parsed_links.id', 'item_links.link_id')
    .select('url')
    .where('item_id', '=', itemId)
    .orderBy('url')
    .execute();
  return rows.map(({ url }) => url);
}
