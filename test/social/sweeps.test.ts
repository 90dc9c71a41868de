import { sql } from 'kysely';
import { createHandlers } from '../../src/social/handlers/index.ts';
import { Items } from '../../src/social/services/items.ts';
import { transactionWithin } from '../../src/social/services/run-limits.ts';
import { createServices } from '../../src/social/services/wiring.ts';
import { runTask } from '../../src/testing/index.ts';
import { urlsOf } from './support/cases.ts';
import { watchedStores } from './support/faults.ts';
import { addAccount, addEvent, addItem, addLink, addMoment, hoursAgo, idsOf } from './support/rows.ts';
import { describe, expect, test, untilWaiting, type World } from './support/social.ts';

async function addExpiredMessages({ db }: World, count: number): Promise<void> {
  const accountId = await addAccount(db);
  await sql`
    INSERT INTO messages (account_id, body, expires_at)
    SELECT ${accountId}, 'hello', now() - interval '1 minute' FROM generate_series(1, ${count}::int)`.execute(
    db,
  );
}

async function addEvents({ db }: World, count: number): Promise<void> {
  const host = await addAccount(db);
  await sql`
    INSERT INTO events (host_id, title, latitude, longitude, starts_at, ends_at)
    SELECT ${host}, 'meet', n / 100.0, n / 50.0, now(), now() + interval '1 hour'
    FROM generate_series(1, ${count}::int) AS n`.execute(db);
}

describe('a sweep', () => {
  test('goes through any number of rows in batches of a thousand', async ({ world }) => {
    await addExpiredMessages(world, 2_500);
    const ran = await world.run('cron:message_expiry', {});
    expect(ran.result).toEqual({ deleted: 2_500 });
    expect(await idsOf(world.db, 'messages')).toEqual([]);
  });

  test('interrupted behind its first batch, it has done that one and no other', async ({ world }) => {
    await addExpiredMessages(world, 2_500);
    const interruption = new AbortController();
    let statements = 0;
    const stores = watchedStores(world, {
      // The first statement of the second batch.
      afterStatement() {
        statements += 1;
        if (statements === 2) interruption.abort();
      },
    });
    const handlers = createHandlers(createServices(stores));
    const { signal } = interruption;
    const ran = await runTask(handlers, 'cron:message_expiry', {}, { signal, interruptedBy: 'deadline' });
    expect(ran).toMatchObject({ outcome: 'timeout' });
    expect(await idsOf(world.db, 'messages')).toHaveLength(1_500);
  });

  test('passes over a row that somebody has locked, and waits for nobody', async ({ world }) => {
    const { db } = world;
    const locked = await addMoment(db, { expires_at: hoursAgo(1) });
    await addMoment(db, { expires_at: hoursAgo(1) });
    await addExpiredMessages(world, 2);
    await db.transaction().execute(async (tx) => {
      await tx.selectFrom('moments').select('id').where('id', '=', locked).forUpdate().execute();
      await tx.selectFrom('messages').select('id').limit(1).forUpdate().execute();
      const cleanedUp = await world.run('cron:moment_cleanup', {});
      expect(cleanedUp.result).toEqual({ softDeleted: 1 });
      const expired = await world.run('cron:message_expiry', {});
      expect(expired.result).toEqual({ deleted: 1 });
    });
    const cleanedUp = await world.run('cron:moment_cleanup', {});
    expect(cleanedUp.result).toEqual({ softDeleted: 1 });
  });

  test('two at once do the work once', async ({ world }) => {
    await addExpiredMessages(world, 1_500);
    const runs = await Promise.all(
      Array.from({ length: 4 }, () => runTask(world.handlers, 'cron:message_expiry', {})),
    );
    expect(runs.map(({ outcome }) => outcome)).toEqual(['success', 'success', 'success', 'success']);
    expect(await idsOf(world.db, 'messages')).toEqual([]);
  });
});

describe('cron:parsed_link_sweep', () => {
  test('a link that an item takes up meanwhile stays', async ({ world }) => {
    const { db, handlers } = world;
    const url = 'https://example.org/old';
    await addLink(db, { url });
    const itemId = await addItem(db, { capture: url });
    const { sweeping } = await db.transaction().execute(async (tx) => {
      // As item:parse does: the link's row is locked by whoever takes it up.
      const { id: link_id } = await tx
        .updateTable('parsed_links')
        .set({ url })
        .where('url', '=', url)
        .returning('id')
        .executeTakeFirstOrThrow();
      const sweeping = await runTask(handlers, 'cron:parsed_link_sweep', {});
      await tx.insertInto('item_links').values({ item_id: itemId, link_id }).execute();
      return { sweeping };
    });
    expect(sweeping).toMatchObject({ outcome: 'success' });
    expect(await urlsOf(world, itemId)).toEqual([url]);
  });

  test('a parse whose link is being swept writes the link anew', async ({ world }) => {
    const { db } = world;
    const url = 'https://example.org/old';
    const swept = await addLink(db, { url });
    const itemId = await addItem(db, { capture: url });
    const limits = { signal: new AbortController().signal, remainingMs: () => 60_000 };
    const { parsing } = await db.transaction().execute(async (tx) => {
      await tx.deleteFrom('parsed_links').where('id', '=', swept).execute();
      const parsing = new Items(db).parse(itemId, limits);
      await untilWaiting(db);
      return { parsing };
    });
    expect(await parsing).toBe('parsed');
    expect(await urlsOf(world, itemId)).toEqual([url]);
  });
});

describe('cron:redis_sync', () => {
  test('is done without Redis, and says so', async ({ world }) => {
    await addEvent(world.db);
    const ran = await world.run('cron:redis_sync', {}, { geo: undefined });
    expect(ran).toMatchObject({ outcome: 'success', result: { skipped: 'there is no Redis' } });
  });

  test('puts thousands of events on the map, page by page, and takes the last one off', async ({
    world,
    skip,
  }) => {
    const { db, redis, geoKey } = world;
    if (redis === undefined) return skip('there is no Redis');
    await addEvents(world, 2_500);
    expect((await world.run('cron:redis_sync', {})).result).toEqual({ synced: 2_500 });
    expect(await redis.zCard(geoKey)).toBe(2_500);
    await db.updateTable('events').set({ status: 'finished' }).execute();
    expect((await world.run('cron:redis_sync', {})).result).toEqual({ synced: 0 });
    expect(await redis.exists(geoKey)).toBe(0);
    expect(await redis.keys(`${geoKey}*`)).toEqual([]);
  });

  test('interrupted, it leaves the map as it was', async ({ world, skip }) => {
    const { redis, geoKey } = world;
    if (redis === undefined) return skip('there is no Redis');
    await redis.geoAdd(geoKey, { member: 'an event of before', latitude: 1, longitude: 1 });
    await addEvents(world, 1_500);
    const interruption = new AbortController();
    let pages = 0;
    const stores = watchedStores(world, {
      // By then the first page of events is in Redis.
      afterStatement() {
        pages += 1;
        if (pages === 2) interruption.abort();
      },
    });
    const { signal } = interruption;
    const handlers = createHandlers(createServices(stores));
    const ran = await runTask(handlers, 'cron:redis_sync', {}, { signal, interruptedBy: 'deadline' });
    expect(ran).toMatchObject({ outcome: 'timeout' });
    expect(await redis.zRange(geoKey, 0, -1)).toEqual(['an event of before']);
  });
});

test('a statement that waits for a lock ends with its run, and the run counts as interrupted', async ({
  world,
}) => {
  const { db } = world;
  const id = await addAccount(db);
  const interruption = new AbortController();
  const limits = { signal: interruption.signal, remainingMs: () => 500 };
  await db.transaction().execute(async (tx) => {
    const lock = (session: typeof tx) =>
      session.selectFrom('accounts').select('id').where('id', '=', id).forUpdate();
    await lock(tx).execute();
    const waiting = transactionWithin(db, limits, (other) => lock(other).execute());
    const ended = expect(waiting).rejects.toThrow('the deadline');
    await untilWaiting(db);
    interruption.abort(new Error('the deadline'));
    await ended;
  });
});
