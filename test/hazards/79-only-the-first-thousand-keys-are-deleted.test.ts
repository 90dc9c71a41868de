import { prefixDelete } from '../../src/handlers/prefix-delete.ts';
import { failure, keysInBatch, startFaultyStore } from '../demo/support/faulty-store.ts';
import { contextOf, describe, expect, keysBelow, putObjects, test } from '../demo/support/platform.ts';

// One listing answers a thousand keys at the most: code without a loop, or with the wrong continuation token, left the
// rest behind and reported success. With nothing to delete the empty request was itself an error.

const PREFIX = 'stacks/many/';
/** s3rver writes three files for each key, and takes its time to remove them. */
const MANY_KEYS_MS_MAX = 300_000;
const context = () => contextOf('prefix_delete');

function numbered(count: number): string[] {
  return Array.from({ length: count }, (_, at) => `${PREFIX}${String(at).padStart(5, '0')}`);
}

/** A store that lists so few keys at a time, whatever it is asked for. */
function listingPagesOf(size: number, endpoint: string) {
  return async (url: URL) => {
    const shorter = new URL(url.pathname + url.search, endpoint);
    shorter.searchParams.set('max-keys', String(size));
    const response = await fetch(shorter);
    return { status: response.status, xml: await response.text() };
  };
}

describe('a prefix delete', () => {
  test('deletes two and a half thousand keys, a thousand at the most with one request', {
    timeout: MANY_KEYS_MS_MAX,
  }, async ({ services, objects, objectStoreSettings }) => {
    await putObjects(objects, numbered(2_500));
    const store = await startFaultyStore(objectStoreSettings);
    const run = prefixDelete({ ...services, objects: store.objects });
    expect(await run({ prefix: PREFIX }, context())).toBe('done');
    expect(await keysBelow(objects, PREFIX)).toEqual([]);
    const batches = store.requests.filter(({ kind }) => kind === 'delete batch').map(keysInBatch);
    // The client sends one again whose answer was lost.
    expect([...new Set(batches)]).toEqual([1_000, 500]);
    expect(batches.length).toBeGreaterThanOrEqual(3);
  });

  test('deletes exactly a thousand', { timeout: MANY_KEYS_MS_MAX }, async ({ services, objects }) => {
    await putObjects(objects, numbered(1_000));
    expect(await prefixDelete(services)({ prefix: PREFIX }, context())).toBe('done');
    expect(await keysBelow(objects, PREFIX)).toEqual([]);
  });

  test('sends no delete when there is nothing, and is done', async ({ services, objectStoreSettings }) => {
    const store = await startFaultyStore(objectStoreSettings);
    const run = prefixDelete({ ...services, objects: store.objects });
    expect(await run({ prefix: PREFIX }, context())).toBe('done');
    expect(store.requests.map(({ kind }) => kind)).toEqual(['list']);
  });

  test('really deletes keys that XML, URLs and people find odd', async ({ services, objects }) => {
    const odd = ['a&b', 'a<b>', 'q"\'', '+plus', '100%', '%2F', 'sp ace', ' ', '  ', 'tab\t', 'line\nbreak'];
    const more = ['ünï', '日本', 'emoji 🙂', 'slash/', '..', '\u0001', '?query', '#hash'];
    await putObjects(
      objects,
      [...odd, ...more].map((name) => PREFIX + name),
    );
    expect(await keysBelow(objects, PREFIX)).toHaveLength(odd.length + more.length);
    expect(await prefixDelete(services)({ prefix: PREFIX }, context())).toBe('done');
    expect(await keysBelow(objects, PREFIX)).toEqual([]);
  });

  test('goes on behind a page that is empty and says that there is more', async ({
    services,
    objects,
    objectStoreSettings,
  }) => {
    const keys = numbered(3);
    await putObjects(objects, keys);
    const listing = (inside: string) => ({
      status: 200,
      xml: `<?xml version="1.0"?><ListBucketResult><Prefix>${PREFIX}</Prefix>${inside}</ListBucketResult>`,
    });
    // What a store answers that has looked through a thousand deleted objects, and what it has behind them.
    const empty = '<IsTruncated>true</IsTruncated><NextContinuationToken>further</NextContinuationToken>';
    const contents = keys.map((key) => `<Contents><Key>${key}</Key></Contents>`).join('');
    let listings = 0;
    const store = await startFaultyStore(objectStoreSettings, ({ kind, url }) => {
      if (kind !== 'list') return undefined;
      listings += 1;
      if (url.searchParams.get('continuation-token') === 'further') return listing(contents);
      return listings === 1 ? listing(empty) : undefined;
    });
    const run = prefixDelete({ ...services, objects: store.objects });
    expect(await run({ prefix: PREFIX }, context())).toBe('done');
    expect(await keysBelow(objects, PREFIX)).toEqual([]);
  });

  test('fails for a listing that goes on without saying where', async ({ services, objectStoreSettings }) => {
    const endless = `<?xml version="1.0"?><ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>`;
    const store = await startFaultyStore(objectStoreSettings, ({ kind }) =>
      kind === 'list' ? { status: 200, xml: endless } : undefined,
    );
    const run = prefixDelete({ ...services, objects: store.objects })({ prefix: PREFIX }, context());
    await expect(run).rejects.toThrow('goes on, but not where');
  });

  test('also takes what is written below the prefix while it runs', async ({
    services,
    objects,
    objectStoreSettings,
  }) => {
    await putObjects(objects, numbered(3));
    let hasWritten = false;
    const store = await startFaultyStore(objectStoreSettings);
    const late = {
      ...bound(store.objects),
      async deleteKeys(keys: readonly string[], signal: AbortSignal) {
        const errors = await store.objects.deleteKeys(keys, signal);
        // Before the place where the listing stands.
        if (!hasWritten) await objects.write(`${PREFIX}0`, 'late', signal);
        hasWritten = true;
        return errors;
      },
    };
    expect(await prefixDelete({ ...services, objects: late })({ prefix: PREFIX }, context())).toBe('done');
    expect(await keysBelow(objects, PREFIX)).toEqual([]);
  });

  test('aborted in the middle it ends at once with the reason, and a later run finishes', {
    timeout: MANY_KEYS_MS_MAX,
  }, async ({ services, objects, objectStoreSettings }) => {
    await putObjects(objects, numbered(1_200));
    const abort = new AbortController();
    let batches = 0;
    const store = await startFaultyStore(objectStoreSettings, ({ kind }) => {
      if (kind !== 'delete batch') return undefined;
      batches += 1;
      if (batches < 2) return undefined;
      abort.abort(new Error('the deadline'));
      return 'hang';
    });
    const run = prefixDelete({ ...services, objects: store.objects });
    const interrupted = run({ prefix: PREFIX }, contextOf('prefix_delete', { signal: abort.signal }));
    await expect(interrupted).rejects.toThrow('the deadline');
    expect(await keysBelow(objects, PREFIX)).toHaveLength(200);
    expect(await prefixDelete(services)({ prefix: PREFIX }, context())).toBe('done');
    expect(await keysBelow(objects, PREFIX)).toEqual([]);
  });

  test('names the keys that the store would not delete, after it has tried all others', async ({
    services,
    objects,
    objectStoreSettings,
  }) => {
    await putObjects(objects, [...numbered(3)]);
    const store = await startFaultyStore(objectStoreSettings, ({ kind }) => {
      if (kind !== 'delete batch') return undefined;
      const error = `<Error><Key>${PREFIX}00001</Key><Code>AccessDenied</Code><Message>held</Message></Error>`;
      return { status: 200, xml: `<?xml version="1.0"?><DeleteResult>${error}</DeleteResult>` };
    });
    const run = prefixDelete({ ...services, objects: store.objects });
    await expect(run({ prefix: PREFIX }, context())).rejects.toThrow(
      `not deleted below '${PREFIX}': "${PREFIX}00001" (AccessDenied)`,
    );
    store.fault = () => undefined;
    expect(await run({ prefix: PREFIX }, context())).toBe('done');
    expect(await keysBelow(objects, PREFIX)).toEqual([]);
  });

  test('fails, and says so, when the store itself does', async ({ services, objectStoreSettings }) => {
    const store = await startFaultyStore(objectStoreSettings, () => failure(403, 'AccessDenied'));
    const run = prefixDelete({ ...services, objects: store.objects });
    await expect(run({ prefix: PREFIX }, context())).rejects.toThrow('AccessDenied');
  });
});

describe('a listing', () => {
  test('is decoded when the store encodes what XML cannot hold', async ({ objectStoreSettings }) => {
    const contents = '<Contents><Key>stacks/many/a+b%01%0D%0A%2B%25</Key></Contents>';
    const store = await startFaultyStore(objectStoreSettings, ({ url }) => {
      const isAsked = url.searchParams.get('encoding-type') === 'url';
      const encoding = isAsked ? '<EncodingType>url</EncodingType>' : '';
      return { status: 200, xml: `<ListBucketResult>${encoding}${contents}</ListBucketResult>` };
    });
    expect(await keysBelow(store.objects, PREFIX)).toEqual(['stacks/many/a b\u0001\r\n+%']);
  });

  test('that holds a key of somebody else is refused', async ({ services, objectStoreSettings }) => {
    const xml = '<ListBucketResult><Contents><Key>stacks/other/1</Key></Contents></ListBucketResult>';
    const store = await startFaultyStore(objectStoreSettings, () => ({ status: 200, xml }));
    const run = prefixDelete({ ...services, objects: store.objects })({ prefix: PREFIX }, context());
    await expect(run).rejects.toThrow("holds the key 'stacks/other/1'");
    expect(store.requests.map(({ kind }) => kind)).toEqual(['list']);
  });

  test('is read to its end whatever size its pages have', async ({ objects, objectStoreSettings }) => {
    const keys = numbered(20);
    await putObjects(objects, keys);
    const shorten = listingPagesOf(7, objectStoreSettings.endpoint);
    const pages = new Map<string, { status: number; xml: string }>();
    const store = await startFaultyStore(objectStoreSettings, ({ kind, url }) =>
      kind === 'list' ? pages.get(url.searchParams.get('continuation-token') ?? '') : undefined,
    );
    // The pages are fetched ahead: a fault answers at once.
    let token = '';
    const listing = new URL(`/${objectStoreSettings.bucket}?list-type=2&prefix=${PREFIX}`, 'http://store');
    do {
      if (token !== '') listing.searchParams.set('continuation-token', token);
      const page = await shorten(listing);
      pages.set(token, page);
      token = /<NextContinuationToken>(.*?)</.exec(page.xml)?.[1] ?? '';
    } while (token !== '');
    expect(pages.size).toBe(3);
    expect(await keysBelow(store.objects, PREFIX)).toEqual(keys);
  });
});

/** The store's methods, for an object that replaces one of them. */
function bound(objects: Awaited<ReturnType<typeof startFaultyStore>>['objects']) {
  return {
    read: objects.read.bind(objects),
    write: objects.write.bind(objects),
    listPage: objects.listPage.bind(objects),
    deleteKeys: objects.deleteKeys.bind(objects),
  };
}
