import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { PAYLOAD_DEPTH_MAX } from '../../src/domain/limits.ts';
import { decodePayload, encodePayload } from '../../src/domain/payload-codec.ts';
import { describeThrown } from '../../src/domain/thrown.ts';
import { expect, test } from '../support/test.ts';

/** Through a real jsonb value and back, the way a payload is written and read. */
async function throughJsonb(db: Kysely<DB>, text: string): Promise<string> {
  const { rows } = await sql<{ text: string }>`select ${text}::text::jsonb::text as text`.execute(db);
  const [row] = rows;
  if (row === undefined) throw new Error('no row came back');
  return row.text;
}

async function roundTrip(db: Kysely<DB>, value: unknown): Promise<unknown> {
  return decodePayload(await throughJsonb(db, encodePayload(value, 'explore_purge')));
}

function nested(levels: number, wrap: (inner: unknown) => unknown): unknown {
  let value: unknown = 'innermost';
  for (let level = 0; level < levels; level++) value = wrap(value);
  return value;
}

const values: [what: string, value: unknown][] = [
  ['an empty array', []],
  ['an array', [1, 2]],
  ['an array of texts', ['a']],
  ['an array of objects', [{ a: 1 }]],
  ['an empty object', {}],
  ['a text', 'hello'],
  ['a text of digits', '12'],
  ["the text 'true'", 'true'],
  ["the text 'null'", 'null'],
  ['an empty text', ''],
  ['zero', 0],
  ['minus zero', -0],
  ['false', false],
  ['null', null],
  ['an object with a text like JSON', { value: '{}' }],
  ['the largest double', Number.MAX_VALUE],
  ['the smallest double', Number.MIN_VALUE],
  ['a fraction', 0.1 + 0.2],
  ['an integer beyond the safe ones', 2 ** 53 + 2],
  ['a Date', new Date('2026-01-31T12:00:00.123Z')],
  ['the first and the last Date', [new Date(-8.64e15), new Date(8.64e15)]],
  ['a bigint at depth 3', { a: { b: { c: 9_007_199_254_740_993n } } }],
  ['NUL', 'a\0b'],
  ['lone surrogates', ['\ud83d', '\ude00', '\ude00\ud83d']],
  ['keys with NUL and lone surrogates', { '\0': 1, '\ud83d': { '\ude00': [2n] }, plain: 'a' }],
  ['a text that only shows an escape', '\\u0000 \\ud83d "\\'],
  ['every control character', Array.from({ length: 32 }, (_, code) => String.fromCharCode(code)).join('')],
  ['unicode', 'äöü 日本 😀 \u2028\u2029\ufeff\u{10ffff}'],
  ["a user's own objects like tags", [{ '$taskq:date': 'x' }, { '$taskq:entries': [] }, { '$taskq:x': 1 }]],
  ['keys of every object', JSON.parse('{"__proto__":{"a":1},"constructor":2,"toString":3}')],
  ['keys that jsonb puts into another order', { zz: 1, b: 2, a: 3, '': 4, 10: 5, 9: 6 }],
  ['a megabyte of text', 'ä"\n\\😀'.repeat(100_000)],
  [`${PAYLOAD_DEPTH_MAX} levels of arrays`, nested(PAYLOAD_DEPTH_MAX, (inner) => [inner])],
  [`${PAYLOAD_DEPTH_MAX} levels of hostile keys`, nested(PAYLOAD_DEPTH_MAX, (inner) => ({ '\0': inner }))],
];

test('every kind of payload comes back from jsonb deep-equal and of the same types', async ({ db }) => {
  for (const [what, value] of values) {
    expect(isDeepStrictEqual(await roundTrip(db, value), value), what).toBe(true);
  }
});

test('any payload whatever comes back from jsonb deep-equal', async ({ db }) => {
  const text = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.string({ unit: fc.constantFrom('\0', '\ud83d', '\ude00', '\\', 'u0000', '"', '\n') }),
  );
  const key = fc.oneof(text, fc.constantFrom('__proto__', '$taskq:date', '$taskq:entries', '$taskq:string'));
  const { value: anyValue } = fc.letrec((tie) => ({
    value: fc.oneof(
      { depthSize: 'small' },
      fc.oneof(
        text,
        fc.double({ noNaN: true, noDefaultInfinity: true }),
        fc.bigInt(),
        fc.date({ noInvalidDate: true }),
      ),
      fc.array(tie('value'), { maxLength: 4 }),
      fc.array(fc.tuple(key, tie('value')), { maxLength: 4 }).map((entries) => Object.fromEntries(entries)),
    ),
  }));
  await fc.assert(
    fc.asyncProperty(anyValue, async (value) => {
      expect(isDeepStrictEqual(await roundTrip(db, value), value), encodePayload(value, 't')).toBe(true);
    }),
    { numRuns: 300 },
  );
});

test('what was enqueued as plain JSON can be asked for in SQL as such', async ({ db }) => {
  const text = encodePayload({ organisation: { id: 12, name: 'Ä' }, dryRun: false }, 'explore_purge');
  const { rows } = await sql`
    select p -> 'organisation' ->> 'name' as name, (p -> 'organisation' ->> 'id')::int as id, p -> 'dryRun' as "dryRun"
    from (select ${text}::text::jsonb as p) as payload`.execute(db);
  expect(rows).toEqual([{ name: 'Ä', id: 12, dryRun: false }]);
});

test('the description of any thrown text is stored as it is', async ({ db }) => {
  for (const thrown of ['a\0b', '\ud83d', '\ude00', Buffer.from('a😀').subarray(0, 3).toString()]) {
    const { message, stack, name } = describeThrown(Object.assign(new Error(thrown), { name: thrown }));
    const { rows } = await sql`
      select ${message}::text as message, ${stack}::text as stack, ${name}::text as name`.execute(db);
    expect(rows).toEqual([{ message, stack, name }]);
  }
});
