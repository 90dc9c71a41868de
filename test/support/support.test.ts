import pg from 'pg';
import { ManualClock } from './clock.ts';
import { administer } from './databases.ts';
import { FaultProxy } from './fault-proxy.ts';
import { waitUntilBlocked } from './locks.ts';
import { requirePgbouncer, startPgbouncer } from './pgbouncer.ts';
import { startReplicaPair } from './replica-pair.ts';
import { describe, expect, inject, onTestFinished, test } from './test.ts';
import { waitFor } from './wait.ts';

describe('a database of its own per test', () => {
  test('is migrated and empty', async ({ db }) => {
    expect(await db.selectFrom('async_tasks').selectAll().execute()).toEqual([]);
    await db.insertInto('async_tasks').values({ task_type: 'x', payload: '{}' }).execute();
  });

  test('is not shared with another test', async ({ db, database }) => {
    expect(database.name).toMatch(/^taskq_test_is_not_shared_with_another_test_[0-9a-f]{8}$/);
    expect(await db.selectFrom('async_tasks').selectAll().execute()).toEqual([]);
    const { rows } = await administer(inject('serverUrl'), 'SELECT count(*)::int AS n FROM pg_database');
    expect(rows[0].n).toBeGreaterThanOrEqual(5);
  });
});

test('waiting in vain names what was waited for', async () => {
  await expect(waitFor(() => false, { timeoutMs: 20, what: 'godot' })).rejects.toThrow('godot');
});

describe('the fault proxy', () => {
  test('passes, delays, swallows, refuses and resets', async ({ database }) => {
    const proxy = await FaultProxy.start(database.connection);
    onTestFinished(() => proxy.stop());
    const client = new pg.Client({ ...proxy.connection, query_timeout: 300 });
    const ended = new Promise<Error>((resolve) => client.on('error', resolve));
    await client.connect();
    expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    proxy.mode = 'latency';
    const sentAt = performance.now();
    await client.query('SELECT 1');
    expect(performance.now() - sentAt).toBeGreaterThan(190);
    proxy.mode = 'blackhole';
    await expect(client.query('SELECT 1')).rejects.toThrow('Query read timeout');
    proxy.mode = 'refuse';
    await expect(administer(proxy.url, 'SELECT 1')).rejects.toThrow(/ECONNRESET|terminated/);
    proxy.resetAll();
    expect(await ended).toBeInstanceOf(Error);
    proxy.mode = 'pass';
    expect((await administer(proxy.url, 'SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  });
});

test('a replica shows what the primary committed, later when its replay is paused, and can take over', async () => {
  const pair = await startReplicaPair();
  onTestFinished(() => pair.stop());
  const count = async () =>
    (await administer(pair.replica.url(), 'SELECT count(*)::int AS n FROM seen')).rows[0].n;
  await administer(pair.primary.url(), 'CREATE TABLE seen (i int)', 'INSERT INTO seen VALUES (1)');
  await pair.caughtUp();
  expect(await count()).toBe(1);
  await pair.pauseReplay();
  await administer(pair.primary.url(), 'INSERT INTO seen VALUES (2)');
  expect(await count()).toBe(1);
  await pair.resumeReplay();
  await pair.caughtUp();
  expect(await count()).toBe(2);
  await expect(administer(pair.replica.url(), 'INSERT INTO seen VALUES (3)')).rejects.toThrow('read-only');
  await pair.primary.crash();
  await pair.promote();
  await administer(pair.replica.url(), 'INSERT INTO seen VALUES (3)');
  expect(await count()).toBe(3);
});

test('a pooler in transaction mode answers', async ({ database, skip }) => {
  await requirePgbouncer({ skip });
  const pooler = await startPgbouncer(database.connection);
  onTestFinished(() => pooler.stop());
  const { rows } = await administer(pooler.url, 'SELECT current_database() AS name');
  expect(rows).toEqual([{ name: database.name }]);
});

test('a manual clock fires timers in order, those set on the way included', () => {
  const clock = new ManualClock({ monotonic: 0 });
  const fired: string[] = [];
  clock.after(30, () => fired.push('30'));
  clock.after(10, () => {
    fired.push('10');
    clock.after(5, () => fired.push(`15 at ${clock.monotonic()}`));
  });
  clock.after(20, () => fired.push('never')).cancel();
  clock.advance(29);
  expect(fired).toEqual(['10', '15 at 15']);
  expect(clock.nextInMs).toBe(1);
  clock.advance(1);
  expect([fired.at(-1), clock.pendingCount]).toEqual(['30', 0]);
});

test('a session that waits for a lock is noticed', async ({ db, database }) => {
  await db.insertInto('async_tasks').values({ task_type: 'x', payload: '{}' }).execute();
  const lock = db.selectFrom('async_tasks').select('id').forUpdate();
  const { other } = await db.transaction().execute(async (holder) => {
    await holder.executeQuery(lock);
    const other = db.transaction().execute((waiter) => waiter.executeQuery(lock));
    await waitUntilBlocked(database.url);
    return { other };
  });
  expect((await other).rows).toHaveLength(1);
});
