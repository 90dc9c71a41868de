import { expect, test } from 'vitest';
import { type ZodType, z } from 'zod';
import { payloadSchema } from '../../src/codegen/json-schema.ts';
import { payloadType } from '../../src/codegen/render-payload-type.ts';

const linked: ZodType = z.object({
  get next() {
    return linked.optional();
  },
});
const shared = z.object({ id: z.string() }).meta({ id: 'SharedInRevisions' });

test.each<[string, ZodType, string]>([
  ['text', z.string().min(3), 'string'],
  ['a whole number', z.int(), 'number'],
  ['a union', z.union([z.string(), z.null(), z.array(z.int())]), 'string | null | number[]'],
  ['a nullable enum', z.enum(["it's", 'b']).nullable(), "'b' | 'it\\'s' | null"],
  ['literals', z.literal([1, true, null]), '1 | null | true'],
  ['literals beyond JSON', z.literal([1n, 'a']), "'a' | 1n"],
  ['a date and a bigint', z.tuple([z.date(), z.bigint()]), '[Date, bigint]'],
  [
    'a tuple with a rest',
    z.tuple([z.string()], z.union([z.int(), z.null()])),
    '[string, ...(number | null)[]]',
  ],
  ['a tuple with an optional member', z.tuple([z.string(), z.int().optional()]), '[string, number?]'],
  ['an empty object', z.object({}), '{}'],
  ['an array of unions', z.array(z.union([z.string(), z.int()])), '(string | number)[]'],
  ['a record', z.record(z.string(), z.int()), '{\n  [key: string]: number;\n}'],
  [
    'a record of listed keys',
    z.record(z.enum(['a', 'b-c']), z.int()),
    "{\n  a: number;\n  'b-c': number;\n}",
  ],
  ['some of the listed keys', z.partialRecord(z.enum(['a']), z.int()), '{\n  a?: number;\n}'],
  ['a loose object', z.looseObject({ a: z.int() }), '{\n  a: number;\n  [key: string]: unknown;\n}'],
  ['a coercion', z.coerce.date(), 'unknown'],
  ['a catch', z.string().catch(''), 'unknown'],
  ['a preprocessing', z.preprocess(String, z.string()), 'unknown'],
  ['a transform, from before it ran', z.string().transform(Number), 'string'],
  ['a map', z.map(z.string(), z.int()), 'unknown'],
  ['never', z.never(), 'never'],
  [
    'a recursive schema, as deep as it has names',
    z.array(linked),
    '{\n  next?: {\n    next?: unknown;\n  };\n}[]',
  ],
  ['a shared schema', z.tuple([shared, shared]), '[{\n  id: string;\n}, {\n  id: string;\n}]'],
])('%s', (_, schema, expected) => {
  expect(payloadType(payloadSchema(schema))).toBe(expected);
});

test('objects are broken into lines, and a default leaves the property optional', () => {
  const schema = z.object({ 'a-b': z.string(), inner: z.object({ n: z.number().default(1) }) });
  expect(payloadType(payloadSchema(schema), '  ')).toBe(
    ['{', "    'a-b': string;", '    inner: {', '      n?: number;', '    };', '  }'].join('\n'),
  );
});
