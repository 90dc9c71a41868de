import { acceptsSame, type JsonSchema } from './json-schema.ts';

// What is asked of one node of a payload's JSON Schema, in the dialect that json-schema.ts writes.

export const MARKS = 'x-taskq';
export const CHECKS = 'x-taskq-checks';
const MARK_KEYWORDS = new Set([MARKS, 'x-taskq-order', 'x-taskq-refinements']);

/** Marks of a value that is filled in or converted; without a function of the user's that could refuse it. */
const SOFT_MARKS = new Set(['catch', 'coerced', 'default']);
/** Wrappers that accept more than what is inside of them, and refuse nothing. */
const SOFT_WRAPPERS = new Set(['catch', 'default', 'optional']);
const FUNCTION_MARKS = new Set([
  'intersected',
  'piped',
  'prefault',
  'preprocessed',
  'refined',
  'transformed',
]);

/** Keywords that accept and refuse nothing. */
const SILENT = new Set([
  '$comment',
  '$defs',
  'deprecated',
  'description',
  'examples',
  'id',
  'readOnly',
  'taskq',
  'title',
]);

/** The text of a schema in a message is cut here: a person reads it. */
const SHOWN_LENGTH_MAX = 100;

const PLAIN_STEP = /^[A-Za-z_$][\w$]*$/;

/** The node that `$ref` leads to, with the keywords beside it; `undefined` for one that leads nowhere. */
export function resolve(node: JsonSchema, root: JsonSchema): JsonSchema | undefined {
  let resolved = node;
  for (const seen = new Set<string>(); typeof resolved['$ref'] === 'string'; ) {
    const { $ref, ...beside } = resolved;
    const target = targetOf($ref as string, root);
    if (target === undefined || seen.has($ref as string)) return undefined;
    seen.add($ref as string);
    const marks = [...new Set([...listOf(target[MARKS]), ...listOf(beside[MARKS])])];
    resolved = { ...target, ...beside, ...(marks.length > 0 ? { [MARKS]: marks } : {}) };
  }
  return resolved;
}

function targetOf(ref: string, root: JsonSchema): JsonSchema | undefined {
  if (ref === '#') return root;
  const [, name] = /^#\/\$defs\/(.+)$/.exec(ref) ?? [];
  const definitions = root['$defs'];
  if (name === undefined || !isNode(definitions)) return undefined;
  const key = name.replaceAll('~1', '/').replaceAll('~0', '~');
  const target = Object.hasOwn(definitions, key) ? definitions[key] : undefined;
  return isNode(target) ? target : undefined;
}

/** Whether two nodes say the same in the same words, as do the nodes that their `$ref`s lead to. */
export function same(
  before: JsonSchema,
  after: JsonSchema,
  roots: { readonly before: JsonSchema; readonly after: JsonSchema },
  seen: ReadonlySet<string> = new Set(),
): boolean {
  if (!acceptsSame(before, after)) return false;
  return refsIn(before).every((ref) => {
    if (seen.has(ref)) return true;
    const [left, right] = [targetOf(ref, roots.before), targetOf(ref, roots.after)];
    return left !== undefined && right !== undefined && same(left, right, roots, new Set([...seen, ref]));
  });
}

function refsIn(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, item]) =>
    key === '$ref' && typeof item === 'string' ? [item] : refsIn(item),
  );
}

export function isNode(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function listOf(value: unknown): readonly string[] {
  return Array.isArray(value) ? (value as string[]) : [];
}

export function marksOf(node: JsonSchema): readonly string[] {
  return listOf(node[MARKS]);
}

/** The marks that say more than that a value is filled in or converted. */
export function hardMarksOf(node: JsonSchema): string[] {
  return marksOf(node).filter((mark) => !SOFT_MARKS.has(mark));
}

export function withoutMarks(node: JsonSchema): JsonSchema {
  const { [MARKS]: _, 'x-taskq-refinements': __, 'x-taskq-order': ___, ...rest } = node;
  return rest;
}

/** Keywords that decide what is accepted, besides the marks. */
export function keywordsOf(node: JsonSchema): string[] {
  return Object.keys(node).filter((key) => !SILENT.has(key) && !MARK_KEYWORDS.has(key));
}

/** Whether every value that a payload can hold is accepted. */
export function acceptsEverything(node: JsonSchema): boolean {
  if (catches(node)) return true;
  return hardMarksOf(node).length === 0 && keywordsOf(node).length === 0;
}

/** A `catch` takes what its schema refuses; but not what a function throws, nor what one around it refuses. */
function catches(node: JsonSchema): boolean {
  return marksOf(node).includes('catch') && !MAY_THROW.test(JSON.stringify(node));
}

/** In the text of a schema; a `$ref` may lead to a function too. */
const MAY_THROW = /"(custom|intersected|piped|prefault|preprocessed|refined|transformed|\$ref)"/;

/** Functions and the wrappers between them, the innermost first. */
export function functionsOf(node: JsonSchema): readonly string[] {
  const order = orderOf(node);
  return order.slice(0, order.length - softWrappersOf(node).length);
}

/** The wrappers around all functions. */
export function softWrappersOf(node: JsonSchema): readonly string[] {
  const order = orderOf(node);
  const last = order.findLastIndex((step) => !SOFT_WRAPPERS.has(step));
  return order.slice(last + 1);
}

function orderOf(node: JsonSchema): readonly string[] {
  const order = node['x-taskq-order'];
  return Array.isArray(order) ? order : marksOf(node).filter((mark) => FUNCTION_MARKS.has(mark));
}

export function acceptsNothing(node: JsonSchema): boolean {
  return isNode(node['not']) && keywordsOf(node['not']).length === 0 && !(MARKS in node);
}

/** Whether the handler gets what was stored, untouched. */
export function isTransparent(node: JsonSchema): boolean {
  const text = JSON.stringify(node);
  return !/"(x-taskq|\$ref|properties|object)"/.test(text);
}

/** The values of a `const` or an `enum`. */
export function finiteValues(node: JsonSchema): readonly unknown[] | undefined {
  if (Object.hasOwn(node, 'const')) return [node['const']];
  return Array.isArray(node['enum']) ? (node['enum'] as unknown[]) : undefined;
}

/** What a union is made of: the members of `anyOf`, `oneOf` or a list of types. */
export function variantsOf(node: JsonSchema): readonly JsonSchema[] | undefined {
  const members = node['anyOf'] ?? node['oneOf'];
  if (Array.isArray(members)) return members as JsonSchema[];
  const types = node['type'];
  if (!Array.isArray(types)) return undefined;
  return types.map((type: unknown) => ({ ...withoutMarks(node), type }));
}

/** Whether `node`, which has no variants, accepts a plain value. Says no where it cannot tell. */
export function acceptsValue(node: JsonSchema, value: unknown): boolean {
  if (acceptsEverything(node)) return true;
  if (hardMarksOf(node).length > 0) return false;
  const values = finiteValues(node);
  if (values !== undefined) return values.includes(value);
  const isOnlyTyped = keywordsOf(node).every((key) => key === 'type');
  return isOnlyTyped && hasType(value, node['type']);
}

function hasType(value: unknown, type: unknown): boolean {
  if (value === null) return type === 'null';
  return typeof value === type || (type === 'integer' && Number.isSafeInteger(value));
}

/** A schema in a few words, for a message. */
export function show(node: JsonSchema | undefined): string {
  if (node === undefined) return 'absent';
  const { $defs: _, ...shown } = node;
  if (Object.keys(shown).length === 0) return 'anything';
  const values = finiteValues(node);
  const text =
    values === undefined ? JSON.stringify(shown) : values.map((v) => JSON.stringify(v)).join(' | ');
  const isTyped = Object.keys(shown).length === 1 && typeof shown['type'] === 'string';
  return cut(isTyped ? String(shown['type']) : text);
}

function cut(text: string): string {
  return text.length <= SHOWN_LENGTH_MAX ? text : `${text.slice(0, SHOWN_LENGTH_MAX - 1)}…`;
}

export function propertyPath(path: string, key: string): string {
  return PLAIN_STEP.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`;
}
