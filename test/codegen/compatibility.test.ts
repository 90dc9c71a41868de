import { describe, expect, test } from 'vitest';
import { type ZodType, z } from 'zod';
import { compareSchemas } from '../../src/codegen/compatibility.ts';
import { payloadSchema } from '../../src/codegen/json-schema.ts';

const compareZod = (before: ZodType, after: ZodType) =>
  compareSchemas(payloadSchema(before), payloadSchema(after));
const field = (schema: ZodType) => z.object({ field: schema });

/** Recursive, with whatever a node holds. */
function tree(value: ZodType): ZodType {
  const node: ZodType = z.object({
    value,
    get children() {
      return z.array(node);
    },
  });
  return node;
}

const circle = z.object({ kind: z.literal('circle'), radius: z.number() });
const square = z.object({ kind: z.literal('square'), side: z.number() });

describe('compatible: every payload of the old schema fits the new one', () => {
  test.each<[string, ZodType, ZodType]>([
    ['nothing changed', z.object({ a: z.string() }), z.object({ a: z.string() })],
    [
      'another order of properties',
      z.object({ a: z.any(), b: z.any() }),
      z.object({ b: z.any(), a: z.any() }),
    ],
    ['a description', field(z.string()), field(z.string().describe('what it is'))],
    ['the mark of a secret field', field(z.string()), field(z.string().meta({ taskq: 'secret' }))],
    ['an added optional property', z.object({}), z.object({ a: z.string().optional() })],
    ['an added property with a default', z.object({}), z.object({ a: z.string().default('x') })],
    ['an added optional trimmed property', z.object({}), z.object({ a: z.string().trim().optional() })],
    [
      'an added optional refined property',
      z.object({}),
      z.object({ a: z.string().refine(Boolean).optional() }),
    ],
    ['a removed property', z.object({ a: z.string(), b: z.string() }), z.object({ a: z.string() })],
    ['a required property that becomes optional', field(z.string()), field(z.string().optional())],
    ['a default that is added', field(z.string().optional()), field(z.string().default('x'))],
    ['strictness that is dropped', z.strictObject({ a: z.string() }), z.object({ a: z.string() })],
    ['a property added to a strict object', z.strictObject({}), z.strictObject({ a: z.string().optional() })],
    ['a widened enum', field(z.enum(['a'])), field(z.enum(['a', 'b']))],
    ['an enum that becomes a string', field(z.enum(['a', 'b'])), field(z.string())],
    ['a literal that becomes an enum', field(z.literal('a')), field(z.enum(['a', 'b']))],
    ['a type that becomes nullable', field(z.string()), field(z.string().nullable())],
    ['an object that becomes nullable', field(z.object({})), field(z.object({}).nullable())],
    ['an added union variant', field(z.string()), field(z.union([z.number(), z.string()]))],
    [
      'an added tagged variant',
      z.discriminatedUnion('kind', [circle]),
      z.discriminatedUnion('kind', [circle, square]),
    ],
    ['an integer that becomes a number', field(z.int()), field(z.number())],
    ['loosened bounds', field(z.string().min(3).max(5)), field(z.string().min(2).max(6))],
    ['a bound that is dropped', field(z.number().min(3)), field(z.number())],
    ['an exclusive bound that includes', field(z.number().gt(3)), field(z.number().min(3))],
    ['a format that is dropped', field(z.uuid()), field(z.string())],
    [
      'one of two patterns that is dropped',
      field(z.string().regex(/a/).regex(/b/)),
      field(z.string().regex(/b/)),
    ],
    ['longer arrays', field(z.array(z.string()).max(3)), field(z.array(z.string()).max(4))],
    ['wider items', field(z.array(z.literal('a'))), field(z.array(z.string()))],
    ['a tuple that gets a rest', field(z.tuple([z.string()])), field(z.tuple([z.string()], z.number()))],
    ['wider record values', z.record(z.string(), z.int()), z.record(z.string(), z.number())],
    [
      'more record keys, each optional',
      z.partialRecord(z.enum(['a']), z.int()),
      z.partialRecord(z.enum(['a', 'b']), z.int()),
    ],
    ['anything instead of something', field(z.string()), field(z.unknown())],
    ['a catch around it', field(z.string()), field(z.number().catch(0))],
    ['a coercion of the same type', field(z.number()), field(z.coerce.number())],
    ['a bound of a date that is dropped', field(z.date().min(new Date(0))), field(z.date())],
    ['a wider recursive schema', tree(z.int()), tree(z.number())],
    [
      'looser bounds below the same refinement',
      field(z.string().min(3)).refine(Boolean),
      field(z.string()).refine(Boolean),
    ],
  ])('%s', (_, before, after) => {
    expect(compareZod(before, after).breaking).toEqual([]);
  });
});

describe('breaking, naming the path and why', () => {
  test.each<[string, ZodType, ZodType, string, RegExp]>([
    [
      'an added required property',
      z.object({}),
      field(z.string()),
      'payload.field',
      /required property was added/,
    ],
    [
      'an optional property that becomes required',
      field(z.string().optional()),
      field(z.string()),
      'payload.field',
      /became required/,
    ],
    [
      'a removed property under strict',
      z.strictObject({ field: z.string() }),
      z.strictObject({}),
      'payload.field',
      /removed that strict refuses/,
    ],
    [
      'added strictness',
      field(z.string()),
      z.strictObject({ field: z.string() }),
      'payload',
      /other properties are refused/,
    ],
    ['a catchall', field(z.string()), field(z.string()).catchall(z.int()), 'payload', /looked at/],
    [
      'a declared property of a loose object',
      z.looseObject({}),
      z.looseObject({ field: z.string().optional() }),
      'payload.field',
      /accepted/,
    ],
    [
      'a narrowed enum',
      field(z.enum(['a', 'b'])),
      field(z.enum(['a'])),
      'payload.field',
      /no longer accepted/,
    ],
    [
      'a string that becomes an enum',
      field(z.string()),
      field(z.enum(['a'])),
      'payload.field',
      /only some values/,
    ],
    ['another literal', field(z.literal('a')), field(z.literal('b')), 'payload.field', /no longer accepted/],
    ['a changed type', field(z.string()), field(z.number()), 'payload.field', /type changed/],
    ['a number that becomes an integer', field(z.number()), field(z.int()), 'payload.field', /type changed/],
    ['null that is refused', field(z.string().nullable()), field(z.string()), 'payload.field', /no variant/],
    [
      'a removed union variant',
      field(z.union([z.string(), z.object({})])),
      field(z.string()),
      'payload.field',
      /no variant/,
    ],
    [
      'a removed tagged variant',
      z.discriminatedUnion('kind', [circle, square]),
      z.discriminatedUnion('kind', [circle]),
      'payload',
      /no variant/,
    ],
    [
      'a change inside a tagged variant',
      z.discriminatedUnion('kind', [circle, square]),
      z.discriminatedUnion('kind', [circle, square.extend({ side: z.string() })]),
      'payload.side',
      /type changed/,
    ],
    [
      'an exclusive union that grows',
      z.xor([z.string(), z.number()]),
      z.xor([z.string(), z.int(), z.number()]),
      'payload',
      /exactly one/,
    ],
    ['a raised minimum', field(z.number().min(1)), field(z.number().min(2)), 'payload.field', /lower bound/],
    ['a lowered maximum', field(z.number().max(2)), field(z.number().max(1)), 'payload.field', /upper bound/],
    [
      'a bound that becomes exclusive',
      field(z.number().min(1)),
      field(z.number().gt(1)),
      'payload.field',
      /lower bound/,
    ],
    ['a divisor', field(z.number()), field(z.number().multipleOf(2)), 'payload.field', /multipleOf/],
    ['a shorter text', field(z.string()), field(z.string().max(9)), 'payload.field', /upper bound/],
    [
      'another pattern',
      field(z.string().regex(/a/)),
      field(z.string().regex(/b/)),
      'payload.field',
      /pattern/,
    ],
    [
      "a pattern's flag",
      field(z.string().regex(/a/i)),
      field(z.string().regex(/a/)),
      'payload.field',
      /no word for/,
    ],
    ['a format', field(z.string()), field(z.url()), 'payload.field', /format/],
    ['another format', field(z.url()), field(z.jwt()), 'payload.field', /format/],
    [
      'fewer items',
      field(z.array(z.any()).max(3)),
      field(z.array(z.any()).max(2)),
      'payload.field',
      /upper bound/,
    ],
    ['other items', field(z.array(z.string())), field(z.array(z.int())), 'payload.field[]', /type changed/],
    [
      'another length of a tuple',
      field(z.tuple([z.any()])),
      field(z.tuple([z.any(), z.any()])),
      'payload.field',
      /.*/,
    ],
    [
      'another member of a tuple',
      field(z.tuple([z.any(), z.string()])),
      field(z.tuple([z.any(), z.int()])),
      'payload.field[1]',
      /type changed/,
    ],
    [
      'a tuple that is closed',
      field(z.tuple([z.any()], z.any())),
      field(z.tuple([z.any()])),
      'payload.field',
      /.*/,
    ],
    [
      'other record values',
      z.record(z.string(), z.string()),
      z.record(z.string(), z.int()),
      'payload[*]',
      /type changed/,
    ],
    [
      'fewer record keys',
      z.record(z.string(), z.any()),
      z.partialRecord(z.enum(['a']), z.any()),
      'payload[key]',
      /only some values/,
    ],
    [
      'more record keys, each required',
      z.record(z.enum(['a']), z.any()),
      z.record(z.enum(['a', 'b']), z.any()),
      'payload.b',
      /required/,
    ],
    ['an object that becomes a record', z.object({}), z.record(z.string(), z.any()), 'payload', /.*/],
    [
      'anything that becomes something',
      field(z.unknown()),
      field(z.string()),
      'payload.field',
      /other types/,
    ],
    [
      'a catch that is taken away',
      field(z.string().catch('')),
      field(z.string()),
      'payload.field',
      /became required/,
    ],
    [
      'a coercion that is taken away',
      field(z.coerce.number()),
      field(z.number()),
      'payload.field',
      /converted/,
    ],
    ['a date instead of text', field(z.string()), field(z.date()), 'payload.field', /cannot say/],
    ['a bound of a bigint', field(z.bigint()), field(z.bigint().min(1n)), 'payload.field', /cannot say/],
    ['a refinement', field(z.string()), field(z.string().refine(Boolean)), 'payload.field', /cannot say/],
    [
      'a second refinement',
      field(z.string().refine(Boolean)),
      field(z.string().refine(Boolean).refine(Boolean)),
      'payload.field',
      /cannot say/,
    ],
    [
      'a refinement that moves outside of optional',
      field(z.string().refine(Boolean).optional()),
      field(z.string().optional().refine(Boolean)),
      'payload.field',
      /order|absence/,
    ],
    [
      'a default below a refinement',
      field(z.string().optional()).refine(Boolean),
      field(z.string().default('')).refine(Boolean),
      'payload.field',
      /given something else/,
    ],
    [
      'a changed schema behind a pipe',
      field(z.string().pipe(z.string().max(9))),
      field(z.string().pipe(z.string().max(8))),
      'payload.field',
      /may have changed/,
    ],
    ['a narrower recursive schema', tree(z.number()), tree(z.int()), 'payload.value', /type changed/],
    [
      'a keyword nobody knows',
      field(z.string()),
      field(z.string().meta({ unheardOf: 1 })),
      'payload.field',
      /unheardOf/,
    ],
    [
      'a property whose name is no identifier',
      z.object({ 'a b': z.string() }),
      z.object({ 'a b': z.int() }),
      'payload["a b"]',
      /type changed/,
    ],
  ])('%s', (_, before, after, path, why) => {
    const { breaking } = compareZod(before, after);
    expect(breaking.map((change) => change.path)).toContain(path);
    expect(breaking.find((change) => change.path === path)?.why).toMatch(why);
  });
});

test('a newly declared property is a caution: rows may hold an undeclared one of that name', () => {
  const { breaking, cautions } = compareZod(z.object({}), z.object({ a: z.int().optional() }));
  expect(breaking).toEqual([]);
  expect(cautions).toMatchObject([{ path: 'payload.a', old: 'undeclared' }]);
  // A strict schema let none through.
  expect(compareZod(z.strictObject({}), z.strictObject({ a: z.int().optional() })).cautions).toEqual([]);
});

test('each change in a payload is reported, with what was and what is', () => {
  const before = z.object({ name: z.string().max(20), kind: z.enum(['a', 'b']) });
  const after = z.object({ name: z.string().max(10), kind: z.enum(['b']), at: z.iso.date() });
  expect(compareZod(before, after).breaking).toMatchObject([
    { path: 'payload.at', old: 'absent' },
    { path: 'payload.kind', old: '"a"', new: '"b"' },
    { path: 'payload.name', old: 'maxLength 20', new: 'maxLength 10' },
  ]);
});

test('a $ref that leads nowhere is breaking', () => {
  const broken = { $ref: '#/$defs/gone' };
  expect(compareSchemas(broken, { type: 'string' }).breaking).toHaveLength(1);
  expect(compareSchemas(broken, broken).breaking).toHaveLength(1);
});
