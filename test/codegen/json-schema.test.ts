import { describe, expect, test } from 'vitest';
import { type ZodType, z } from 'zod';
import { acceptsSame, payloadSchema } from '../../src/codegen/json-schema.ts';

interface Tree {
  readonly children: readonly Tree[];
}
const tree: ZodType<Tree> = z.object({
  get children() {
    return z.array(tree);
  },
});

describe('what JSON Schema cannot say is marked', () => {
  test.each<[string, ZodType, object]>([
    ['a date', z.date(), { 'x-taskq': ['date'] }],
    [
      'a bound of a date',
      z.date().min(new Date(0)),
      {
        'x-taskq': ['date'],
        'x-taskq-checks': ['greater_than inclusive=true value=1970-01-01T00:00:00.000Z'],
      },
    ],
    ['a bigint', z.bigint().optional(), { 'x-taskq': ['bigint'] }],
    ['a bigint literal', z.literal([1n, 'a']), { 'x-taskq': ['bigint'], 'x-taskq-literals': ['"a"', '1n'] }],
    ['a map', z.map(z.string(), z.number()), { 'x-taskq': ['map'] }],
    ['a class', z.instanceof(Uint8Array), { 'x-taskq': ['custom'] }],
    ['a coercion', z.coerce.boolean(), { type: 'boolean', 'x-taskq': ['coerced'] }],
    ['a transform', z.string().transform(Number), { type: 'string', 'x-taskq': ['transformed'] }],
    ['a trim', z.string().trim(), { type: 'string', 'x-taskq': ['transformed'] }],
    ['a preprocessing', z.preprocess(Number, z.number()), { type: 'number', 'x-taskq': ['preprocessed'] }],
    ['a catch', z.number().catch(1), { type: 'number', 'x-taskq': ['catch'] }],
    [
      'a pipe',
      z.string().transform(Number).pipe(z.number().max(9)),
      {
        type: 'string',
        'x-taskq': ['piped', 'transformed'],
        'x-taskq-order': ['transformed', 'piped'],
        'x-taskq-output': { type: 'number', maximum: 9 },
      },
    ],
    ['a prefault', z.string().prefault('a'), { type: 'string', 'x-taskq': ['prefault'] }],
    [
      'a refinement of an optional value',
      z.string().optional().refine(Boolean),
      {
        type: 'string',
        'x-taskq': ['refined'],
        'x-taskq-refinements': 1,
        'x-taskq-order': ['optional', 'refined'],
      },
    ],
    [
      'an optional value with a refinement',
      z.string().refine(Boolean).optional(),
      {
        type: 'string',
        'x-taskq': ['refined'],
        'x-taskq-refinements': 1,
        'x-taskq-order': ['refined', 'optional'],
      },
    ],
    [
      'a bound before a trim',
      z.string().max(9).trim(),
      {
        type: 'string',
        maxLength: 9,
        'x-taskq': ['transformed'],
        'x-taskq-order': ['checked', 'transformed'],
      },
    ],
    [
      'an intersection',
      z.intersection(z.object({}), z.object({})),
      { type: 'object', properties: {}, 'x-taskq': ['intersected'] },
    ],
    [
      "a pattern's flags",
      z.string().regex(/^a/i),
      { type: 'string', pattern: '^a', 'x-taskq-checks': ['regex /^a/i'] },
    ],
    [
      'the host names of a URL',
      z.url({ hostname: /^a$/ }),
      { type: 'string', format: 'uri', 'x-taskq-checks': ['url /^a$/'] },
    ],
    [
      'the first of two formats',
      z.string().url().jwt(),
      { type: 'string', format: 'jwt', 'x-taskq-checks': ['url'] },
    ],
    [
      'two refinements',
      z.string().refine(Boolean).refine(Boolean),
      { type: 'string', 'x-taskq': ['refined'], 'x-taskq-refinements': 2 },
    ],
  ])('%s', (_, schema, expected) => {
    expect(payloadSchema(schema)).toEqual(expected);
  });
});

test('the input side is described: a default makes a property optional, and its value is left out', () => {
  const schema = z.strictObject({ id: z.string(), at: z.number().default(() => Math.random()) });
  expect(payloadSchema(schema)).toEqual({
    type: 'object',
    properties: { id: { type: 'string' }, at: { type: 'number', 'x-taskq': ['default'] } },
    required: ['id'],
    additionalProperties: false,
  });
});

test('recursive, branded, lazy, discriminated and piped-into-themselves schemas all convert', () => {
  const loop: ZodType<string, string> = z.lazy(() => z.string().transform(String).pipe(loop));
  const choice = z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('a'), at: z.date() }),
    z.object({ kind: z.literal('b') }),
  ]);
  for (const schema of [tree, z.string().brand('Id'), loop, choice]) {
    expect(JSON.parse(JSON.stringify(payloadSchema(schema)))).toEqual(payloadSchema(schema));
  }
});

test('the order of the lines in a source file means nothing', () => {
  const forth = payloadSchema(z.object({ a: z.string(), b: z.number(), c: z.enum(['x', 'y']) }));
  const back = payloadSchema(z.object({ c: z.enum(['y', 'x']), b: z.number(), a: z.string() }));
  expect(JSON.stringify(back)).toBe(JSON.stringify(forth));
});

test('descriptions do not make a schema another one, but properties of their name do', () => {
  const plain = payloadSchema(z.object({ title: z.string() }));
  const described = payloadSchema(z.object({ title: z.string().describe('of a book') }).meta({ title: 'T' }));
  expect(acceptsSame(plain, described)).toBe(true);
  expect(acceptsSame(plain, payloadSchema(z.object({})))).toBe(false);
  const secret = payloadSchema(z.object({ title: z.string().meta({ taskq: 'secret' }) }));
  expect(acceptsSame(plain, secret)).toBe(true);
  expect(acceptsSame(plain, payloadSchema(z.object({ title: z.string().min(1) })))).toBe(false);
});
