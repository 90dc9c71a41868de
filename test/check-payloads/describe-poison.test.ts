import { z } from 'zod';
import { describePoison } from '../../src/check-payloads/describe-poison.ts';
import { readStoredPayload } from '../../src/domain/stored-payload.ts';
import { defineTask, type TaskDefinition } from '../../src/index.ts';
import { describe, expect, test } from '../support/test.ts';

/** What every value, and every name that only a row knows, holds here. */
const CANARY = 'canary-7f3a';

async function describeRow(payload: z.ZodType, value: unknown, more: Partial<TaskDefinition> = {}) {
  const definition = { ...defineTask({ type: 'checked', payload, ceiling: '1m' }), ...more };
  const payloadText = typeof value === 'string' ? value : JSON.stringify(value);
  const stored = { payloadText, payloadRevision: 1, cursorText: '{"at":"start"}' };
  const read = await readStoredPayload({ definition, revision: 2 }, stored);
  if (read.kind !== 'poison') throw new Error('the row fits');
  return describePoison(definition, read);
}

const secret = (schema: z.ZodType) => schema.meta({ taskq: 'secret' });
const quoting = { error: ({ input }: { input?: unknown }) => `refused ${String(input)}` };

const FAILURES: [string, z.ZodType, unknown, string, string][] = [
  ['a wrong type', z.object({ n: z.number() }), { n: CANARY }, 'payload.n', 'expected number'],
  ['a missing field', z.object({ n: z.number() }), {}, 'payload.n', 'expected number'],
  [
    'a short text',
    z.object({ t: z.string().min(20) }),
    { t: CANARY },
    'payload.t',
    'expected string to have >= 20 characters',
  ],
  ['an empty list', z.array(z.string()).min(1), [], 'payload', 'expected array to have >= 1 items'],
  ['a large number', z.object({ n: z.number().lt(3) }), { n: 3 }, 'payload.n', 'expected number < 3'],
  [
    'a broken format',
    z.object({ e: z.email(quoting) }),
    { e: CANARY },
    'payload.e',
    'expected a string of the format email',
  ],
  ['a wrong option', z.object({ e: z.enum(['a', 'b']) }), { e: CANARY }, 'payload.e', 'expected "a" or "b"'],
  [
    'a removed field',
    z.strictObject({}),
    { legacy: CANARY },
    'payload',
    "expected no further field, found 'legacy'",
  ],
  [
    'no type of a union',
    z.object({ u: z.union([z.string(), z.number()]) }),
    { u: [CANARY] },
    'payload.u',
    'expected string or number',
  ],
  [
    'no variant',
    z.discriminatedUnion('kind', [z.object({ kind: z.literal('a') })]),
    { kind: CANARY },
    'payload.kind',
    'expected one of the variants of its union',
  ],
  [
    'a member of a list',
    z.object({ s: z.array(z.object({ n: z.number() })) }),
    { s: [{ n: 1 }, {}] },
    'payload.s[1].n',
    'expected number',
  ],
  [
    'a value of a record',
    z.record(z.string(), z.number()),
    { [CANARY]: CANARY },
    'payload.*',
    'expected number',
  ],
  [
    'a value of a record with known keys',
    z.partialRecord(z.enum(['a', 'b']), z.number()),
    { a: CANARY },
    'payload.a',
    'expected number',
  ],
  [
    'a key of a record',
    z.record(z.string().max(3), z.number()),
    { [CANARY]: 1 },
    'payload.*',
    'a key of the record does not fit',
  ],
  ['an extra field', z.object({}).catchall(z.number()), { [CANARY]: CANARY }, 'payload.*', 'expected number'],
  [
    'a rule with a message of its own',
    z.object({ t: z.string().refine(() => false, quoting) }),
    { t: CANARY },
    'payload.t',
    'a check of its schema does not pass',
  ],
  [
    'a transform that throws',
    z.string().transform((text) => JSON.parse(text)),
    JSON.stringify(CANARY),
    'payload',
    'its schema threw SyntaxError',
  ],
  [
    'an unknown tag',
    z.object({}),
    { [CANARY]: { [`$taskq:${CANARY}`]: 1 } },
    'payload',
    'expected values as taskq stores them',
  ],
];

describe('what is said about a poison row', () => {
  test.each(FAILURES)(
    'of %s names path and expectation, and no value',
    async (_, schema, value, path, expectation) => {
      expect(await describeRow(schema, value)).toEqual({ path, expectation, more: 0 });
    },
  );

  test('counts the further problems of the row', async () => {
    const schema = z.object({ a: z.number(), b: z.number(), c: z.number() });
    expect(await describeRow(schema, {})).toEqual({
      path: 'payload.a',
      expectation: 'expected number',
      more: 2,
    });
  });

  test('of an upgrade that throws names the step and not what it said', async () => {
    const upgrades = { 2: (old: unknown) => JSON.parse((old as { text: string }).text) };
    expect(await describeRow(z.object({}), { text: CANARY }, { upgrades })).toEqual({
      path: 'payload',
      expectation: 'the upgrade of revision 1 → 2 threw SyntaxError',
      more: 0,
    });
  });

  test('of a cursor says so', async () => {
    const cursor = z.object({ at: z.number() });
    expect(await describeRow(z.object({}), {}, { cursor })).toEqual({
      path: 'cursor.at',
      expectation: 'expected number',
      more: 0,
    });
  });
});

describe('a secret field', () => {
  const HIDDEN = 'it does not fit (a secret field: no more is said)';
  const inner = z.strictObject({ user: z.string(), [CANARY]: z.string().optional() });

  test.each<[string, z.ZodType, unknown, string, string]>([
    [
      'keeps its rules to itself',
      z.object({ s: secret(z.string().regex(/^canary-\d+$/)) }),
      { s: CANARY },
      'payload.s',
      HIDDEN,
    ],
    [
      'keeps its fields to itself',
      z.object({ s: secret(inner) }),
      { s: { user: 'u', [CANARY]: 1 } },
      'payload.s',
      'expected string',
    ],
    [
      'keeps its further fields to itself',
      z.object({ s: secret(z.strictObject({})) }),
      { s: { [CANARY]: 1 } },
      'payload.s',
      HIDDEN,
    ],
    [
      'may be wrapped',
      z.object({ s: secret(z.literal('canary')).nullable().optional() }),
      { s: CANARY },
      'payload.s',
      HIDDEN,
    ],
    [
      'may be marked before its checks',
      z.object({ s: z.string().meta({ taskq: 'secret' }).min(90) }),
      { s: CANARY },
      'payload.s',
      HIDDEN,
    ],
    [
      'may be in one variant',
      z.object({ s: z.union([secret(z.literal('a')), z.object({})]) }),
      { s: CANARY },
      'payload.s',
      HIDDEN,
    ],
    [
      'may be behind a preprocessing',
      z.preprocess((given) => given, z.object({ s: secret(z.literal('a')) })),
      { s: CANARY },
      'payload.s',
      HIDDEN,
    ],
    [
      'may be a member of a list',
      z.tuple([z.string()], secret(z.literal('a'))),
      ['x', CANARY],
      'payload[1]',
      HIDDEN,
    ],
    [
      'may be the whole payload',
      secret(z.strictObject({ a: z.literal('a') })),
      { a: CANARY },
      'payload',
      HIDDEN,
    ],
  ])('%s', async (_, schema, value, path, expectation) => {
    const described = await describeRow(schema, value);
    expect(described).toMatchObject({ path, expectation });
    expect(JSON.stringify(described)).not.toContain(CANARY);
  });

  test('within a schema that holds itself is found', async () => {
    const node: z.ZodType = z.lazy(() =>
      z.object({ key: secret(z.literal('a')).optional(), next: node.optional() }),
    );
    const described = await describeRow(node, { next: { next: { key: CANARY } } });
    expect(described).toEqual({ path: 'payload.next.next.key', expectation: HIDDEN, more: 0 });
  });
});
