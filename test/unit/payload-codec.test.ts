import { isDeepStrictEqual } from 'node:util';
import vm from 'node:vm';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { TaskqError } from '../../src/domain/errors.ts';
import { PAYLOAD_DEPTH_MAX } from '../../src/domain/limits.ts';
import { decodePayload, encodePayload, payloadBytes } from '../../src/domain/payload-codec.ts';

const encode = (value: unknown) => encodePayload(value, 'explore_purge');

/** What jsonb does to a text: keys sorted by length, the text spelt anew. It refuses what `assertStorable` finds. */
function throughJsonb(text: string): string {
  const sorted = JSON.parse(text, (_key, value: unknown) =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? Object.fromEntries(
          Object.entries(value).toSorted(([a], [b]) => a.length - b.length || (a < b ? -1 : 1)),
        )
      : value,
  );
  return JSON.stringify(sorted);
}

function assertStorable(text: string): void {
  const strings: string[] = [];
  const collect = (value: unknown): void => {
    if (typeof value === 'string') strings.push(value);
    if (typeof value !== 'object' || value === null) return;
    strings.push(...Object.keys(value));
    for (const member of Object.values(value)) collect(member);
  };
  collect(JSON.parse(text));
  const refused = strings.filter((each) => each.includes('\0') || /\p{Surrogate}/u.test(each));
  expect(refused, text).toEqual([]);
  expect(text).not.toMatch(/\p{Surrogate}/u);
}

function roundTrip(value: unknown): unknown {
  const text = encode(value);
  assertStorable(text);
  return decodePayload(throughJsonb(text));
}

function errorOf(run: () => unknown): TaskqError {
  try {
    run();
  } catch (error) {
    if (error instanceof TaskqError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

const refusalOf = (value: unknown) => {
  const { code, message } = errorOf(() => encode(value));
  expect(code).toBe('PAYLOAD_UNSTORABLE');
  return message;
};

describe('plain JSON is stored as plain JSON', () => {
  // The payloads that a driver's own encoding changes: arrays, scalars and texts that look like something else.
  test.each([
    [[], '[]'],
    [[1, 2], '[1,2]'],
    [['a'], '["a"]'],
    [[{ a: 1 }], '[{"a":1}]'],
    [{}, '{}'],
    ['hello', '"hello"'],
    ['12', '"12"'],
    ['true', '"true"'],
    ['null', '"null"'],
    ['', '""'],
    [0, '0'],
    [1e21, '1e+21'],
    [5e-324, '5e-324'],
    [false, 'false'],
    [true, 'true'],
    [null, 'null'],
    [{ value: '{}' }, '{"value":"{}"}'],
    ['"quoted" \\ and\nbroken', '"\\"quoted\\" \\\\ and\\nbroken"'],
    ['äöü 日本 😀 \u2028', '"äöü 日本 😀 \u2028"'],
    [{ 'a b': [null, { '': -1.5 }] }, '{"a b":[null,{"":-1.5}]}'],
  ])('%j', (value, text) => {
    expect(encode(value)).toBe(text);
    expect(roundTrip(value)).toStrictEqual(value);
  });

  test('in the very text that JSON.stringify gives, for any JSON value', () => {
    fc.assert(
      fc.property(fc.jsonValue({ stringUnit: 'binary' }), (value) => {
        fc.pre(!JSON.stringify(value).includes('\\u0000') && !JSON.stringify(value).includes('$taskq:'));
        fc.pre(!/\\ud[89a-f]/.test(JSON.stringify(value)) && roundTripsPlainly(value));
        expect(encode(value)).toBe(JSON.stringify(value));
      }),
    );
  });
});

/** -0 is JSON to fast-check, and 0 to JSON. */
function roundTripsPlainly(value: unknown): boolean {
  if (Object.is(value, -0)) return false;
  return typeof value !== 'object' || value === null || Object.values(value).every(roundTripsPlainly);
}

describe('what JSON cannot hold is carried by a tag', () => {
  const date = new Date('2026-01-31T12:00:00.123Z');
  test.each<[string, unknown, string]>([
    ['a Date', date, '{"$taskq:date":"2026-01-31T12:00:00.123Z"}'],
    ['the last Date', new Date(8.64e15), '{"$taskq:date":"+275760-09-13T00:00:00.000Z"}'],
    ['a Date before the year 0', new Date(-1e15), '{"$taskq:date":"-029719-04-05T22:13:20.000Z"}'],
    ['a bigint', 9_007_199_254_740_993n, '{"$taskq:bigint":"9007199254740993"}'],
    ['a negative bigint', -1n, '{"$taskq:bigint":"-1"}'],
    ['bigint zero', 0n, '{"$taskq:bigint":"0"}'],
    ['minus zero', -0, '{"$taskq:number":"-0"}'],
    ['NUL', 'a\0b', '{"$taskq:string":"a\\\\u0000b"}'],
    ['a lone high surrogate', 'a\ud83d', '{"$taskq:string":"a\\\\ud83d"}'],
    ['a lone low surrogate', '\ude00b', '{"$taskq:string":"\\\\ude00b"}'],
    [
      'NUL beside what must be escaped anyway',
      '\0"\\\n\\u0000😀',
      '{"$taskq:string":"\\\\u0000\\\\\\"\\\\\\\\\\\\n\\\\\\\\u0000😀"}',
    ],
    ['a key with NUL', { '\0': 1, b: 2 }, '{"$taskq:entries":[[{"$taskq:string":"\\\\u0000"},1],["b",2]]}'],
    ['an object like a tag', { '$taskq:date': 'x' }, '{"$taskq:entries":[["$taskq:date","x"]]}'],
  ])('%s', (_what, value, text) => {
    expect(encode(value)).toBe(text);
    expect(roundTrip(value)).toStrictEqual(value);
    const nested = { a: { b: [{ c: value }] } };
    expect(roundTrip(nested)).toStrictEqual(nested);
  });

  test('a text that only shows an escape is an ordinary text', () => {
    expect(encode('\\u0000 \\ud83d')).toBe('"\\\\u0000 \\\\ud83d"');
    expect(roundTrip('\\u0000 \\ud83d')).toBe('\\u0000 \\ud83d');
  });

  test("a user's own object comes back exactly, however much it looks like a tag", () => {
    for (const value of [
      { '$taskq:': null },
      { '$taskq:unknown': 1 },
      { '$taskq:date': '2026-01-31T12:00:00.123Z' },
      { '$taskq:bigint': '1', other: 2 },
      { '$taskq:date': '1', '$taskq:bigint': '1' },
      { '$taskq:entries': [['a', 1]] },
      { '$taskq:entries': { '$taskq:entries': [] } },
      { '$taskq:string': { '$taskq:string': '\0' } },
      { '$taskq:\0': 1n },
    ]) {
      expect(roundTrip(value)).toStrictEqual(value);
    }
  });

  test('an object that looks like a tag only once its undefined properties are gone comes back exactly', () => {
    expect(roundTrip({ '$taskq:date': 'x', gone: undefined })).toStrictEqual({ '$taskq:date': 'x' });
  });
});

describe('objects', () => {
  test.each(['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'valueOf'])(
    'an own property named %s survives, and only as that',
    (key) => {
      for (const member of [{ polluted: true }, 1n, 'text', null]) {
        const value = Object.fromEntries([
          [key, member],
          ['also', new Date(0)],
        ]);
        const back = roundTrip({ inner: value }) as { inner: object };
        expect(Object.getOwnPropertyDescriptor(back.inner, key)?.value).toStrictEqual(member);
        expect(Object.getPrototypeOf(back.inner)).toBe(Object.prototype);
        expect(Object.keys(back.inner).toSorted()).toEqual([key, 'also'].toSorted());
      }
      expect('polluted' in {}).toBe(false);
    },
  );

  test('a hostile key beside __proto__ survives, too', () => {
    const value = Object.fromEntries([
      ['__proto__', { a: 1 }],
      ['\ud800', 2],
    ]);
    const back = roundTrip(value) as object;
    expect(Object.entries(back)).toEqual(Object.entries(value));
    expect(Object.getPrototypeOf(back)).toBe(Object.prototype);
  });

  test('a property whose value is undefined is left out', () => {
    expect(encode({ a: undefined, b: 1, c: undefined })).toBe('{"b":1}');
    expect(encode({ a: undefined })).toBe('{}');
    expect(encode({ '\0': undefined })).toBe('{"$taskq:entries":[]}');
    expect(roundTrip({ '\0': undefined })).toStrictEqual({});
  });

  test('an object without a prototype comes back as an ordinary one', () => {
    expect(roundTrip(Object.assign(Object.create(null), { a: 1 }))).toStrictEqual({ a: 1 });
  });

  test('plain values of another realm are plain', () => {
    const foreign: unknown = vm.runInNewContext('({ list: [1, [2]], at: new Date(5), deep: { a: null } })');
    expect(roundTrip(foreign)).toStrictEqual({ list: [1, [2]], at: new Date(5), deep: { a: null } });
  });

  test('an object met twice is written twice, and no circle', () => {
    const shared = { a: 1 };
    expect(roundTrip({ left: shared, right: [shared, shared] })).toStrictEqual({
      left: { a: 1 },
      right: [{ a: 1 }, { a: 1 }],
    });
  });

  test('every property is read exactly once, so that what was checked is what is stored', () => {
    let reads = 0;
    const value = {
      get price() {
        reads += 1;
        return reads === 1 ? 12 : Number.NaN;
      },
    };
    expect(encode([value])).toBe('[{"price":12}]');
    expect(reads).toBe(1);
  });

  test('properties that are not enumerable are not part of the value', () => {
    const value = Object.defineProperties(
      { a: 1 },
      {
        hidden: { value: () => 1, enumerable: false },
        [Symbol('hidden')]: { value: 1, enumerable: false },
      },
    );
    expect(encode(value)).toBe('{"a":1}');
  });
});

describe('toJSON of the user is never called', () => {
  const hostile = () => {
    throw new Error('toJSON was called');
  };

  test('not from a polluted prototype, and the value is stored as it is', () => {
    const value = { a: [1, 'two', { b: true }], at: new Date(0), big: 1n };
    const homes = [Object.prototype, Array.prototype, String.prototype, Number.prototype, BigInt.prototype];
    try {
      for (const home of homes) {
        Object.defineProperty(home, 'toJSON', { value: hostile, configurable: true, writable: true });
      }
      expect(encode(value)).toBe(
        '{"a":[1,"two",{"b":true}],"at":{"$taskq:date":"1970-01-01T00:00:00.000Z"},"big":{"$taskq:bigint":"1"}}',
      );
    } finally {
      for (const home of homes) Reflect.deleteProperty(home, 'toJSON');
    }
  });

  test('an object or a class with toJSON is refused', () => {
    class Money {
      toJSON = hostile;
    }
    class Price {
      toJSON() {
        return hostile();
      }
    }
    const hidden = Object.defineProperty({ a: 1 }, 'toJSON', { value: hostile, enumerable: false });
    for (const value of [
      { toJSON: hostile },
      hidden,
      new Money(),
      new Price(),
      new URL('http://a.example'),
    ]) {
      expect(refusalOf(value)).toContain('toJSON');
    }
  });

  test('a property named toJSON that is no function is data', () => {
    expect(roundTrip({ toJSON: 'text' })).toStrictEqual({ toJSON: 'text' });
  });

  test("a Date's own toISOString and toJSON are not called", () => {
    const date = new Date(0);
    Object.defineProperty(date, 'toISOString', { value: hostile });
    Object.defineProperty(date, 'toJSON', { value: hostile });
    expect(encode(date)).toBe('{"$taskq:date":"1970-01-01T00:00:00.000Z"}');
  });
});

describe('everything else is refused with type, path, kind and the way out', () => {
  class Order {
    total = 1;
  }
  class SortedList extends Array {}
  class Deadline extends Date {}
  const extendedArray = Object.assign([1, 2], { total: 3 });
  // biome-ignore lint/suspicious/noSparseArray: a sparse array is the case.
  const sparse = [1, , 3];

  test.each<[kind: string, wayOut: string, value: unknown]>([
    ['NaN', 'null or text', Number.NaN],
    ['Infinity', 'null or text', Number.POSITIVE_INFINITY],
    ['-Infinity', 'null or text', Number.NEGATIVE_INFINITY],
    ['an Invalid Date', 'check the date', new Date(Number.NaN)],
    ['an instance of Deadline', 'plain Date', new Deadline(0)],
    ['an instance of Date', 'plain Date', Object.assign(new Date(0), { zone: 'UTC' })],
    ['a Map', 'Object.fromEntries', new Map([[1, 2]])],
    ['a Set', '[...set]', new Set([1])],
    ['a Buffer', 'base64', Buffer.from('a')],
    ['Uint8Array', 'base64', new Uint8Array(2)],
    ['Float64Array', 'base64', new Float64Array(2)],
    ['DataView', 'base64', new DataView(new ArrayBuffer(2))],
    ['ArrayBuffer', 'base64', new ArrayBuffer(2)],
    ['SharedArrayBuffer', 'base64', new SharedArrayBuffer(2)],
    ['a function', 'name', () => 1],
    ['a symbol', 'text', Symbol('x')],
    ['symbol keys', 'text', { [Symbol('key')]: 1 }],
    ['a RegExp', 'source', /a/g],
    ['a Promise', 'await', Promise.resolve(1)],
    ['an instance of Order', 'plain object', new Order()],
    ['an instance of Error', 'plain object', new Error('x')],
    ['an instance of SortedList', 'plain array', SortedList.from([1])],
    ['properties of its own', 'object', extendedArray],
    ['properties of its own', 'object', 'a1'.match(/\d/)],
    ['an instance of', 'plain object', Object.create({ inherited: 1 })],
    ['a boxed Number', 'valueOf', Object(1)],
    ['a boxed String', 'valueOf', Object('a')],
    ['a boxed Boolean', 'valueOf', Object(false)],
    ['a boxed BigInt', 'valueOf', Object(1n)],
    ['a boxed Symbol', 'valueOf', Object(Symbol('x'))],
    ['a Map', 'Object.fromEntries', vm.runInNewContext('new Map()')],
    ['an instance of Foreign', 'plain object', vm.runInNewContext('class Foreign {}; new Foreign()')],
    [
      'an instance of Rootless',
      'plain object',
      vm.runInNewContext(
        'class Rootless extends null { static make() { return Object.create(Rootless.prototype); } }; Rootless.make()',
      ),
    ],
  ])('%s (%s)', (kind, wayOut, value) => {
    const message = refusalOf({ items: [0, 1, 2, { price: value }] });
    expect(message).toMatch(/^explore_purge: payload\.items\[3\]\.price is /);
    expect(message).toContain(kind);
    expect(message.split(';')[1]).toContain(wayOut);
    expect(refusalOf(value)).toMatch(/^explore_purge: payload is /);
  });

  test('undefined as the whole payload and as an array member', () => {
    expect(refusalOf(undefined)).toBe(
      'explore_purge: payload is undefined, which cannot be stored unchanged; send null or {}',
    );
    expect(refusalOf({ a: [1, undefined] })).toContain('payload.a[1] is undefined');
  });

  test('a hole in a sparse array, also one without an end', () => {
    expect(refusalOf({ a: sparse })).toContain('payload.a[1] is a hole in a sparse array');
    expect(refusalOf(new Array(4_000_000_000))).toContain('payload[0] is a hole');
  });

  test('the path spells keys that are no identifiers', () => {
    expect(refusalOf({ 'a b': { '': { '\0"': Number.NaN } } })).toContain(
      'payload["a b"][""]["\\u0000\\""] is NaN',
    );
  });

  test('a path is right after siblings of other depths', () => {
    expect(refusalOf({ a: [[1], { b: {} }], c: { d: [[], Number.NaN] } })).toContain('payload.c.d[1] is NaN');
    expect(refusalOf({ a: { b: { x: 1 } }, c: Number.NaN })).toContain('payload.c is NaN');
  });

  test('the path of a refused value says nothing of what other properties hold', () => {
    expect(refusalOf({ password: 'hunter2', at: Number.NaN })).not.toContain('hunter2');
  });

  test('a circular reference is found where it closes', () => {
    const self: Record<string, unknown> = { name: 'self' };
    self['inner'] = { back: [self] };
    expect(refusalOf(self)).toContain('payload.inner.back[0] is a circular reference');
    const list: unknown[] = [];
    list.push(list);
    expect(refusalOf(list)).toContain('payload[0] is a circular reference');
  });

  test('a getter or a proxy that throws is refused with its path and its error as cause', () => {
    const cause = new Error('no');
    const value = {
      get price() {
        throw cause;
      },
    };
    const refused = errorOf(() => encode({ items: [value] }));
    expect(refused).toMatchObject({ code: 'PAYLOAD_UNSTORABLE', cause });
    expect(refused.message).toContain('explore_purge: payload.items[0].price cannot be read');
    const revoked = Proxy.revocable({}, {});
    revoked.revoke();
    expect(refusalOf({ a: revoked.proxy })).toContain('payload.a cannot be read');
  });
});

describe('depth', () => {
  const nested = (levels: number, wrap: (inner: unknown) => unknown, leaf: unknown = 1n) => {
    let value = leaf;
    for (let level = 0; level < levels; level++) value = wrap(value);
    return value;
  };
  const wraps: [string, (inner: unknown) => unknown][] = [
    ['arrays', (inner) => [inner]],
    ['objects', (inner) => ({ a: inner })],
    ['objects with hostile keys', (inner) => ({ '\0': inner })],
  ];

  test.each(wraps)(`${PAYLOAD_DEPTH_MAX} levels of %s round-trip, one more is refused`, (_what, wrap) => {
    const deepest = nested(PAYLOAD_DEPTH_MAX, wrap);
    expect(roundTrip(deepest)).toStrictEqual(deepest);
    expect(refusalOf(nested(PAYLOAD_DEPTH_MAX + 1, wrap))).toContain('nested deeper than 500 levels');
  });

  test.each(wraps)('100,000 levels of %s are refused, no stack overflow', (_what, wrap) => {
    const message = refusalOf(nested(100_000, wrap));
    expect(message).toContain('nested deeper than 500 levels');
    expect(message.length).toBeLessThan(500);
  });

  test('a stored text nested without end is refused, no stack overflow', () => {
    const text = `${'['.repeat(50_000)}{"$taskq:bigint":"1"}${']'.repeat(50_000)}`;
    expect(errorOf(() => decodePayload(text)).code).toBe('PAYLOAD_INVALID');
  });

  test('a small graph of shared objects that would be an endless text is refused', () => {
    let value: unknown = 'x'.repeat(1_000);
    for (let level = 0; level < 100; level++) value = [value, value];
    expect(errorOf(() => encode(value)).code).toBe('PAYLOAD_TOO_LARGE');
  });
});

describe('decodePayload refuses', () => {
  test.each([
    '',
    'undefined',
    '{"$taskq:unknown":1}',
    '{"$taskq:":null}',
    '{"a":[{"$taskq:date":5}]}',
    '{"$taskq:date":"yesterday"}',
    '{"$taskq:date":"2026-01-31"}',
    '{"$taskq:date":"2026-02-31T00:00:00.000Z"}',
    '{"$taskq:bigint":12}',
    '{"$taskq:bigint":""}',
    '{"$taskq:bigint":"1.5"}',
    '{"$taskq:bigint":"0x10"}',
    '{"$taskq:bigint":"-0"}',
    '{"$taskq:number":"NaN"}',
    '{"$taskq:number":-0}',
    '{"$taskq:string":5}',
    '{"$taskq:string":"\\""}',
    '{"$taskq:string":"\\\\"}',
    '{"$taskq:string":"a\\",\\"b"}',
    '{"$taskq:entries":{}}',
    '{"$taskq:entries":[["a"]]}',
    '{"$taskq:entries":[["a",1,2]]}',
    '{"$taskq:entries":[[1,2]]}',
    '{"$taskq:entries":[[{"$taskq:bigint":"1"},2]]}',
    '{"\\u0024taskq:unknown":1}',
  ])('%s', (text) => {
    expect(errorOf(() => decodePayload(text)).code).toBe('PAYLOAD_INVALID');
  });

  test('with the path of the tag', () => {
    expect(errorOf(() => decodePayload('{"a":[{"b":{"$taskq:bigint":"x"}}]}')).message).toBe(
      'payload.a[0].b has a malformed $taskq:bigint',
    );
  });
});

test('a number that JavaScript has rounded already is stored as what it is', () => {
  const rounded = Number('9007199254740993');
  expect(encode(rounded)).toBe('9007199254740992');
  expect(roundTrip(rounded)).toBe(9_007_199_254_740_992);
});

test('the size of a payload is counted in bytes', () => {
  expect(payloadBytes(encode('ä€😀'))).toBe(2 + 2 + 3 + 4);
});

describe('for any value', () => {
  const hostileText = fc.string({
    unit: fc.constantFrom('a', '\0', '\ud83d', '\ude00', '\\', 'u', '"', '\n', '0'),
  });
  const anyText = fc.oneof(fc.string(), fc.string({ unit: 'binary' }), hostileText);
  const tagKey = fc.constantFrom(
    '$taskq:date',
    '$taskq:bigint',
    '$taskq:number',
    '$taskq:string',
    '$taskq:entries',
    '$taskq:',
    '$taskq:\0',
  );
  const anyKey = fc.oneof(
    anyText,
    tagKey,
    fc.constantFrom('__proto__', 'constructor', 'toString', 'toJSON', 'length', '0', ''),
  );
  const { value: anyValue } = fc.letrec((tie) => ({
    value: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      fc.oneof(
        anyText,
        fc.double({ noNaN: true, noDefaultInfinity: true }),
        fc.integer(),
        fc.boolean(),
        fc.constantFrom(null, -0, 0),
        fc.bigInt(),
        fc.date({ noInvalidDate: true }),
      ),
      fc.array(tie('value'), { maxLength: 4 }),
      fc
        .array(fc.tuple(anyKey, tie('value')), { maxLength: 4 })
        .map((entries) => Object.fromEntries(entries)),
      fc.tuple(tagKey, tie('value')).map((entry) => Object.fromEntries([entry])),
    ),
  }));

  test('encode and decode give it back, deep-equal and of the same types', () => {
    fc.assert(
      fc.property(anyValue, (value) => {
        // Not toStrictEqual: a property named `constructor` deceives it.
        const back = roundTrip(value);
        expect(isDeepStrictEqual(back, value), encode(value)).toBe(true);
      }),
      { numRuns: 2_000 },
    );
  });

  test('a text that was not encoded here is decoded or refused as PAYLOAD_INVALID, nothing else', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(tagKey, fc.jsonValue())), (entries) => {
        const text = JSON.stringify(entries.map((entry) => Object.fromEntries([entry])));
        try {
          decodePayload(text);
        } catch (error) {
          expect(error).toMatchObject({ code: 'PAYLOAD_INVALID' });
        }
      }),
    );
  });
});
