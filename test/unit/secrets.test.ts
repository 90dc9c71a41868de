import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { maskText } from '../../src/domain/masked-text.ts';
import { checkPayload } from '../../src/domain/payload-check.ts';
import { encodePayload } from '../../src/domain/payload-codec.ts';
import { secretShape } from '../../src/domain/secret-fields.ts';
import { LearnedSecrets, maskValue, SECRET_MASK } from '../../src/domain/secrets.ts';

const secret = <Schema extends z.ZodType>(schema: Schema): Schema => schema.meta({ taskq: 'secret' });

/** A payload as `taskq task show` prints it. */
function shown(schema: z.ZodType, payload: unknown): unknown {
  return JSON.parse(maskText(encodePayload(payload, 'x'), secretShape(schema)));
}

const node: z.ZodType = z.object({
  key: secret(z.string()).optional(),
  get children() {
    return z.array(node).optional();
  },
});
const lazyNode: z.ZodType = z.lazy(() => z.object({ key: secret(z.string()), next: lazyNode.optional() }));

describe('a mark on a field masks it, whatever its schema', () => {
  const S = 'canary-1';
  const masked = { s: SECRET_MASK };
  const cases: [string, z.ZodType, unknown, unknown][] = [
    ['a string', z.object({ s: secret(z.string()) }), { s: S }, masked],
    [
      'a check behind the mark',
      z.object({ s: z.string().meta({ taskq: 'secret' }).min(1) }),
      { s: S },
      masked,
    ],
    ['a number', z.object({ s: secret(z.number()) }), { s: 4711 }, masked],
    ['a boolean', z.object({ s: secret(z.boolean()) }), { s: true }, masked],
    ['null', z.object({ s: secret(z.string().nullable()) }), { s: null }, masked],
    ['a date', z.object({ s: secret(z.date()) }), { s: new Date() }, masked],
    ['a bigint', z.object({ s: secret(z.bigint()) }), { s: 12345678901234567890n }, masked],
    ['text with NUL', z.object({ s: secret(z.string()) }), { s: `${S}\0` }, masked],
    ['an object', z.object({ s: secret(z.object({ a: z.string() })) }), { s: { a: S } }, masked],
    ['an array', z.object({ s: secret(z.array(z.string())) }), { s: [S, S] }, masked],
    [
      'items of an array',
      z.object({ s: z.array(secret(z.string())) }),
      { s: [S, S] },
      { s: [SECRET_MASK, SECRET_MASK] },
    ],
    ['a tuple', z.tuple([z.string(), secret(z.string())]), ['a', S], ['a', SECRET_MASK]],
    [
      'the rest of a tuple',
      z.tuple([z.string()], secret(z.string())),
      ['a', S, S],
      ['a', SECRET_MASK, SECRET_MASK],
    ],
    ['values of a record', z.record(z.string(), secret(z.string())), { a: S }, { a: SECRET_MASK }],
    [
      'keys of a record',
      z.object({ s: z.record(secret(z.string()), z.string()) }),
      { s: { [S]: 'a' } },
      masked,
    ],
    [
      'further fields',
      z.object({ a: z.string() }).catchall(secret(z.string())),
      { a: 'a', s: S },
      { a: 'a', s: SECRET_MASK },
    ],
    ['optional', z.object({ s: secret(z.string()).optional() }), { s: S }, masked],
    ['a mark on optional', z.object({ s: secret(z.string().optional()) }), { s: S }, masked],
    ['nullable', z.object({ s: secret(z.string()).nullable() }), { s: S }, masked],
    ['a default', z.object({ s: secret(z.string()).default('d') }), { s: S }, masked],
    ['a catch', z.object({ s: secret(z.string()).catch('d') }), { s: S }, masked],
    ['readonly', z.object({ s: secret(z.string()).readonly() }), { s: S }, masked],
    ['a transform', z.object({ s: secret(z.string()).transform(Number) }), { s: S }, masked],
    ['a pipe', z.object({ s: z.string().pipe(secret(z.string())) }), { s: S }, masked],
    ['preprocessed', z.preprocess((given) => given, z.object({ s: secret(z.string()) })), { s: S }, masked],
    [
      'JSON in a text',
      z.preprocess((given) => JSON.parse(String(given)), z.object({ s: secret(z.string()) })),
      `{"s":"${S}"}`,
      SECRET_MASK,
    ],
    ['one variant of a union', z.object({ s: z.union([z.number(), secret(z.string())]) }), { s: S }, masked],
    [
      'within one variant',
      z.discriminatedUnion('k', [
        z.object({ k: z.literal('a'), s: secret(z.string()) }),
        z.object({ k: z.literal('b') }),
      ]),
      { k: 'a', s: S },
      { k: 'a', s: SECRET_MASK },
    ],
    [
      'an intersection',
      z.intersection(z.object({ a: z.string() }), z.object({ s: secret(z.string()) })),
      { a: 'a', s: S },
      { a: 'a', s: SECRET_MASK },
    ],
    ['the whole payload', secret(z.object({ a: z.string() })), { a: S }, SECRET_MASK],
    [
      'a schema that contains itself',
      node,
      { children: [{ key: S, children: [{ key: S }] }] },
      { children: [{ key: SECRET_MASK, children: [{ key: SECRET_MASK }] }] },
    ],
    [
      'a lazy schema',
      lazyNode,
      { key: S, next: { key: S } },
      { key: SECRET_MASK, next: { key: SECRET_MASK } },
    ],
    [
      'a field called __proto__',
      z.object({ ['__proto__']: secret(z.string()) }),
      JSON.parse(`{"__proto__":"${S}"}`),
      JSON.parse(`{"__proto__":"${SECRET_MASK}"}`),
    ],
    [
      'beside names that need a tag',
      z.object({ s: secret(z.string()) }).loose(),
      { s: S, '\0': 1 },
      {
        '$taskq:entries': [
          ['s', SECRET_MASK],
          [{ '$taskq:string': '\\u0000' }, 1],
        ],
      },
    ],
  ];
  test.for(cases)('%s', ([, schema, payload, expected]) => {
    expect(shown(schema, payload)).toEqual(expected);
    expect(JSON.stringify(maskValue(payload, secretShape(schema)) ?? null, bigints)).not.toContain('canary');
  });
});

const bigints = (_key: string, value: unknown) => (typeof value === 'bigint' ? String(value) : value);

test('what is not marked stays as it is stored, to the last digit', () => {
  const shape = secretShape(z.object({ s: secret(z.string()), n: z.number(), e: z.array(z.string()) }));
  const text = '{"e": ["a \\" , {[", "\\\\"], "n": 12345678901234567890.12345, "s": "x", "t": {}, "u": [] }';
  expect(maskText(text, shape)).toBe(text.replace('"x"', `"${SECRET_MASK}"`));
});

test('a schema without a mark has no shape, and its payloads are not looked at', () => {
  expect(
    secretShape(
      z.object({
        a: z.string(),
        get self() {
          return node2;
        },
      }),
    ),
  ).toBeUndefined();
  expect(maskText('{"a": 1}', undefined)).toBe('{"a": 1}');
});
const node2: z.ZodType = z.object({ a: z.array(z.lazy(() => node2)) });

test('a shape survives JSON, as it is kept in the database', () => {
  const shape = secretShape(node);
  expect(JSON.parse(JSON.stringify(shape))).toEqual(shape);
});

describe('text that quotes a secret', () => {
  const hidden = (value: unknown, text: string) => {
    const secrets = new LearnedSecrets();
    secrets.learn(value, [{ secret: true }]);
    return secrets.text(text);
  };
  test.for([
    ['as it is', 'hunter22', 'login with hunter22 failed, hunter22!', 'login with ••• failed, •••!'],
    ['in JSON', 'a"b\\c\nd', 'got {"s":"a\\"b\\\\c\\nd"}', 'got {"s":"•••"}'],
    ['in a URL', 'p@ss/w rd', 'GET /?t=p%40ss%2Fw%20rd', 'GET /?t=•••'],
    ['as a number', 471_100, 'no card 471100', 'no card •••'],
    ['one line of it', 'BEGIN KEY\nabcdefgh\nEND KEY', 'bad line abcdefgh', 'bad line •••'],
    ['twice in a row', 'abcd', 'abcdabcd', '•••'],
    ['one within another', ['secret', 'secretary'], 'a secretary', 'a •••'],
    [
      'cut after some of it',
      'abcdefghijklmnopqrstuvwxyz',
      "token 'abcdefghijklmnopqr'... 8 more",
      "token '•••'... 8 more",
    ],
    ['cut at the end of the text', 'abcdefghijkl', 'token abcdef…', 'token •••…'],
    ['too short to be looked for', 'abc', 'abc and abcd', 'abc and abcd'],
    ['a name within it', { 'ada@example.com': 1 }, 'no ada@example.com', 'no •••'],
    ['a moment', new Date(0), 'at 1970-01-01T00:00:00.000Z', 'at •••'],
  ] as const)('%s', ([, value, text, expected]) => {
    expect(hidden(value, text)).toBe(expected);
  });

  test('keeps the names that the schema itself gives to what is within a secret field', () => {
    const card = secret(z.object({ number: z.string(), extra: z.record(z.string(), z.string()) }));
    const secrets = new LearnedSecrets();
    secrets.learn({ card: { number: '4242 4242', extra: { ada_l: 'x' } } }, secretShape(z.object({ card })));
    expect(secrets.text('the number 4242 4242 of ada_l')).toBe('the number ••• of •••');
  });

  test('is free of it for any value of four characters on, wherever it stands', () => {
    fc.assert(
      fc.property(
        fc.string({ minLength: 4, unit: 'binary' }),
        fc.string(),
        fc.string(),
        (value, before, after) => {
          expect(hidden(value, `${before}${value}${after}`).includes(value)).toBe(false);
        },
      ),
    );
  });
});

describe('the message of a payload check', () => {
  const problem = async (schema: z.ZodType, value: unknown) => {
    const error = (await checkPayload(schema, value, 'mail').catch((thrown: unknown) => thrown)) as Error;
    return { message: error.message, cause: (error.cause as Error).message };
  };
  test('says of a secret field where it is and the type, and no more', async () => {
    const schema = z.object({
      token: secret(z.string().refine(() => false, { error: ({ input }) => `no such ${input}` })),
      pin: secret(z.number()),
    });
    const { message, cause } = await problem(schema, { token: 'canary', pin: 'canary' });
    expect(message).toBe(
      'mail: payload.token: it does not fit (a secret field: no more is said); payload.pin: expected number',
    );
    expect(cause).not.toContain('canary');
  });

  test('does not quote one in the message of another field, nor names within it', async () => {
    const schema = z
      .object({ token: secret(z.record(z.string(), z.string())), to: z.string() })
      .refine(() => false, { error: ({ input }) => `bad ${JSON.stringify(input)}` });
    const { message, cause } = await problem(schema, { token: { 'canary-name': 'canary' }, to: 'ada' });
    expect(message).toContain('bad {"token":{"•••":"•••"},"to":"ada"}');
    expect(message + cause).not.toContain('canary');
  });
});
