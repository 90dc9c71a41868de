import { enqueue } from '../../generated/social/tasks.ts';
import { openOperator } from '../../src/operator.ts';
import { createHandlers } from '../../src/social/handlers/index.ts';
import { sweptPrefixes } from '../../src/social/services/asset-prefixes.ts';
import { requestOrphanSweep } from '../../src/social/services/assets.ts';
import { DiskStorage, S3Storage } from '../../src/social/services/file-storage.ts';
import { createServices } from '../../src/social/services/wiring.ts';
import { createTestClock, drain, runTask } from '../../src/testing/index.ts';
import { keysToDelete } from './support/cron-cases.ts';
import { deadStores, silentStorage, watchedStores } from './support/faults.ts';
import { addAccount, addEvent, addMoment, hoursAgo } from './support/rows.ts';
import { describe, expect, onTestFinished, test, type World } from './support/social.ts';

const triggered = new Date();

/** So many keys below a prefix, `avatars/00001` and on. */
function keysOf(count: number, prefix = 'avatars/'): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}${String(index).padStart(5, '0')}`);
}

async function putMany(world: World, keys: readonly string[]): Promise<void> {
  for (let first = 0; first < keys.length; first += 50) {
    await Promise.all(keys.slice(first, first + 50).map((key) => world.put(key)));
  }
}

describe('cleanup:s3_delete', () => {
  test.for(['', 'stamps/nz.png', 'stamps/bespoke/one.png', 'curios/kiwi.png'])(
    "refuses the key '%s': a dead letter at once, and the object stays",
    async (key, { world }) => {
      if (key !== '') await world.put(key);
      const ran = await world.run('cleanup:s3_delete', { key, triggered });
      expect(ran).toMatchObject({ attempt: 1, outcome: 'failure', dead: true });
      expect(await world.keys()).toEqual(key === '' ? [] : [key]);
    },
  );

  test('deletes exactly the key, not what begins like it', async ({ world }) => {
    const siblings = [
      'avatars/a/1',
      'avatars/ab',
      'avatars/A',
      'avatars/a ',
      'logs/avatars/a',
      'avatars/a%2F1',
    ];
    await world.put('avatars/a', ...siblings);
    await world.run('cleanup:s3_delete', { key: 'avatars/a', triggered });
    expect(await world.keys()).toEqual(siblings.sort());
  });

  test('a store that fails costs a retry each time; after the fourth run it is a dead letter', async ({
    world,
  }) => {
    const time = await createTestClock(world.databaseUrl);
    const handlers = createHandlers(createServices(await deadStores(world)));
    await enqueue(world.db, 'cleanup:s3_delete', { key: 'avatars/a', triggered });
    const runs = [];
    for (let attempt = 1; attempt <= 5; attempt += 1) {
      runs.push(...(await drain({ database: time.connection, handlers })));
      await time.advance('1h');
    }
    expect(runs.map(({ attempt, dead }) => ({ attempt, dead }))).toEqual([
      { attempt: 1, dead: false },
      { attempt: 2, dead: false },
      { attempt: 3, dead: false },
      { attempt: 4, dead: true },
    ]);
    const operator = await openOperator({ database: world.databaseUrl });
    onTestFinished(() => operator.close());
    const [dead] = await operator.listDead({ limit: 10 });
    expect(dead?.lastError).toContain('ECONNREFUSED');
  });

  test('the signal reaches a store that does not answer', async ({ world }) => {
    const { storage, asked } = await silentStorage();
    const handlers = createHandlers(createServices({ ...world.stores, storage }));
    const interruption = new AbortController();
    void asked.then(() => interruption.abort());
    const ran = await runTask(
      handlers,
      'cleanup:s3_delete',
      { key: 'avatars/a', triggered },
      { signal: interruption.signal, interruptedBy: 'deadline' },
    );
    expect(ran).toMatchObject({ outcome: 'timeout', dead: false });
  });
});

describe('cleanup:s3_orphan_sweep', () => {
  test('enqueues one delete for each key that no row owns, however often it runs, and deletes nothing', async ({
    world,
  }) => {
    const [owned, orphan] = ['avatars/owned', 'avatars/orphan'];
    await addAccount(world.db, { avatar_key: owned });
    await world.put(owned, orphan, 'moments/of-another-prefix', 'avatars-old/sibling');
    for (let sweep = 0; sweep < 2; sweep += 1) {
      const ran = await world.run('cleanup:s3_orphan_sweep', { prefix: 'avatars/', triggered });
      expect(ran).toMatchObject({ outcome: 'success' });
    }
    expect(await keysToDelete(world)).toEqual([orphan]);
    expect(await world.waiting('cleanup:s3_delete')).toMatchObject([{ queue: 'low', maxAttempts: 4 }]);
    expect(await world.keys()).toHaveLength(4);
  });

  test('rows that are only marked as deleted still own their assets', async ({ world }) => {
    await addMoment(world.db, { media_key: 'moments/a', deleted_at: hoursAgo(1) });
    await addEvent(world.db, { cover_key: 'event-covers/a', deleted_at: hoursAgo(1), host_id: null });
    await world.put('moments/a', 'event-covers/a');
    await world.run('cleanup:s3_orphan_sweep', { prefix: 'moments/', triggered });
    await world.run('cleanup:s3_orphan_sweep', { prefix: 'event-covers/', triggered });
    expect(await keysToDelete(world)).toEqual([]);
  });

  test.for(['stamps/', 'stamps/bespoke/', 'curios/', '', 'avatars', 'avatars/a', 'nobody/', undefined])(
    "refuses '%s': curated, unknown, or no whole prefix",
    async (prefix, { world }) => {
      await world.put('stamps/a', 'stamps/bespoke/a', 'curios/a', 'avatars/a', 'avatarsb');
      const ran = await world.run('cleanup:s3_orphan_sweep', { prefix, triggered });
      expect(ran).toMatchObject({ attempt: 1, outcome: 'failure', dead: true });
      expect(await keysToDelete(world)).toEqual([]);
      expect(await requestOrphanSweep(world.db, prefix ?? '')).toBeUndefined();
    },
  );

  test('an administrator may ask for each prefix that people upload to', async ({ world }) => {
    for (const prefix of sweptPrefixes()) expect(await requestOrphanSweep(world.db, prefix)).toBeDefined();
    expect(await world.waiting('cleanup:s3_orphan_sweep')).toHaveLength(4);
  });

  test('an object whose row may still be on its way is no orphan yet', async ({ world }) => {
    await world.put('avatars/just-uploaded');
    const ran = await world.run(
      'cleanup:s3_orphan_sweep',
      { prefix: 'avatars/', triggered },
      { orphanAgeMs: 60_000 },
    );
    expect(ran).toMatchObject({ outcome: 'success', dead: false });
    expect(await keysToDelete(world)).toEqual([]);
  });

  test('is done without a look where the storage is not S3', async ({ world }) => {
    const storage = new DiskStorage('/nowhere');
    const ran = await world.run('cleanup:s3_orphan_sweep', { prefix: 'avatars/', triggered }, { storage });
    expect(ran).toMatchObject({ attempt: 1, outcome: 'success' });
    expect(await world.waiting()).toEqual([]);
  });

  test.for([0, 1_000, 2_500])(
    'goes through all of %i keys, in pages of a thousand',
    async (count, { world }) => {
      const keys = keysOf(count);
      await putMany(world, keys);
      await world.run('cleanup:s3_orphan_sweep', { prefix: 'avatars/', triggered });
      expect(await keysToDelete(world)).toEqual(keys);
    },
  );

  test('goes on from slice to slice, ten pages each, and keeps its place in a cursor', async ({ world }) => {
    const keys = keysOf(100);
    await putMany(world, keys);
    const storage = new S3Storage(world.s3, world.bucket, { pageKeys: 7 });
    const handlers = createHandlers(createServices({ ...world.stores, storage }));
    const payload = { prefix: 'avatars/', triggered };
    const first = await runTask(handlers, 'cleanup:s3_orphan_sweep', payload);
    expect(first).toMatchObject({
      result: 'continue',
      cursor: { afterKey: keys[69], listed: 70, orphans: 70 },
    });
    expect(await keysToDelete(world)).toEqual(keys.slice(0, 70));
    const second = await runTask(handlers, 'cleanup:s3_orphan_sweep', payload, {
      cursor: first.cursor as never,
    });
    expect(second).toMatchObject({ result: 'done' });
    expect(await keysToDelete(world)).toEqual(keys);
  });

  test('interrupted in its second page, and with keys added meanwhile, a later run finds all', async ({
    world,
  }) => {
    const keys = keysOf(20);
    await putMany(world, keys);
    const interruption = new AbortController();
    let pages = 0;
    const watched = watchedStores(world, {
      afterObject() {
        pages += 1;
        if (pages === 2) interruption.abort();
      },
    });
    // The watched client with pages of seven.
    const storage = new S3Storage(watched.s3, world.bucket, { pageKeys: 7 });
    const payload = { prefix: 'avatars/', triggered };
    const { signal } = interruption;
    const handlers = createHandlers(createServices({ ...watched, storage }));
    const ran = await runTask(handlers, 'cleanup:s3_orphan_sweep', payload, {
      signal,
      interruptedBy: 'deadline',
    });
    expect(ran).toMatchObject({ outcome: 'timeout', dead: false, cursor: undefined });
    expect(await keysToDelete(world)).toEqual(keys.slice(0, 7));
    await world.put('avatars/00000-added', 'avatars/zzz');
    await world.run('cleanup:s3_orphan_sweep', payload);
    expect(await keysToDelete(world)).toEqual([...keys, 'avatars/00000-added', 'avatars/zzz'].sort());
  });

  test('keys with odd characters are found, and really gone afterwards', async ({ world }) => {
    const odd = ['&', '<b>', '"quoted"', "it's", 'a+b', '100%', '%2F', 'a b', 'naïve 😀', 'a/b/c', 'ends.'];
    const keys = odd.map((name) => `avatars/${name}`);
    await world.put(...keys);
    await world.run('cleanup:s3_orphan_sweep', { prefix: 'avatars/', triggered });
    expect(await keysToDelete(world)).toEqual([...keys].sort());
    await drain({ db: world.db, handlers: world.handlers });
    expect(await world.keys()).toEqual([]);
  });
});

describe('a listing', () => {
  test('an empty page in the middle does not end it, and a page without a way on is an error', async ({
    world,
  }) => {
    const { signal } = new AbortController();
    const answers: object[] = [
      { IsTruncated: true, NextContinuationToken: 'on' },
      { IsTruncated: false, Contents: [{ Key: 'avatars/a', LastModified: hoursAgo(1) }] },
      { IsTruncated: true },
    ];
    const s3 = world.connectS3();
    onTestFinished(() => s3.destroy());
    // No store here gives such answers: they are put in the place of its own.
    s3.middlewareStack.add(
      (next) => async (request) => {
        const answer = await next(request);
        return { ...answer, output: { ...answer.output, ...answers.shift() } };
      },
      { step: 'initialize' },
    );
    const storage = new S3Storage(s3, world.bucket);
    const page = (token: string | undefined) =>
      storage.listPage({ prefix: 'avatars/', afterKey: undefined, token, signal });
    expect(await page(undefined)).toEqual({ objects: [], next: 'on' });
    expect(
      await storage.listPage({ prefix: 'avatars/', afterKey: 'a', token: undefined, signal }),
    ).toMatchObject({
      objects: [{ key: 'avatars/a' }],
      next: undefined,
    });
    await expect(page(undefined)).rejects.toThrow('does not say where');
  });
});

test('a hard delete fans out one delete for each asset, in its own transaction', async ({ world }) => {
  const keys = keysOf(3, 'moments/');
  await world.put(...keys);
  for (const media_key of keys) await addMoment(world.db, { media_key, deleted_at: hoursAgo(24 * 8) });
  await world.run('cron:moment_purge', {});
  expect(await keysToDelete(world)).toEqual(keys);
  await drain({ db: world.db, handlers: world.handlers });
  expect(await world.keys()).toEqual([]);
});
