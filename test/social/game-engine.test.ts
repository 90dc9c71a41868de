import { openOperator } from '../../src/operator.ts';
import { grantedBy, isSatisfied, type Reward, type Rule } from '../../src/social/services/challenge-rules.ts';
import {
  activateAccount,
  publishChallenge,
  requestReplay,
  writeTravelLog,
} from '../../src/social/services/game-engine.ts';
import { createTestClock, drain, runTask } from '../../src/testing/index.ts';
import {
  addAccount,
  addChallenge,
  addCurio,
  addTravelLog,
  daysAgo,
  hoursAgo,
  inHours,
} from './support/rows.ts';
import { describe, expect, onTestFinished, test, type World } from './support/social.ts';

const travels = [
  { country: 'NZ', category: 'hike' },
  { country: 'NZ', category: 'museum' },
  { country: 'DE', category: 'hike' },
];
const facts = { isActivated: true, travels };

describe('the rule tree', () => {
  test.for<[Rule, boolean]>([
    [{ visits: { atLeast: 3 } }, true],
    [{ visits: { atLeast: 4 } }, false],
    [{ visits: { atLeast: 2, country: 'NZ' } }, true],
    [{ visits: { atLeast: 2, category: 'hike' } }, true],
    [{ visits: { atLeast: 2, country: 'NZ', category: 'hike' } }, false],
    [{ countries: { atLeast: 2 } }, true],
    [{ countries: { atLeast: 3 } }, false],
    [{ activated: true }, true],
    [{ not: { activated: true } }, false],
    [{ all: [{ activated: true }, { countries: { atLeast: 2 } }] }, true],
    [{ all: [{ activated: true }, { countries: { atLeast: 3 } }] }, false],
    [{ any: [{ countries: { atLeast: 3 } }, { visits: { atLeast: 1 } }] }, true],
    [{ any: [{ countries: { atLeast: 3 } }, { not: { activated: true } }] }, false],
  ])('%j is %s', ([rule, expected]) => {
    expect(isSatisfied(rule, facts)).toBe(expected);
  });

  test.for<[Reward, string[]]>([
    [{ grant: 'a' }, ['a']],
    [{ all: [{ grant: 'a' }, { grant: 'b' }, { grant: 'a' }] }, ['a', 'b']],
    [{ when: { countries: { atLeast: 2 } }, reward: { grant: 'a' } }, ['a']],
    [{ when: { countries: { atLeast: 9 } }, reward: { grant: 'a' } }, []],
    [{ when: { countries: { atLeast: 9 } }, reward: { grant: 'a' }, otherwise: { grant: 'b' } }, ['b']],
  ])('%j rewards %j', ([reward, expected]) => {
    expect(grantedBy(reward, facts)).toEqual(expected);
  });
});

const grantsOf = async ({ db }: World) =>
  (await db.selectFrom('curio_grants').select(['account_id', 'curio_id']).execute()).map(
    ({ account_id, curio_id }) => `${account_id} ${curio_id}`,
  );

describe('engine:eval_*', () => {
  test('a travel log that is written earns what its account has earned with it, once', async ({ world }) => {
    const { db, handlers } = world;
    const [accountId, curio, other] = [await addAccount(db), await addCurio(db), await addCurio(db)];
    await addChallenge(db, { rule: { countries: { atLeast: 2 } }, reward: { grant: curio } });
    await addChallenge(db, { rule: { visits: { atLeast: 9 } }, reward: { grant: other } });
    const log = { accountId, country: 'NZ', category: 'hike' };
    await db.transaction().execute((tx) => writeTravelLog(tx, log));
    await drain({ db, handlers });
    expect(await grantsOf(world)).toEqual([]);
    for (const country of ['DE', 'FR']) {
      await db.transaction().execute((tx) => writeTravelLog(tx, { ...log, country }));
    }
    expect(await world.waiting()).toMatchObject([{ queue: 'critical' }, { queue: 'critical' }]);
    await drain({ db, handlers });
    expect(await grantsOf(world)).toEqual([`${accountId} ${curio}`]);
    const progress = await db.selectFrom('challenge_progress').select('is_satisfied').execute();
    expect(progress.map((row) => row.is_satisfied).sort()).toEqual([false, true]);
  });

  test('a log that was not committed leaves no task', async ({ world }) => {
    const accountId = await addAccount(world.db);
    const work = world.db.transaction().execute(async (tx) => {
      await writeTravelLog(tx, { accountId, country: 'NZ', category: 'hike' });
      throw new Error('rolled back');
    });
    await expect(work).rejects.toThrow('rolled back');
    expect(await world.waiting()).toEqual([]);
  });

  test('an activation is evaluated too; only journeys within the window count, only active accounts earn', async ({
    world,
  }) => {
    const { db, handlers } = world;
    const [curio, late] = [await addCurio(db), await addCurio(db)];
    await addChallenge(db, { rule: { activated: true }, reward: { grant: curio } });
    await addChallenge(db, { starts_at: hoursAgo(1), ends_at: inHours(1), reward: { grant: late } });
    const accountId = await addAccount(db);
    const suspended = await addAccount(db, { status: 'suspended' });
    await addTravelLog(db, accountId, { travelled_at: hoursAgo(2) });
    for (const id of [accountId, suspended]) await db.transaction().execute((tx) => activateAccount(tx, id));
    await drain({ db, handlers });
    expect(await grantsOf(world)).toEqual([`${accountId} ${curio}`]);
  });

  test('two evaluations at once grant each curio once', async ({ world }) => {
    const { db } = world;
    const accountId = await addAccount(db);
    const curio = await addCurio(db);
    await addChallenge(db, { reward: { grant: curio } });
    const travelLogId = await addTravelLog(db, accountId);
    const runs = await Promise.all(
      Array.from({ length: 8 }, () => runTask(world.handlers, 'engine:eval_travel_log', { travelLogId })),
    );
    expect(new Set(runs.map(({ outcome }) => outcome))).toEqual(new Set(['success']));
    expect(await grantsOf(world)).toEqual([`${accountId} ${curio}`]);
  });

  test('a tree that cannot be read makes a dead letter; what others have earned is granted', async ({
    world,
  }) => {
    const { db } = world;
    const accountId = await addAccount(db);
    const curio = await addCurio(db);
    const broken = await addChallenge(db, { rule: { visit: 1 } as never, reward: { grant: curio } });
    const whole = await addChallenge(db, { reward: { grant: curio } });
    const ran = await world.run('engine:eval_travel_log', { travelLogId: await addTravelLog(db, accountId) });
    expect(ran).toMatchObject({ attempt: 1, dead: true, error: expect.stringContaining(broken) });
    const grants = await db.selectFrom('curio_grants').select('challenge_id').execute();
    expect(grants).toEqual([{ challenge_id: whole }]);
    // Mended and replayed, nothing is missing.
    await db
      .updateTable('challenges')
      .set({ rule: { visits: { atLeast: 1 } } })
      .where('id', '=', broken)
      .execute();
    const operator = await openOperator({ database: world.databaseUrl });
    onTestFinished(() => operator.close());
    expect(await operator.replay(ran.id)).toMatchObject({});
    const runs = await drain({ db, handlers: world.handlers });
    expect(runs.map(({ outcome }) => outcome)).toEqual(['success']);
    expect(await grantsOf(world)).toHaveLength(2);
  });
});

describe('engine:expire_challenge', () => {
  test('waits for the end of the window, and moves along with it', async ({ world }) => {
    const { db, handlers } = world;
    const time = await createTestClock(world.databaseUrl);
    await time.set('2027-01-15T12:00:00Z');
    const reward = { grant: await addCurio(db) };
    const challengeId = await addChallenge(db, { status: 'draft', reward });
    const publish = (endsAt: string) =>
      db.transaction().execute((tx) => publishChallenge(tx, challengeId, new Date(endsAt)));
    await publish('2027-01-15T13:00:00Z');
    await publish('2027-01-15T14:00:00Z');
    expect(await world.waiting()).toMatchObject([{ runAt: new Date('2027-01-15T14:00:00Z') }]);
    await time.set('2027-01-15T13:30:00Z');
    expect(await drain({ database: time.connection, handlers })).toEqual([]);
  });

  test('does nothing to a challenge whose window has not ended', async ({ world }) => {
    const reward = { grant: await addCurio(world.db) };
    const challengeId = await addChallenge(world.db, { reward, ends_at: inHours(1) });
    expect(await world.run('engine:expire_challenge', { challengeId })).toMatchObject({ outcome: 'success' });
    const challenges = await world.db.selectFrom('challenges').select('status').execute();
    expect(challenges).toEqual([{ status: 'published' }]);
  });

  test('rules that cannot be read are not published', async ({ world }) => {
    const reward = { grant: await addCurio(world.db) };
    const challengeId = await addChallenge(world.db, { status: 'draft', rule: { all: [] }, reward });
    const publishing = world.db.transaction().execute((tx) => publishChallenge(tx, challengeId, inHours(1)));
    await expect(publishing).rejects.toThrow();
    expect(await world.waiting()).toEqual([]);
  });
});

describe('engine:replay_*', () => {
  test('a replay goes through all accounts in slices, and gives its slot back between them', async ({
    world,
  }) => {
    const { db, handlers } = world;
    const curio = await addCurio(db);
    const challengeId = await addChallenge(db, { reward: { grant: curio } });
    const accounts = Array.from({ length: 501 }, (_, index) => ({ handle: `traveller ${index}` }));
    const ids = await db.insertInto('accounts').values(accounts).returning('id').execute();
    const logs = ids.map(({ id }) => ({
      account_id: id,
      country: 'NZ',
      category: 'hike',
      travelled_at: daysAgo(1),
    }));
    await db.insertInto('travel_logs').values(logs).execute();
    await requestReplay(db, { challengeId });
    const runs = await drain({ db, handlers });
    expect(runs.map(({ outcome }) => outcome)).toEqual(['continued', 'success']);
    expect(await grantsOf(world)).toHaveLength(501);
  });

  test('a stamp is replayed by every challenge that may reward it, each once', async ({ world }) => {
    const { db, handlers } = world;
    const [curioId, other] = [await addCurio(db), await addCurio(db)];
    const accountId = await addAccount(db);
    await addTravelLog(db, accountId);
    const unlikely = {
      when: { countries: { atLeast: 99 } },
      reward: { grant: curioId },
      otherwise: { grant: other },
    };
    const naming = [
      await addChallenge(db, { reward: { grant: curioId } }),
      await addChallenge(db, { reward: unlikely, status: 'archived' }),
    ];
    await addChallenge(db, { reward: { grant: other } });
    await addChallenge(db, { reward: { grant: curioId }, status: 'draft' });
    await requestReplay(db, { curioId });
    await requestReplay(db, { curioId });
    const runs = await drain({ db, handlers });
    expect(runs.filter(({ type }) => type === 'engine:replay_challenge')).toHaveLength(2);
    const grants = await db.selectFrom('curio_grants').select('challenge_id').execute();
    expect(grants.map(({ challenge_id }) => challenge_id).sort()).toEqual(naming.sort());
  });
});
