import { type ZodType, z } from 'zod';
import { byCodeUnit } from './order.ts';

// A payload's JSON Schema is what an enqueue may give (zod's input side), for the manifest and for producers in
// other languages. Where JSON Schema has no word for what zod does, the keyword `x-taskq` says what is missing,
// so that a reader of the schema never takes it for the whole truth:
//
//   "date", "bigint"           stored by the payload codec under a tag
//   "map", "set", "custom" …   any other type JSON does not have
//   "coerced"                  other types are accepted too, and converted
//   "default", "catch"         a value is filled in; which one is left out, since a function may make it anew
//   "prefault"                 a value is filled in, and then parsed like one that was given
//   "intersected"              two schemas take the value each, and what they make of it must agree
//   "refined"                  a function of the user's decides as well (`x-taskq-refinements`: how many)
//   "transformed"              a function of the user's changes the value, and may refuse it
//   "preprocessed"             a function of the user's makes the value that the schema beside it describes
//   "piped"                    the result is parsed again, by the schema under `x-taskq-output`
//
// Where a function meets another one, or a wrapper such as `optional`, `x-taskq-order` says which is inside of which:
// `z.string().refine(f).optional()` accepts nothing at all, `z.string().optional().refine(f)` only if `f` does.
//
// Bounds of types that JSON does not have stand under `x-taskq-checks`, and so do checks that the conversion leaves
// out: a pattern's flags, the host names of a URL, one of two formats.

export type JsonSchema = Readonly<Record<string, unknown>>;

const MARKS = 'x-taskq';

/** Keywords that describe and constrain nothing; `taskq` marks a secret field. */
const ANNOTATIONS = new Set(['$comment', 'deprecated', 'description', 'examples', 'taskq', 'title']);
/** Keywords whose value is a map from the user's names to schemas; those names are no keywords. */
const SCHEMA_MAPS = new Set(['$defs', 'patternProperties', 'properties']);
/** Keywords whose value is the user's data. */
const DATA = new Set(['const', 'default', 'enum', 'examples']);

/** JSON Schema of what `schema` accepts, with its keys in code-unit order. Unrepresentable parts are marked. */
export function payloadSchema(schema: ZodType): JsonSchema {
  return canonical(convert(schema, new Set()), 'schema') as JsonSchema;
}

/** Whether two canonical schemas accept the same; titles, descriptions and examples do not count. */
export function acceptsSame(left: JsonSchema, right: JsonSchema): boolean {
  return JSON.stringify(withoutAnnotations(left)) === JSON.stringify(withoutAnnotations(right));
}

function convert(schema: ZodType, outer: ReadonlySet<unknown>): Record<string, unknown> {
  const converted = z.toJSONSchema(schema, {
    io: 'input',
    unrepresentable: 'any',
    override: ({ zodSchema, jsonSchema }) => {
      annotate(zodSchema as unknown as ZodType, jsonSchema as Record<string, unknown>, outer);
    },
  }) as Record<string, unknown>;
  // The same line in every entry of the manifest says nothing. A copy, since zod froze some of its properties.
  const { $schema: _, ...kept } = converted;
  return kept;
}

interface Definition {
  readonly type: string;
  readonly coerce?: boolean;
  readonly checks?: readonly { readonly _zod: { readonly def: CheckDefinition } }[];
  readonly values?: readonly unknown[];
  readonly innerType?: ZodType;
  readonly in?: ZodType;
  readonly out?: ZodType;
  readonly check?: string;
}

interface CheckDefinition extends Readonly<Record<string, unknown>> {
  readonly check: string;
}

function annotate(schema: ZodType, json: Record<string, unknown>, outer: ReadonlySet<unknown>): void {
  const definition = schema._zod.def as unknown as Definition;
  const marks = new Set(json[MARKS] as string[] | undefined);
  const checks = (definition.checks ?? []).map((check) => check._zod.def);
  if (definition.coerce === true) marks.add('coerced');
  switch (definition.type) {
    case 'default':
    case 'prefault':
    case 'catch':
      delete json['default'];
      marks.add(definition.type);
      break;
    case 'intersection':
      marks.add('intersected');
      break;
    case 'literal':
      markLiteral(definition.values ?? [], json, marks);
      break;
    case 'pipe':
      markPipe(definition, json, marks, outer);
      break;
    case 'transform':
      marks.add('transformed');
      break;
    default:
      if (UNREPRESENTABLE.has(definition.type)) {
        marks.add(definition.type);
        const bounds = checks.filter(({ check }) => check !== 'custom').map(describeCheck);
        if (bounds.length > 0) json['x-taskq-checks'] = bounds.sort(byCodeUnit);
      } else markUnsaid(definition, checks, json);
  }
  const refinements = checks.filter(({ check }) => check === 'custom').length;
  if (refinements > 0) {
    marks.add('refined');
    json['x-taskq-refinements'] = refinements;
  }
  if (checks.some(({ check }) => check === 'overwrite')) marks.add('transformed');
  const order = orderOf(schema);
  // Inherited from the schema inside, which had less to say.
  delete json['x-taskq-order'];
  if (order.length > 1 && order.some((step) => FUNCTIONS.has(step))) json['x-taskq-order'] = order;
  if (marks.size > 0) json[MARKS] = [...marks].sort(byCodeUnit);
}

const FUNCTIONS = new Set(['intersected', 'piped', 'prefault', 'preprocessed', 'refined', 'transformed']);

/** Functions and wrappers, the innermost first; neighbours of one kind count once. */
function orderOf(schema: ZodType | undefined): string[] {
  if (schema === undefined) return [];
  const definition = schema._zod.def as unknown as Definition;
  const checks = (definition.checks ?? []).map((check) => check._zod.def.check);
  const isChanged = checks.includes('overwrite');
  const own = checks.flatMap((check) => {
    if (check === 'custom') return ['refined'];
    if (check === 'overwrite') return ['transformed'];
    // A bound is about the value before or after a trim.
    return isChanged ? ['checked'] : [];
  });
  const steps = [...orderInside(definition), ...own];
  return steps.filter((step, at) => step !== steps[at - 1]);
}

function orderInside(definition: Definition): string[] {
  switch (definition.type) {
    case 'catch':
    case 'default':
    case 'nonoptional':
    case 'optional':
    case 'prefault':
      return [...orderOf(definition.innerType), definition.type];
    case 'readonly':
      return orderOf(definition.innerType);
    case 'intersection':
      return ['intersected'];
    case 'pipe':
      if (typeOf(definition.in) === 'transform') return ['preprocessed', ...orderOf(definition.out)];
      return [...orderOf(definition.in), typeOf(definition.out) === 'transform' ? 'transformed' : 'piped'];
    default:
      return [];
  }
}

const UNREPRESENTABLE = new Set([
  'bigint',
  'custom',
  'date',
  'file',
  'function',
  'map',
  'nan',
  'promise',
  'set',
  'symbol',
  'undefined',
  'void',
]);

/** Checks that the conversion has a keyword for, or that are marked elsewhere. */
const SAID = new Set([
  'custom',
  'greater_than',
  'length_equals',
  'less_than',
  'max_length',
  'min_length',
  'multiple_of',
  'number_format',
  'overwrite',
]);

function markUnsaid(
  definition: Definition,
  checks: readonly CheckDefinition[],
  json: Record<string, unknown>,
): void {
  // A format that is a schema of its own, such as `z.url()`, is its own first check.
  const own = definition.check === 'string_format' ? [definition as unknown as CheckDefinition] : [];
  const unsaid = [...own, ...checks].flatMap((check) => {
    if (SAID.has(check.check)) return [];
    return check.check === 'string_format' ? unsaidOfFormat(check, json) : [describeCheck(check)];
  });
  if (unsaid.length > 0) json['x-taskq-checks'] = [...new Set(unsaid)].sort(byCodeUnit);
}

function unsaidOfFormat(check: CheckDefinition, json: Record<string, unknown>): string[] {
  const { format, hostname, pattern, protocol } = check;
  const unsaid: string[] = [];
  // The conversion keeps a pattern's source only; those of zod's own formats never change their flags.
  if (format === 'regex' && pattern instanceof RegExp && pattern.flags !== '')
    unsaid.push(`regex ${pattern}`);
  for (const part of [hostname, protocol]) if (part instanceof RegExp) unsaid.push(`${format} ${part}`);
  // Of several formats the conversion keeps the last; one that is a function is gone then.
  const isKept = json['format'] === (format === 'url' ? 'uri' : format);
  if (pattern === undefined && !isKept) unsaid.push(String(format));
  return unsaid;
}

/** A literal may be a bigint or undefined, which the conversion rounds or leaves out. */
function markLiteral(values: readonly unknown[], json: Record<string, unknown>, marks: Set<string>): void {
  const foreign = values.filter((value) => typeof value === 'bigint' || value === undefined);
  if (foreign.length === 0) return;
  for (const value of foreign) marks.add(typeof value);
  delete json['const'];
  delete json['enum'];
  delete json['type'];
  json['x-taskq-literals'] = values
    .map((value) => (typeof value === 'bigint' ? `${value}n` : (JSON.stringify(value) ?? 'undefined')))
    .sort(byCodeUnit);
}

function markPipe(
  { in: input, out }: Definition,
  json: Record<string, unknown>,
  marks: Set<string>,
  outer: ReadonlySet<unknown>,
): void {
  if (typeOf(input) === 'transform') {
    // The conversion wrote the schema of what comes out of the function; what goes in need not fit it.
    marks.add('preprocessed');
    return;
  }
  if (out === undefined || typeOf(out) === 'transform') {
    marks.add('transformed');
    return;
  }
  marks.add('piped');
  // A schema that leads back to this pipe would never end.
  if (!outer.has(out)) json['x-taskq-output'] = convert(out, new Set([...outer, out]));
}

function typeOf(schema: ZodType | undefined): string | undefined {
  return (schema?._zod.def as Definition | undefined)?.type;
}

function describeCheck(definition: CheckDefinition): string {
  const parts = Object.entries(definition)
    .filter(([name, value]) => name !== 'check' && name !== 'abort' && typeof value !== 'function')
    .sort(([left], [right]) => byCodeUnit(left, right))
    .map(([name, value]) => `${name}=${value instanceof Date ? value.toISOString() : String(value)}`);
  return [definition.check, ...parts].join(' ');
}

type Position = 'schema' | 'schemas' | 'data';

/** Plain JSON with sorted keys, so that the order of a source file's lines means nothing. */
function canonical(value: unknown, position: Position, keyword = ''): unknown {
  if (typeof value === 'bigint') return `${value}n`;
  if (Array.isArray(value)) {
    const items = value.map((item) => canonical(item, position));
    const isSet = keyword === 'required' || keyword === 'enum';
    return isSet ? items.sort((left, right) => byCodeUnit(sortKey(left), sortKey(right))) : items;
  }
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value)
    .filter(([, item]) => item !== undefined && typeof item !== 'function' && typeof item !== 'symbol')
    .sort(([left], [right]) => byCodeUnit(left, right))
    .map(([key, item]) => [
      key,
      canonical(item, positionOf(position, key), position === 'schema' ? key : ''),
    ]);
  // Not assignment: a property called `__proto__` would be lost.
  return Object.fromEntries(entries);
}

function positionOf(position: Position, key: string): Position {
  if (position === 'data') return 'data';
  if (position === 'schemas') return 'schema';
  if (DATA.has(key)) return 'data';
  return SCHEMA_MAPS.has(key) ? 'schemas' : 'schema';
}

function sortKey(value: unknown): string {
  return JSON.stringify(value) ?? '';
}

function withoutAnnotations(value: unknown, position: Position = 'schema'): unknown {
  if (Array.isArray(value)) return value.map((item) => withoutAnnotations(item, position));
  if (typeof value !== 'object' || value === null || position === 'data') return value;
  const kept = Object.entries(value).filter(([key]) => position !== 'schema' || !ANNOTATIONS.has(key));
  return Object.fromEntries(
    kept.map(([key, item]) => [key, withoutAnnotations(item, positionOf(position, key))]),
  );
}
