import { enqueue } from '../../generated/social/tasks.ts';
import { createHandlers } from '../../src/social/handlers/index.ts';
import { parseCapture } from '../../src/social/services/capture-parser.ts';
import { createItem, editItem, reparseLinks } from '../../src/social/services/items.ts';
import { httpPreviewer, type LinkPreviewer } from '../../src/social/services/link-preview.ts';
import { createServices } from '../../src/social/services/wiring.ts';
import { drain, runTask } from '../../src/testing/index.ts';
import { gate } from '../support/replica.ts';
import { urlsOf } from './support/cases.ts';
import { addAccount, addItem } from './support/rows.ts';
import { describe, expect, test, untilWaiting, type World } from './support/social.ts';

const inTransaction = <Result>(
  { db }: World,
  work: (tx: Parameters<typeof createItem>[0]) => Promise<Result>,
): Promise<Result> => db.transaction().execute(work);

async function spentOf({ db }: World): Promise<number[]> {
  const rows = await db.selectFrom('enrichment_spends').select('links').orderBy('task_id').execute();
  return rows.map(({ links }) => links);
}

/** A previewer that waits for the test with its first page. */
function heldPreviewer() {
  const [begun, goOn] = [gate(), gate()];
  const asked: string[] = [];
  const previewer: LinkPreviewer = {
    async preview(url) {
      asked.push(url);
      begun.open();
      await goOn.promise;
      return { title: `title of ${url}`, description: undefined };
    },
  };
  return { previewer, asked, begun: begun.promise, goOn: () => goOn.open() };
}

describe('item:parse', () => {
  test('edits that come while the task waits share it; an edit during its run has a run of its own', async ({
    world,
  }) => {
    const accountId = await addAccount(world.db);
    const itemId = await inTransaction(world, (tx) => createItem(tx, { accountId, capture: 'first' }));
    await inTransaction(world, (tx) => editItem(tx, itemId, 'second'));
    expect(await world.waiting('item:parse')).toMatchObject([{ payload: { itemId }, queue: 'default' }]);
    const { db } = world;
    let isEdited = false;
    const edit = createHandlers({
      ...createServices(world.stores),
      itemParser: {
        async parse(id, limits) {
          if (!isEdited) await inTransaction(world, (tx) => editItem(tx, itemId, 'third #new'));
          isEdited = true;
          return createServices(world.stores).itemParser.parse(id, limits);
        },
      },
    });
    const runs = await drain({ db, handlers: edit });
    expect(runs.map(({ type, outcome }) => `${type} ${outcome}`)).toEqual([
      'item:parse success',
      'item:parse success',
    ]);
    const items = await db.selectFrom('items').select(['title', 'tags', 'parsed_revision']).execute();
    expect(items).toEqual([{ title: 'third #new', tags: ['new'], parsed_revision: 3 }]);
  });

  test('a run that was overtaken by an edit writes nothing', async ({ world }) => {
    const { db, handlers } = world;
    const itemId = await addItem(db, { capture: 'old' });
    const parsing = await db.transaction().execute(async (tx) => {
      await editItem(tx, itemId, 'new');
      // It has read the old capture, and waits for the edit with what it read.
      const parsing = runTask(handlers, 'item:parse', { itemId });
      await untilWaiting(db);
      return { parsing };
    });
    expect(await parsing.parsing).toMatchObject({ outcome: 'success' });
    const items = await db.selectFrom('items').select(['title', 'parsed_revision']).execute();
    expect(items).toEqual([{ title: null, parsed_revision: null }]);
    // The edit's own task.
    await drain({ db, handlers });
    expect(await db.selectFrom('items').select('title').execute()).toEqual([{ title: 'new' }]);
  });

  test('many links of a capture become shared rows, and one task enriches them', async ({ world }) => {
    const urls = Array.from(
      { length: 12 },
      (_, index) => `https://example.org/${String(index).padStart(2, '0')}`,
    );
    const one = await addItem(world.db, { capture: urls.join('\n') });
    const other = await addItem(world.db, { capture: urls.slice(0, 3).join(' ') });
    await Promise.all([
      runTask(world.handlers, 'item:parse', { itemId: one }),
      runTask(world.handlers, 'item:parse', { itemId: other }),
    ]);
    expect(await urlsOf(world, one)).toEqual(urls);
    expect(await urlsOf(world, other)).toEqual(urls.slice(0, 3));
    expect(await world.db.selectFrom('parsed_links').select('url').execute()).toHaveLength(12);
    const tasks = await world.waiting('link:enrich');
    expect(tasks.map(({ payload }) => payload)).toEqual(
      expect.arrayContaining([{ itemId: one }, { itemId: other }]),
    );
    expect(tasks).toHaveLength(2);
  });

  test('reads the same title, tags and links out of a capture every time', () => {
    const capture =
      '\n  Dinner   at the #Harbour #harbour\n(https://Example.org/menu?utm_source=x&a=1#top), bye!';
    expect(parseCapture(capture)).toEqual({
      title: 'Dinner at the #Harbour #harbour',
      tags: ['harbour'],
      urls: ['https://example.org/menu?a=1'],
    });
    expect(parseCapture('')).toEqual({ title: '', tags: [], urls: [] });
    expect(parseCapture('https://example.org/ https://example.org/#a http://').urls).toEqual([
      'https://example.org/',
    ]);
  });
});

describe('link:enrich', () => {
  test('is enqueued once for an item, and once more for each forced reparse', async ({ world }) => {
    const { db } = world;
    const itemId = await addItem(db);
    await enqueue(db, 'link:enrich', { itemId });
    await enqueue(db, 'link:enrich', { itemId });
    expect(await world.waiting('link:enrich')).toHaveLength(1);
    await inTransaction(world, (tx) => reparseLinks(tx, itemId));
    await inTransaction(world, (tx) => reparseLinks(tx, itemId));
    const tasks = await world.waiting('link:enrich');
    expect(tasks.map(({ payload }) => payload)).toEqual([
      { itemId },
      { itemId, force: true },
      { itemId, force: true },
    ]);
  });

  test('a forced reparse fetches what is enriched already, and takes from the quota anew', async ({
    world,
  }) => {
    world.site.pages.set('/a', '<title>old</title>');
    const itemId = await addItem(world.db, { urls: [`${world.site.url}/a`] });
    await world.run('link:enrich', { itemId });
    world.site.pages.set('/a', '<title>new</title>');
    await world.run('link:enrich', { itemId });
    expect(world.site.asked).toEqual(['/a']);
    await world.run('link:enrich', { itemId, force: true });
    expect(world.site.asked).toEqual(['/a', '/a']);
    expect(await world.db.selectFrom('parsed_links').select('title').execute()).toEqual([{ title: 'new' }]);
    expect(await spentOf(world)).toEqual([1, 1]);
  });

  test('two tasks at once for one item take from the quota once', async ({ world }) => {
    const itemId = await addItem(world.db, { urls: [`${world.site.url}/a`] });
    const { previewer, asked, begun, goOn } = heldPreviewer();
    const first = world.run('link:enrich', { itemId }, { previewer });
    await begun;
    const { db, handlers } = world;
    // One as after an edit, and a forced one: nothing waits that would be in their way.
    await enqueue(db, 'link:enrich', { itemId });
    await inTransaction(world, (tx) => reparseLinks(tx, itemId));
    const runs = await drain({ db, handlers });
    expect(runs.map(({ outcome, dead }) => ({ outcome, dead }))).toEqual([
      { outcome: 'failure', dead: false },
      { outcome: 'failure', dead: false },
    ]);
    expect(await spentOf(world)).toEqual([1]);
    goOn();
    expect(await first).toMatchObject({ outcome: 'success' });
    // As a retry, which finds nothing left to do.
    await enqueue(db, 'link:enrich', { itemId }, { unique: false, queue: 'retried' });
    expect(await drain({ db, handlers, queues: ['retried'] })).toMatchObject([{ outcome: 'success' }]);
    expect(asked).toHaveLength(1);
    expect(world.site.asked).toEqual([]);
    expect(await spentOf(world)).toEqual([1]);
  });

  test('links of an edit that comes while the earlier ones are fetched are fetched too', async ({
    world,
  }) => {
    const { db, handlers, site } = world;
    const itemId = await addItem(db, { urls: [`${site.url}/a`] });
    const { previewer, begun, goOn } = heldPreviewer();
    const first = world.run('link:enrich', { itemId }, { previewer });
    await begun;
    await inTransaction(world, (tx) => editItem(tx, itemId, `${site.url}/a ${site.url}/b`));
    await runTask(handlers, 'item:parse', { itemId });
    expect(await world.waiting('link:enrich')).toMatchObject([{}, { payload: { itemId } }]);
    goOn();
    await first;
    await drain({ db, handlers });
    expect(site.asked).toEqual(['/b']);
    const links = await db.selectFrom('parsed_links').select('enriched_at').execute();
    expect(links.every(({ enriched_at }) => enriched_at !== null)).toBe(true);
  });

  test('a page that fails is fetched again by the next run, the others are not, and the quota is taken once', async ({
    world,
  }) => {
    const { site, db, handlers } = world;
    site.pages.set('/good', '<title>good</title>').set('/flaky', 503);
    const itemId = await addItem(db, { urls: [`${site.url}/flaky`, `${site.url}/good`] });
    // The same task both times, as after a backoff.
    expect(await runTask(handlers, 'link:enrich', { itemId })).toMatchObject({
      outcome: 'failure',
      dead: false,
    });
    site.pages.set('/flaky', '<title>better</title>');
    expect(await runTask(handlers, 'link:enrich', { itemId }, { attempt: 2 })).toMatchObject({
      outcome: 'success',
    });
    expect(site.asked.filter((path) => path === '/good')).toHaveLength(1);
    const titles = await db.selectFrom('parsed_links').select('title').orderBy('url').execute();
    expect(titles).toEqual([{ title: 'better' }, { title: 'good' }]);
    expect(await spentOf(world)).toEqual([2]);
  });

  test('a used-up quota is not overdrawn, not even by two items at once', async ({ world }) => {
    const { db, site, handlers } = world;
    const account_id = await addAccount(db, { enrichment_quota: 3 });
    const urls = (name: string) => [1, 2].map((page) => `${site.url}/${name}${page}`);
    const items = [
      await addItem(db, { account_id, urls: urls('a') }),
      await addItem(db, { account_id, urls: urls('b') }),
    ];
    for (const itemId of items) await enqueue(db, 'link:enrich', { itemId });
    const runs = await Promise.all([drain({ db, handlers }), drain({ db, handlers })]);
    expect(runs.flat().map(({ outcome }) => outcome)).toEqual(['success', 'success']);
    expect(await spentOf(world)).toEqual([2]);
    expect(site.asked).toHaveLength(2);
  });

  test('the signal reaches a page that does not answer', async ({ world }) => {
    const interruption = new AbortController();
    world.site.pages.set('/slow', () => interruption.abort());
    const itemId = await addItem(world.db, { urls: [`${world.site.url}/slow`] });
    const { signal } = interruption;
    const ran = await runTask(
      world.handlers,
      'link:enrich',
      { itemId },
      { signal, interruptedBy: 'deadline' },
    );
    expect(ran).toMatchObject({ outcome: 'timeout', dead: false });
  });

  test('what is no page, and a host that may not be asked, is written down and not tried again', async ({
    world,
  }) => {
    const { site, db } = world;
    site.pages.set('/moved', (response) => response.writeHead(302, { location: '/secret' }).end());
    site.pages.set('/image', (response) => response.writeHead(200, { 'content-type': 'image/png' }).end('x'));
    const urls = ['/image', '/moved'].map((path) => `${site.url}${path}`);
    const itemId = await addItem(db, { urls: [...urls, 'http://169.254.169.254/latest'] });
    const previewer = httpPreviewer(({ hostname }) => hostname === '127.0.0.1');
    const ran = await world.run('link:enrich', { itemId }, { previewer });
    expect(ran).toMatchObject({ outcome: 'success' });
    expect(site.asked.sort()).toEqual(['/image', '/moved']);
    const links = await db.selectFrom('parsed_links').select(['url', 'problem']).orderBy('url').execute();
    expect(Object.fromEntries(links.map(({ url, problem }) => [url, problem]))).toEqual({
      [urls[0] as string]: 'the page is image/png',
      [urls[1] as string]: 'the page answers 302',
      'http://169.254.169.254/latest': 'the host may not be asked',
    });
  });
});
