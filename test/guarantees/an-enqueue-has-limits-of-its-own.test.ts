import type { Kysely } from 'kysely';
import { z } from 'zod';
import type { DB } from '../../generated/db.ts';
import { createEnqueuer, defineTask, type EnqueueOptions } from '../../src/index.ts';
import { allRows, type RowImage, rowOf } from '../support/rows.ts';
import { describe, expect, test } from '../support/test.ts';

const payload = z.object({ n: z.number().default(0) });
const kept = defineTask({ type: 'kept', payload, ceiling: '5m', retention: '24h' });
const ordinary = defineTask({ type: 'ordinary', payload, ceiling: '5m' });
const fractional = defineTask({ type: 'fractional', payload, ceiling: 2_000.5 });
const { enqueue, enqueueMany } = createEnqueuer({
  kept: { definition: kept, revision: 1 },
  ordinary: { definition: ordinary, revision: 1 },
  fractional: { definition: fractional, revision: 1 },
});

const unique = { key: 'k', while: 'live' } as const;

const limitsOf = (row: RowImage | undefined) => [row?.['ceiling_ms'], row?.['retention_ms']];

/** Every way in which a row comes about: alone, later, with a key, in a list, in a list with keys, in a stream. */
async function everyWay(
  db: Kysely<DB>,
  type: 'kept' | 'ordinary',
  options: EnqueueOptions,
): Promise<unknown[]> {
  await enqueue(db, type, {}, options);
  await enqueue(db, type, {}, { ...options, delay: '1h' });
  await enqueue(db, type, {}, { ...options, unique });
  await enqueueMany(db, type, [{}, {}], options);
  await enqueueMany(db, type, [{ n: 1 }, { n: 2 }], { ...options, unique: { while: 'live' } });
  await db.transaction().execute((tx) => enqueueMany(tx, type, new Set([{}, {}]), options));
  return (await allRows(db)).map(limitsOf);
}
const WAYS = 9;
const alike = (limits: unknown): unknown[] => Array.from({ length: WAYS }, () => limits);

describe('what an enqueue says about its own task is on its row, in whichever way it is enqueued', () => {
  test('a timeout and a retention', async ({ db }) => {
    expect(await everyWay(db, 'ordinary', { timeout: '90s', retention: '7d' })).toEqual(
      alike([90_000, 604_800_000]),
    );
  });

  test('nothing, for a type that says nothing either', async ({ db }) => {
    expect(await everyWay(db, 'ordinary', {})).toEqual(alike([null, null]));
  });

  test("the type's own retention, unless it says otherwise", async ({ db }) => {
    expect(await everyWay(db, 'kept', {})).toEqual(alike([null, 86_400_000]));
  });

  test("no retention, against the type's", async ({ db }) => {
    expect(await everyWay(db, 'kept', { retention: false })).toEqual(alike([null, null]));
  });
});

test('a timeout up to the ceiling of the type is taken, one above it is refused and names both', async ({
  db,
}) => {
  await enqueue(db, 'ordinary', {}, { timeout: '5m' });
  await enqueue(db, 'ordinary', {}, { timeout: '1s' });
  // Part of a millisecond, in a column of whole ones.
  await enqueue(db, 'fractional', {}, { timeout: 2_000.5, retention: 1_000.1 });
  expect((await allRows(db)).map(limitsOf)).toEqual([
    [300_000, null],
    [1_000, null],
    [2_001, 1_001],
  ]);

  await expect(enqueue(db, 'ordinary', {}, { timeout: '10m' })).rejects.toMatchObject({
    code: 'OPTION_INVALID',
    message: 'enqueue option timeout: 10m is above the ceiling of ordinary, 5m; it can only lower it',
  });
  expect(await allRows(db)).toHaveLength(3);
});

test('limits that are none are refused before anything is written', async ({ db }) => {
  const refusals: Record<string, string> = {};
  for (const options of [
    { timeout: '999ms' },
    { timeout: 'soon' },
    { timeout: Number.NaN },
    { timeout: Number.POSITIVE_INFINITY },
    { timeout: false },
    { retention: '0s' },
    { retention: '-1d' },
    { retention: true },
    { retention: '40000d' },
    { wake: 'never' },
    { wake: null },
  ]) {
    const { code, message } = await enqueue(db, 'ordinary', {}, options as never).catch((error) => error);
    refusals[Object.entries(options).flat().map(String).join(' ')] = `${code} ${message}`;
  }
  const [timeout, retention, wake] = ['timeout', 'retention', 'wake'].map(
    (option) => `OPTION_INVALID enqueue option ${option}:`,
  );
  const expected = `expected milliseconds or text such as '90s', '5m', '1h', received`;
  expect(refusals).toEqual({
    'timeout 999ms': `${timeout} must be between 1s and 36500d, received '999ms'`,
    'timeout soon': `${timeout} ${expected} 'soon'`,
    'timeout NaN': `${timeout} ${expected} NaN`,
    'timeout Infinity': `${timeout} ${expected} Infinity`,
    'timeout false': `${timeout} ${expected} false`,
    'retention 0s': `${retention} must be between 1s and 36500d, received '0s'`,
    'retention -1d': `${retention} ${expected} '-1d'`,
    'retention true': `${retention} ${expected} true`,
    'retention 40000d': `${retention} must be between 1s and 36500d, received '40000d'`,
    'wake never': `${wake} expected 'notify' or 'poll', received 'never'`,
    'wake null': `${wake} expected 'notify' or 'poll', received null`,
  });
  expect(await allRows(db)).toEqual([]);
});

test('a definition whose retention or wake is none is refused and names its type', () => {
  const define = (options: object) =>
    defineTask({ type: 'bad', payload, ceiling: '5m', ...options } as never);
  expect(() => define({ retention: '1ms' })).toThrow(
    expect.objectContaining({ code: 'DURATION_INVALID', message: expect.stringContaining("type 'bad'") }),
  );
  expect(() => define({ retention: false })).toThrow(expect.objectContaining({ code: 'DURATION_INVALID' }));
  expect(() => define({ wake: 'always' })).toThrow(
    expect.objectContaining({
      code: 'DEFINITION_INVALID',
      message: "wake of task type 'bad': expected 'notify' or 'poll', received 'always'",
    }),
  );
});

test('a replacement has the limits of the enqueue that it comes from', async ({ db }) => {
  const replace = { unique: { ...unique, onConflict: 'replace' } } as const;
  const { id } = await enqueue(db, 'ordinary', { n: 1 }, { timeout: '10s', retention: '1h', unique });

  expect(await enqueue(db, 'ordinary', { n: 2 }, { ...replace, timeout: '20s' })).toEqual({
    id,
    status: 'replaced',
  });

  expect(limitsOf(await rowOf(db, id))).toEqual([20_000, null]);
});

test('an enqueue that finds its place taken leaves the limits of the task that is there', async ({ db }) => {
  const { id } = await enqueue(db, 'ordinary', {}, { timeout: '10s', retention: '1h', unique });

  await enqueue(db, 'ordinary', {}, { timeout: '20s', retention: '2h', unique });

  expect(limitsOf(await rowOf(db, id))).toEqual([10_000, 3_600_000]);
});
