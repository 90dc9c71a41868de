import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { ZodType } from 'zod';
import { compareSchemas } from '../../src/codegen/compatibility.ts';
import { payloadSchema } from '../../src/codegen/json-schema.ts';
import {
  refinement as anyRefinement,
  build,
  leaf,
  type Refinement,
  type ShapePair,
  shapePair,
  valueFor,
} from './schema-pairs.ts';

const VALUES = 12;
/** Raised for a longer hunt. */
const RUNS = Number(process.env['TASKQ_PROPERTY_RUNS'] ?? 1_000);

function accepts(schema: ZodType, value: unknown): boolean {
  try {
    return schema.safeParse(value).success;
  } catch {
    // A function of the user's threw: refused.
    return false;
  }
}

/** Zod refuses to make some schemas, such as a union of two variants with one tag. */
function tryToBuild({ before, after }: ShapePair, refinement: Refinement): ZodType[] {
  try {
    const schemas = [build(before, refinement), build(after, refinement)];
    for (const schema of schemas) accepts(schema, {});
    return schemas;
  } catch {
    return [];
  }
}

test('what is called compatible accepts every payload that was accepted before', () => {
  const seen = { breaking: 0, changed: 0, values: 0 };
  const run = fc.property(
    shapePair.chain((pair) => {
      const values = (undeclared: boolean) =>
        fc.array(valueFor(pair.before, undeclared), { minLength: VALUES, maxLength: VALUES });
      return fc.tuple(fc.constant(pair), anyRefinement, values(false), values(true));
    }),
    ([pair, refinement, declared, undeclared]) => {
      const [before, after] = tryToBuild(pair, refinement);
      if (before === undefined || after === undefined) return;
      const [from, to] = [payloadSchema(before), payloadSchema(after)];
      const { breaking, cautions } = compareSchemas(from, to);
      if (breaking.length > 0) {
        seen.breaking += 1;
        return;
      }
      if (JSON.stringify(from) !== JSON.stringify(to)) seen.changed += 1;
      for (const value of cautions.length > 0 ? declared : [...declared, ...undeclared]) {
        if (!accepts(before, value)) continue;
        seen.values += 1;
        if (!accepts(after, value))
          throw new Error(`${JSON.stringify([from, to])} refuses ${JSON.stringify(value)}`);
      }
    },
  );
  fc.assert(run, { numRuns: RUNS });
  // The test must have met what it is about.
  for (const count of Object.values(seen)) expect(count).toBeGreaterThan(50);
});

test('an optional property may always be added, with a caution where undeclared ones were let through', () => {
  const properties = fc.array(leaf, { maxLength: 3 });
  const run = fc.property(
    fc
      .tuple(properties, leaf, fc.constantFrom('strip' as const, 'strict' as const))
      .chain(([known, added, mode]) => {
        const declared = known.map(({ before }, at) => ({ name: `known${at}`, shape: before }));
        const object = { kind: 'object' as const, mode, others: added.before };
        const optional = { name: 'added', shape: { kind: 'optional' as const, inner: added.before } };
        const pair = {
          before: { ...object, properties: declared },
          after: { ...object, properties: [...declared, optional] },
        };
        return fc.tuple(fc.constant(pair), fc.array(valueFor(pair.before, false), { maxLength: VALUES }));
      }),
    ([pair, values]) => {
      const [before, after] = [build(pair.before, 'short'), build(pair.after, 'short')];
      const { breaking, cautions } = compareSchemas(payloadSchema(before), payloadSchema(after));
      expect(breaking).toEqual([]);
      const isAnything = pair.before.others.kind === 'any';
      expect(cautions).toHaveLength(pair.before.mode === 'strict' || isAnything ? 0 : 1);
      for (const value of values) if (accepts(before, value)) expect(accepts(after, value)).toBe(true);
    },
  );
  fc.assert(run, { numRuns: RUNS });
});
