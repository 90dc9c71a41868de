import fc from 'fast-check';
import { type ZodType, z } from 'zod';

// Pairs of payload schemas, the second one being what the first might have become, and values for them.
// The two are made together: two schemas made apart are almost never compatible, and would test nothing.

/** One schema, as data: zod schemas cannot be shrunk or printed. */
export type Shape =
  | { readonly kind: 'any' | 'bigint' | 'boolean' | 'date' | 'json' | 'never' | 'null' | 'tree' }
  | {
      readonly kind: 'string';
      readonly min?: number;
      readonly max?: number;
      readonly check?: keyof typeof CHECKS;
    }
  | {
      readonly kind: 'number';
      readonly int: boolean;
      readonly min?: number;
      readonly above?: number;
      readonly max?: number;
      readonly below?: number;
      readonly of?: number;
    }
  | { readonly kind: 'enum'; readonly values: readonly Scalar[] }
  | { readonly kind: 'array'; readonly item: Shape; readonly min?: number; readonly max?: number }
  | { readonly kind: 'tuple'; readonly items: readonly Shape[]; readonly rest?: Shape }
  | {
      readonly kind: 'object';
      readonly mode: Mode;
      readonly others: Shape;
      readonly properties: readonly Property[];
    }
  | { readonly kind: 'record'; readonly keys: readonly string[] | undefined; readonly value: Shape }
  | { readonly kind: 'union' | 'xor'; readonly variants: readonly Shape[] }
  | { readonly kind: 'tagged'; readonly variants: readonly (readonly [string, readonly Property[]])[] }
  | { readonly kind: 'both'; readonly left: Shape; readonly right: Shape }
  | { readonly kind: Wrapper; readonly inner: Shape };

type Scalar = string | number | boolean | null;
type Mode = 'strip' | 'strict' | 'loose' | 'catchall';
type Wrapper = 'catch' | 'coerced' | 'default' | 'nullable' | 'optional' | 'prefault' | Observer;
type Observer = 'refined' | 'trimmed';

interface Property {
  readonly name: string;
  readonly shape: Shape;
}

export interface ShapePair {
  readonly before: Shape;
  readonly after: Shape;
}

/** The same one in both schemas of a pair: what a function does, no schema says. */
export type Refinement = keyof typeof REFINEMENTS;

/** Functions that look at what they are given, so that they notice what the schema below makes of it. */
const REFINEMENTS = {
  without_b: (value: unknown) => !(typeof value === 'object' && value !== null && 'b' in value),
  short: (value: unknown) =>
    (JSON.stringify(value, (_, v) => (typeof v === 'bigint' ? 1 : v)) ?? '').length < 24,
  defined: (value: unknown) => value !== undefined,
};

const CHECKS = {
  email: (schema: z.ZodString) => schema.email(),
  lower: (schema: z.ZodString) => schema.regex(/^[a-z]*$/),
  anyCase: (schema: z.ZodString) => schema.regex(/^[a-z]*$/i),
  both: (schema: z.ZodString) => schema.regex(/^[a-z]*$/).regex(/a/),
  includes: (schema: z.ZodString) => schema.includes('a'),
  url: (schema: z.ZodString) => schema.url(),
};

export function build(shape: Shape, refinement: Refinement): ZodType {
  const inner = (child: Shape) => build(child, refinement);
  switch (shape.kind) {
    case 'any':
      return z.any();
    case 'bigint':
      return z.bigint();
    case 'boolean':
      return z.boolean();
    case 'date':
      return z.date();
    case 'json':
      return z.json();
    case 'never':
      return z.never();
    case 'null':
      return z.null();
    case 'tree':
      return tree;
    case 'string':
      return buildString(shape);
    case 'number':
      return buildNumber(shape);
    case 'enum':
      return z.literal([...shape.values]);
    case 'array': {
      let schema = z.array(inner(shape.item));
      if (shape.min !== undefined) schema = schema.min(shape.min);
      return shape.max === undefined ? schema : schema.max(shape.max);
    }
    case 'tuple': {
      const items = shape.items.map(inner) as [ZodType, ...ZodType[]];
      return shape.rest === undefined ? z.tuple(items) : z.tuple(items, inner(shape.rest));
    }
    case 'object':
      return buildObject(shape.properties, shape.mode, inner, shape.others);
    case 'record':
      return z.record(
        shape.keys === undefined ? z.string() : z.enum(shape.keys as [string]),
        inner(shape.value),
      );
    case 'union':
      return z.union(shape.variants.map(inner) as [ZodType, ...ZodType[]]);
    case 'xor':
      return z.xor(shape.variants.map(inner) as [ZodType, ...ZodType[]]);
    case 'tagged': {
      const variants = shape.variants.map(([tag, properties]) =>
        (buildObject(properties, 'strip', inner) as z.ZodObject).extend({ tag: z.literal(tag) }),
      );
      return z.discriminatedUnion('tag', variants as never);
    }
    case 'both':
      return z.intersection(inner(shape.left), inner(shape.right));
    default:
      return wrap(inner(shape.inner), shape.kind, refinement);
  }
}

const tree: ZodType = z.object({
  v: z.number(),
  get next() {
    return tree.optional();
  },
});

function buildString({ min, max, check }: Shape & { kind: 'string' }): ZodType {
  let schema = z.string();
  if (min !== undefined) schema = schema.min(min);
  if (max !== undefined) schema = schema.max(max);
  return check === undefined ? schema : CHECKS[check](schema);
}

function buildNumber(shape: Shape & { kind: 'number' }): ZodType {
  let schema = shape.int ? z.number().int() : z.number();
  if (shape.min !== undefined) schema = schema.min(shape.min);
  if (shape.above !== undefined) schema = schema.gt(shape.above);
  if (shape.max !== undefined) schema = schema.max(shape.max);
  if (shape.below !== undefined) schema = schema.lt(shape.below);
  return shape.of === undefined ? schema : schema.multipleOf(shape.of);
}

function buildObject(
  properties: readonly Property[],
  mode: Mode,
  inner: (shape: Shape) => ZodType,
  others?: Shape,
): ZodType {
  const shape = Object.fromEntries(properties.map((property) => [property.name, inner(property.shape)]));
  if (mode === 'strict') return z.strictObject(shape);
  if (mode === 'loose') return z.looseObject(shape);
  return mode === 'catchall' && others !== undefined
    ? z.object(shape).catchall(inner(others))
    : z.object(shape);
}

function wrap(schema: ZodType, wrapper: Wrapper, refinement: Refinement): ZodType {
  switch (wrapper) {
    case 'catch':
      return schema.catch(null as never);
    case 'coerced':
      if (schema instanceof z.ZodNumber)
        return z.coerce.number().check(...((schema.def.checks ?? []) as never[]));
      if (schema instanceof z.ZodString)
        return z.coerce.string().check(...((schema.def.checks ?? []) as never[]));
      return schema;
    case 'default':
      return schema.default('default' as never);
    case 'prefault':
      return schema.prefault('prefault' as never);
    case 'nullable':
      return schema.nullable();
    case 'optional':
      return schema.optional();
    case 'trimmed':
      return schema instanceof z.ZodString ? schema.trim() : schema.transform((value) => value);
    default:
      return schema.refine(REFINEMENTS[refinement]);
  }
}

export const refinement = fc.constantFrom(...(Object.keys(REFINEMENTS) as Refinement[]));

const NAMES = ['a', 'b', 'c'];
const scalar: fc.Arbitrary<Scalar> = fc.constantFrom('a', 'b', 'B', 'a@b.de', 0, 1, true, null);

/** Mostly the same on both sides. */
function twice<T>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<readonly [T, T]> {
  return fc.oneof(
    { weight: 7, arbitrary: arbitrary.map((value) => [value, value] as const) },
    { weight: 1, arbitrary: fc.tuple(arbitrary, arbitrary) },
  );
}

const bound = twice(fc.option(fc.integer({ min: 0, max: 4 }), { nil: undefined, freq: 1 }));
/** `undefined` means left out, which an optional property may not hold. */
const given = <T extends object>(value: T) =>
  Object.fromEntries(Object.entries(value).filter(([, item]) => item !== undefined)) as {
    [Key in keyof T]: Exclude<T[Key], undefined>;
  };

function each<T extends Record<string, readonly [unknown, unknown]>>(sides: T, at: 0 | 1) {
  return given(Object.fromEntries(Object.entries(sides).map(([key, pair]) => [key, pair[at]])));
}

/** A pair of one kind whose parameters are given for either side. */
function pairOf(kind: string, sides: Record<string, fc.Arbitrary<readonly [unknown, unknown]>>) {
  return fc
    .record(sides)
    .map(
      (made) =>
        ({ before: { kind, ...each(made, 0) }, after: { kind, ...each(made, 1) } }) as unknown as ShapePair,
    );
}

export const leaf: fc.Arbitrary<ShapePair> = fc.oneof(
  fc
    .constantFrom('any', 'bigint', 'boolean', 'date', 'json', 'never', 'null', 'tree')
    .map((kind) => ({ before: { kind }, after: { kind } }) as ShapePair),
  pairOf('string', {
    min: bound,
    max: bound,
    check: twice(fc.option(fc.constantFrom(...Object.keys(CHECKS)), { nil: undefined, freq: 1 })),
  }),
  pairOf('number', {
    int: twice(fc.boolean()),
    min: bound,
    above: bound,
    max: bound,
    below: bound,
    of: twice(fc.option(fc.constantFrom(2, 3), { nil: undefined, freq: 1 })),
  }),
  pairOf('enum', { values: twice(fc.uniqueArray(scalar, { minLength: 1, maxLength: 4 })) }),
);

const sidesOf = (pair: ShapePair) => [pair.before, pair.after] as const;

/** Names that stand on one side or on both. */
function propertyPairs(shape: fc.Arbitrary<ShapePair>) {
  const side = fc.constantFrom('both', 'both', 'both', 'both', 'before', 'after');
  const property = fc.record({ name: fc.constantFrom(...NAMES), shape, side });
  return fc.uniqueArray(property, { selector: ({ name }) => name, maxLength: 3 }).map((properties) => {
    const on = (at: 0 | 1, other: string) =>
      properties
        .filter((made) => made.side !== other)
        .map((made) => ({ name: made.name, shape: sidesOf(made.shape)[at] }));
    return [on(0, 'after'), on(1, 'before')] as const;
  });
}

/** Members that stand on one side or on both; either side has one at least. */
function members<T>(pair: fc.Arbitrary<readonly [T, T]>, limit: number) {
  const side = fc.constantFrom('both', 'both', 'both', 'both', 'before', 'after');
  return fc
    .tuple(pair, fc.array(fc.record({ pair, side }), { maxLength: limit }), fc.boolean())
    .map(([first, more, isReversed]) => {
      const before = [first[0], ...more.filter((made) => made.side !== 'after').map((made) => made.pair[0])];
      const after = [first[1], ...more.filter((made) => made.side !== 'before').map((made) => made.pair[1])];
      return [before, isReversed ? after.toReversed() : after] as const;
    });
}

const mode = twice(fc.constantFrom<Mode>('strip', 'strip', 'strip', 'strict', 'loose', 'catchall'));
const wrapper = fc.constantFrom<Wrapper>(
  ...(['optional', 'optional', 'nullable', 'default', 'catch', 'coerced', 'prefault', 'trimmed'] as const),
  ...(['refined', 'refined'] as const),
);

export const shapePair: fc.Arbitrary<ShapePair> = fc.letrec<{ shape: ShapePair }>((tie) => {
  const shape = tie('shape');
  const child = shape.map(sidesOf);
  const wrapped = fc
    .record({ inner: shape, kind: wrapper, side: fc.constantFrom('both', 'both', 'after', 'before') })
    .map(({ inner, kind, side }) => ({
      before: side === 'after' ? inner.before : ({ kind, inner: inner.before } as Shape),
      after: side === 'before' ? inner.after : ({ kind, inner: inner.after } as Shape),
    }));
  const grown = fc.record({ inner: shape, other: shape }).map(({ inner, other }) => ({
    before: inner.before,
    after: { kind: 'union', variants: [inner.after, other.after] } as Shape,
  }));
  return {
    shape: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      leaf,
      pairOf('array', { item: child, min: bound, max: bound }),
      pairOf('tuple', {
        items: members(child, 2),
        rest: fc.oneof(
          fc.constant([undefined, undefined] as const),
          child,
          child.map(([a]) => [a, undefined] as const),
        ),
      }),
      { weight: 5, arbitrary: pairOf('object', { mode, others: child, properties: propertyPairs(shape) }) },
      pairOf('record', { keys: twice(fc.constantFrom(undefined, ['a'], ['a', 'b'])), value: child }),
      { weight: 2, arbitrary: pairOf('union', { variants: members(child, 2) }) },
      pairOf('xor', { variants: members(child, 2) }),
      pairOf('tagged', { variants: tagged(shape) }),
      pairOf('both', { left: child, right: child }),
      { weight: 5, arbitrary: wrapped },
      grown,
      fc.record({ one: shape, two: shape }).map(({ one, two }) => ({ before: one.before, after: two.after })),
    ),
  };
}).shape;

function tagged(shape: fc.Arbitrary<ShapePair>) {
  const variant = fc.tuple(fc.constantFrom('x', 'y', 'z'), propertyPairs(shape));
  return members(
    variant.map(([tag, [before, after]]) => [[tag, before] as const, [tag, after] as const] as const),
    2,
  ).map(([before, after]) => {
    const once = <T extends readonly [string, unknown]>(variants: readonly T[]) =>
      variants.filter(([tag], at) => variants.findIndex(([other]) => other === tag) === at);
    return [once(before), once(after)] as const;
  });
}

/** Values that mostly fit a shape, of the kinds that a payload can hold; `undeclared` adds properties it does not know. */
export function valueFor(shape: Shape, undeclared: boolean): fc.Arbitrary<unknown> {
  const inner = (child: Shape) => valueFor(child, undeclared);
  switch (shape.kind) {
    case 'any':
    case 'json':
    case 'never':
      return anything;
    case 'bigint':
      return fc.bigInt({ min: 0n, max: 3n });
    case 'boolean':
      return fc.boolean();
    case 'date':
      return fc.constantFrom(new Date(0), new Date(1));
    case 'null':
      return fc.constant(null);
    case 'tree':
      return fc.constantFrom({ v: 1 }, { v: 1, next: { v: 2 } });
    case 'string':
      return fc.constantFrom('', 'a', 'b', 'B', 'ab', 'abcd', 'A', 'a@b.de', 'http://a', '1');
    case 'number':
      return fc.constantFrom(0, 1, 2, 3, 4, 6, 0.5, 2.5, -1, 100);
    case 'enum':
      return fc.constantFrom(...shape.values);
    case 'array':
      return fc.array(inner(shape.item), { maxLength: 4 });
    case 'tuple':
      return fc
        .tuple(
          fc.tuple(...shape.items.map(inner)),
          shape.rest ? fc.array(inner(shape.rest), { maxLength: 2 }) : fc.constant([]),
        )
        .map(([items, rest]) => [...items, ...rest]);
    case 'object':
      return objectFor(shape.properties, undeclared || shape.mode !== 'strip', inner);
    case 'record':
      return fc.dictionary(fc.constantFrom(...(shape.keys ?? NAMES)), inner(shape.value), {
        noNullPrototype: true,
      });
    case 'union':
    case 'xor':
      return fc.oneof(...shape.variants.map(inner));
    case 'tagged':
      return fc.oneof(
        ...shape.variants.map(([tag, properties]) =>
          objectFor(properties, undeclared, inner).map((value) => ({ ...value, tag })),
        ),
      );
    case 'both':
      return fc
        .tuple(inner(shape.left), inner(shape.right))
        .map(([left, right]) =>
          typeof left === 'object' && typeof right === 'object' ? { ...left, ...right } : left,
        );
    case 'nullable':
      return fc.oneof(inner(shape.inner), fc.constant(null));
    case 'coerced':
    case 'catch':
      return fc.oneof(inner(shape.inner), anything);
    default:
      return inner(shape.inner);
  }
}

const anything: fc.Arbitrary<unknown> = fc.constantFrom<unknown>(
  'a',
  'B',
  '',
  1,
  0.5,
  true,
  null,
  [],
  ['a'],
  {},
  { a: 1 },
  { b: 'a' },
);

function objectFor(
  properties: readonly Property[],
  undeclared: boolean,
  inner: (shape: Shape) => fc.Arbitrary<unknown>,
): fc.Arbitrary<object> {
  const declared = fc.record(Object.fromEntries(properties.map(({ name, shape }) => [name, inner(shape)])), {
    requiredKeys: [],
    noNullPrototype: true,
  });
  if (!undeclared) return declared;
  const others = fc.dictionary(fc.constantFrom(...NAMES), anything, { maxKeys: 2, noNullPrototype: true });
  return fc.tuple(others, declared).map(([other, known]) => ({ ...other, ...known }));
}
