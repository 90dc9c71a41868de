import { BOUND_KEYWORDS, tightenedBounds } from './bounds.ts';
import type { JsonSchema } from './json-schema.ts';
import { byCodeUnit } from './order.ts';
import {
  acceptsEverything,
  acceptsNothing,
  acceptsValue,
  CHECKS,
  finiteValues,
  functionsOf,
  hardMarksOf,
  isNode,
  isTransparent,
  keywordsOf,
  listOf,
  MARKS,
  marksOf,
  propertyPath,
  resolve,
  same,
  show,
  softWrappersOf,
  variantsOf,
  withoutMarks,
} from './schema-node.ts';

// Whether every payload that one schema accepts is accepted by the next. May say 'breaking' of a change that is
// none; never the other way round. Two things no schema says, so they are outside of it: what the user's functions
// (refinements, transforms) do, of which only the number is known, and which undeclared properties a row carries.
//
// A function of the user's sees what the schema below it makes of the payload. Below one ("observed") it is not
// enough that a value is still accepted: the function must also be given what it was given before.

/** One reason why a payload of the old schema may be refused by the new one. */
export interface Breaking {
  /** `payload.items[].price` */
  readonly path: string;
  readonly old: string;
  readonly new: string;
  readonly why: string;
}

export interface SchemaChange {
  /** Empty: compatible. */
  readonly breaking: readonly Breaking[];
  /** Properties that are newly declared: what the old schema let through unseen is now looked at. */
  readonly cautions: readonly Breaking[];
}

type Finding = Breaking & { readonly isCaution?: true };

interface Walk {
  readonly roots: { readonly before: JsonSchema; readonly after: JsonSchema };
  /** Pairs that are being compared further up, in a recursive schema: held for compatible until they are not. */
  readonly open: ReadonlyMap<JsonSchema, ReadonlySet<JsonSchema>>;
  readonly observed: boolean;
  /** Below an intersection: what this side does not declare, the other side may. */
  readonly isMerged: boolean;
}

/** Compares two payload schemas, as `payloadSchema` writes them. */
export function compareSchemas(before: JsonSchema, after: JsonSchema): SchemaChange {
  const walk: Walk = { roots: { before, after }, open: new Map(), observed: false, isMerged: false };
  const findings = compare(before, after, 'payload', walk);
  const plain = ({ isCaution: _, ...finding }: Finding): Breaking => finding;
  return {
    breaking: findings.filter(({ isCaution }) => isCaution !== true).map(plain),
    cautions: findings.filter(({ isCaution }) => isCaution === true).map(plain),
  };
}

function compare(before: JsonSchema, after: JsonSchema, path: string, walk: Walk): Finding[] {
  if (same(before, after, walk.roots) || walk.open.get(before)?.has(after) === true) return [];
  const left = resolve(before, walk.roots.before);
  const right = resolve(after, walk.roots.after);
  if (left === undefined || right === undefined) {
    return [
      { path, old: show(before), new: show(after), why: 'it cannot be compared: a $ref leads nowhere' },
    ];
  }
  const paired = new Set([...(walk.open.get(before) ?? []), after]);
  return compareNodes(left, right, path, { ...walk, open: new Map([...walk.open, [before, paired]]) });
}

function compareNodes(before: JsonSchema, after: JsonSchema, path: string, walk: Walk): Finding[] {
  const finding = (why: string): Finding[] => [{ path, old: show(before), new: show(after), why }];
  if (!walk.observed && acceptsEverything(after)) return [];
  if (marksOf(before).includes('catch')) {
    return finding('anything was accepted here, since a catch stood in for it');
  }
  if (acceptsNothing(before)) return [];
  const marked = compareMarks(before, after, walk);
  if (marked.why !== undefined) return finding(marked.why);
  if (marked.isDecided) return [];
  // What was held for compatible further up need not be so for what a function is given.
  const isMerged = walk.isMerged || marksOf(after).includes('intersected');
  const isUnchanged = walk.observed === (walk.observed || marked.isObserving) && walk.isMerged === isMerged;
  const below = isUnchanged ? walk : { ...walk, observed: true, isMerged, open: new Map() };
  if (acceptsEverything(after)) {
    return isTransparent(before) ? [] : finding('a function would be given something else than before');
  }
  if (variantsOf(before) !== undefined || variantsOf(after) !== undefined) {
    return compareUnions(before, after, path, below);
  }
  const values = finiteValues(before);
  if (values !== undefined) {
    const refused = values.filter((value) => !acceptsValue(withoutMarks(after), value));
    return refused.map((value) => ({
      path,
      old: JSON.stringify(value),
      new: show(after),
      why: 'this value is no longer accepted',
    }));
  }
  if (finiteValues(after) !== undefined) return finding('only some values are accepted now');
  return compareTyped(before, after, path, below);
}

interface Marked {
  readonly why?: string;
  /** The marks say all there is to say. */
  readonly isDecided?: true;
  readonly isObserving: boolean;
}

function compareMarks(before: JsonSchema, after: JsonSchema, walk: Walk): Marked {
  const [left, right] = [hardMarksOf(before), hardMarksOf(after)].map((marks) =>
    marks.sort(byCodeUnit).join(),
  );
  const refinements = (node: JsonSchema) => node['x-taskq-refinements'] ?? 0;
  if (left !== right || refinements(before) !== refinements(after)) {
    return { why: 'what JSON Schema cannot say changed', isObserving: false };
  }
  if (functionsOf(before).join() !== functionsOf(after).join()) {
    return { why: 'functions and wrappers stand in another order', isObserving: false };
  }
  const isSoftened = (mark: string) => marksOf(before).includes(mark) !== marksOf(after).includes(mark);
  if (walk.observed && ['catch', 'coerced', 'default'].some(isSoftened)) {
    return { why: 'a function would be given something else than before', isObserving: false };
  }
  if (isSoftened('coerced') && (marksOf(before).includes('coerced') || before['type'] !== after['type'])) {
    return { why: 'values of other types were converted', isObserving: false };
  }
  const isObserving = left !== '' && hardMarksOf(after).every((mark) => OBSERVING.has(mark));
  if (left === '' || isObserving) return { isObserving };
  // A date, a bigint or a function whose inside is hidden: nothing but its checks may differ.
  const rest = (node: JsonSchema) => {
    const { [CHECKS]: _, ...kept } = withoutMarks(node);
    return kept;
  };
  const isLess =
    (left === 'bigint' || left === 'date') &&
    listOf(after[CHECKS]).every((check) => listOf(before[CHECKS]).includes(check));
  const isSame = listOf(after[CHECKS]).join() === listOf(before[CHECKS]).join();
  if (same(rest(before), rest(after), walk.roots) && (isLess || isSame)) {
    return { isDecided: true, isObserving };
  }
  return { why: 'what JSON Schema cannot say may have changed with it', isObserving };
}

/** Functions that see the value and hand it on as it is. */
const OBSERVING = new Set(['intersected', 'refined']);

function compareUnions(before: JsonSchema, after: JsonSchema, path: string, walk: Walk): Finding[] {
  const finding = (why: string): Finding[] => [{ path, old: show(before), new: show(after), why }];
  if (walk.observed && !(isTransparent(before) && isTransparent(after))) {
    // Which variant takes a value decides what is made of it.
    return finding('a function would be given something else than before');
  }
  const offered = variantsOf(after) ?? [after];
  const reachable = [offered, walk.roots.after['$defs']];
  if (offered.length > 1 && JSON.stringify(reachable).includes('"intersected"')) {
    // Zod throws for what does not agree, instead of going on to the next variant.
    return finding('an intersection in a union cannot be compared');
  }
  if (after['oneOf'] !== undefined && !isDiscriminated(offered, walk)) {
    return finding('exactly one variant must match, which may be two now');
  }
  const beside = keywordsOf(after).filter((key) => key !== 'anyOf' && key !== 'oneOf');
  if (variantsOf(after) !== undefined && !Array.isArray(after['type']) && beside.length > 0) {
    return finding(`${beside.join(', ')} beside a union cannot be compared`);
  }
  const values = finiteValues(before)?.map((value) => ({ const: value }));
  const asked = values ?? variantsOf(before) ?? [before];
  return asked.flatMap((variant) => compareVariant(variant, offered, path, walk));
}

/** A variant is safe in the one new variant that takes all of it. */
function compareVariant(
  variant: JsonSchema,
  offered: readonly JsonSchema[],
  path: string,
  walk: Walk,
): Finding[] {
  const outcomes = offered.map((offer) => ({ offer, findings: compare(variant, offer, path, walk) }));
  const weight = ({ findings }: { findings: readonly Finding[] }) =>
    findings.reduce((sum, { isCaution }) => sum + (isCaution === true ? 1 : 1_000), 0);
  const [best] = outcomes.toSorted((left, right) => weight(left) - weight(right));
  if (best !== undefined && weight(best) < 1_000) {
    // Without a tag a payload may be in a variant only because it ignores what makes the payload unfit for another.
    const isTagged = offered.length === 1 || isDiscriminated(offered, walk);
    return isTagged ? best.findings : best.findings.map(({ isCaution: _, ...finding }) => finding);
  }
  const twins = outcomes.filter(({ offer }) => isTwin(variant, offer, walk));
  if (twins.length === 1) return twins[0]?.findings ?? [];
  const old = resolve(variant, walk.roots.before) ?? variant;
  return [{ path, old: show(old), new: 'absent', why: 'no variant of the union accepts this any more' }];
}

/** Whether a new variant is what became of an old one, to say what changed inside it. */
function isTwin(before: JsonSchema, after: JsonSchema, walk: Walk): boolean {
  const [left, right] = [resolve(before, walk.roots.before), resolve(after, walk.roots.after)];
  if (left === undefined || right === undefined || left['type'] !== right['type']) return false;
  if (finiteValues(left) !== undefined || finiteValues(right) !== undefined) return false;
  const tag = (node: JsonSchema) => {
    const tagged = Object.entries(node['properties'] ?? {}).filter(([, value]) => 'const' in value);
    return JSON.stringify(tagged.map(([key, value]) => [key, value.const]));
  };
  return tag(left) === tag(right);
}

/** Whether a property tells the variants apart, so that no value fits two. */
function isDiscriminated(variants: readonly JsonSchema[], walk: Walk): boolean {
  const nodes = variants.map((variant) => resolve(variant, walk.roots.after));
  const [first] = nodes;
  return listOf(first?.['required']).some((key) => {
    const taken = new Set<unknown>();
    return nodes.every((node) => {
      const property = listOf(node?.['required']).includes(key)
        ? ownAt(node?.['properties'], key)
        : undefined;
      const values = property === undefined || MARKS in property ? undefined : finiteValues(property);
      if (values === undefined || values.some((value) => taken.has(value))) return false;
      for (const value of values) taken.add(value);
      return true;
    });
  });
}

const OBJECT_KEYWORDS = ['additionalProperties', 'properties', 'propertyNames', 'required'];
const ARRAY_KEYWORDS = ['items', 'prefixItems'];

function compareTyped(before: JsonSchema, after: JsonSchema, path: string, walk: Walk): Finding[] {
  const type = after['type'];
  const finding = (why: string): Finding[] => [{ path, old: show(before), new: show(after), why }];
  if (typeof type !== 'string') return finding('it cannot be compared');
  if (before['type'] === undefined) return finding('other types were accepted too');
  if (before['type'] !== type && !(before['type'] === 'integer' && type === 'number')) {
    return finding('the type changed');
  }
  const kind = type === 'integer' ? 'number' : type;
  const known = new Set([
    'type',
    ...(BOUND_KEYWORDS[kind] ?? []),
    ...(kind === 'object' ? OBJECT_KEYWORDS : kind === 'array' ? ARRAY_KEYWORDS : []),
  ]);
  if (!isListOfBounds(after['allOf'])) known.delete('allOf');
  const unknown = keywordsOf(after).filter(
    (key) => !known.has(key) && !same({ [key]: before[key] }, { [key]: after[key] }, walk.roots),
  );
  return [
    ...unknown.flatMap((key) => finding(`${key} changed, and cannot be compared`)),
    ...tightenedBounds(kind, before, after).map((tightened) => ({ path, ...tightened })),
    ...(kind === 'object' ? compareObjects(before, after, path, walk) : []),
    ...(kind === 'array' ? compareArrays(before, after, path, walk) : []),
  ];
}

/** Zod puts the second and every further pattern or divisor into `allOf`; anything else there is an intersection. */
function isListOfBounds(allOf: unknown): boolean {
  const isBound = (part: unknown) =>
    isNode(part) && keywordsOf(part).every((key) => key === 'pattern' || key === 'multipleOf');
  return Array.isArray(allOf) && allOf.every(isBound);
}

function compareArrays(before: JsonSchema, after: JsonSchema, path: string, walk: Walk): Finding[] {
  const [left, right] = [before['prefixItems'], after['prefixItems']];
  const rest = compareItems(before['items'], after['items'], path, walk);
  if (left === undefined && right === undefined) return rest;
  if (!Array.isArray(left) || !Array.isArray(right) || left.length !== right.length) {
    return [{ path, old: show(before), new: show(after), why: 'the tuple has other members' }];
  }
  return [...left.flatMap((item, at) => compare(item, right[at], `${path}[${at}]`, walk)), ...rest];
}

function compareItems(before: unknown, after: unknown, path: string, walk: Walk): Finding[] {
  if (before === false || after === undefined) return [];
  if (after === false) {
    return [{ path, old: 'further items', new: 'no further items', why: 'the tuple was closed' }];
  }
  return compare(isNode(before) ? before : {}, after as JsonSchema, `${path}[]`, walk);
}

function compareObjects(before: JsonSchema, after: JsonSchema, path: string, walk: Walk): Finding[] {
  const names = new Set(
    [before, after].flatMap((node) => [
      ...Object.keys(node['properties'] ?? {}),
      ...listOf(node['required']),
    ]),
  );
  const properties = [...names]
    .sort(byCodeUnit)
    .flatMap((name) => [
      ...comparePresence(before, after, name, path, walk),
      ...compareProperty(before, after, name, path, walk),
    ]);
  return [
    ...properties,
    ...compareOtherProperties(before, after, path, walk),
    ...compareNames(before, after, path, walk),
  ];
}

/** What becomes of a payload that lacks the property. */
function comparePresence(
  before: JsonSchema,
  after: JsonSchema,
  name: string,
  path: string,
  walk: Walk,
): Finding[] {
  const [left, right] = [ownAt(before['properties'], name), ownAt(after['properties'], name)];
  const [was, is] = [left, right].map((node, at) =>
    node === undefined ? undefined : resolve(node, at === 0 ? walk.roots.before : walk.roots.after),
  );
  // A catch stands in for what is absent too, although its property counts as required.
  const couldBeAbsent = !listOf(before['required']).includes(name) || marksOf(was ?? {}).includes('catch');
  if (!couldBeAbsent) return [];
  const finding = (why: string): Finding[] => [
    {
      path: propertyPath(path, name),
      old: left === undefined ? 'absent' : `optional: ${show(left)}`,
      new: `${listOf(after['required']).includes(name) ? 'required' : 'optional'}: ${show(right)}`,
      why,
    },
  ];
  if (listOf(after['required']).includes(name)) {
    if (is !== undefined && acceptsEverything(is) && marksOf(is).includes('catch')) return [];
    return finding(
      left === undefined ? 'a required property was added' : 'an optional property became required',
    );
  }
  if (is === undefined || (left !== undefined && right !== undefined && same(left, right, walk.roots)))
    return [];
  // Whether `.optional()` stands outside or inside of the function cannot be seen.
  if (!acceptsAbsence(is, walk)) return finding('its absence may be refused, by a function or a union');
  return walk.observed && left === undefined && marksOf(is).length > 0
    ? finding('a function would be given a value where there was none')
    : [];
}

/** Marks of values, not of functions that are called with whatever is there. */
const ABSENT_SAFE = new Set(['bigint', 'date']);

/** Whether an optional property may be absent for sure: a function or a `xor` inside might refuse `undefined`. */
function acceptsAbsence(node: JsonSchema, walk: Walk, seen: readonly JsonSchema[] = []): boolean {
  const is = resolve(node, walk.roots.after);
  if (is === undefined || seen.includes(node)) return false;
  if (softWrappersOf(is).length > 0) return true;
  if (hardMarksOf(is).some((mark) => !ABSENT_SAFE.has(mark))) return false;
  const variants = variantsOf(is) ?? [];
  if (is['oneOf'] !== undefined && !isDiscriminated(variants, walk)) return false;
  return variants.every((variant) => acceptsAbsence(variant, walk, [...seen, node]));
}

/** What becomes of the property's value. */
function compareProperty(
  before: JsonSchema,
  after: JsonSchema,
  name: string,
  path: string,
  walk: Walk,
): Finding[] {
  const at = propertyPath(path, name);
  const [left, right] = [ownAt(before['properties'], name), ownAt(after['properties'], name)];
  if (left !== undefined && right !== undefined) return compare(left, right, at, walk);
  if (left !== undefined) {
    const others = after['additionalProperties'];
    if (others === false) {
      return [
        { path: at, old: show(left), new: 'absent', why: 'a property was removed that strict refuses' },
      ];
    }
    if (isNode(others)) return compare(left, others, at, walk);
    const why = 'a function would no longer be given the property';
    return walk.observed ? [{ path: at, old: show(left), new: 'absent', why }] : [];
  }
  if (right === undefined) return [];
  const others = before['additionalProperties'];
  if (others === false) return [];
  if (isNode(others)) return compare(others, right, at, walk);
  const is = resolve(right, walk.roots.after);
  if (!walk.observed && is !== undefined && acceptsEverything(is)) return [];
  const why = 'a payload may hold a property of that name already, which was ignored';
  return [
    { path: at, old: 'undeclared', new: show(right), why, ...(walk.isMerged ? {} : { isCaution: true }) },
  ];
}

/** What becomes of properties that neither schema names. */
function compareOtherProperties(before: JsonSchema, after: JsonSchema, path: string, walk: Walk): Finding[] {
  const [left, right] = [before['additionalProperties'], after['additionalProperties']];
  const text = (others: unknown) => (others === false ? 'none' : isNode(others) ? show(others) : 'ignored');
  const finding = (why: string): Finding[] => [
    { path, old: `other properties: ${text(left)}`, new: `other properties: ${text(right)}`, why },
  ];
  if (left === false) return [];
  if (right === false) return finding('other properties are refused now');
  if (isNode(right)) {
    const is = resolve(right, walk.roots.after);
    if (isNode(left)) return compare(left, right, `${path}[*]`, walk);
    if (!walk.observed && is !== undefined && acceptsEverything(is)) return [];
    return finding('other properties are looked at now');
  }
  return walk.observed && isNode(left) ? finding('a function would no longer be given other properties') : [];
}

/** A record checks its keys; and it is fussier than an object about what is one. */
function compareNames(before: JsonSchema, after: JsonSchema, path: string, walk: Walk): Finding[] {
  const [left, right] = [before['propertyNames'], after['propertyNames']];
  if (!isNode(right)) return [];
  if (!isNode(left)) {
    return [{ path, old: 'any keys', new: `keys: ${show(right)}`, why: 'the keys are checked now' }];
  }
  return [...compare(left, right, `${path}[key]`, walk), ...compareListedKeys(before, after, path, walk)];
}

/** A record that lists its keys looks at each of them, present or not. */
function compareListedKeys(before: JsonSchema, after: JsonSchema, path: string, walk: Walk): Finding[] {
  const [left, right] = [before['additionalProperties'], after['additionalProperties']];
  const keysOf = ({ propertyNames }: JsonSchema) =>
    isNode(propertyNames) ? finiteValues(propertyNames) : undefined;
  const isSame = isNode(left) && isNode(right) && same(left, right, walk.roots);
  const fresh = (keysOf(after) ?? []).filter((key) => !isSame || keysOf(before)?.includes(key) !== true);
  if (fresh.length === 0 || !isNode(right) || acceptsAbsence(right, walk)) return [];
  const why = 'the absence of a key may be refused, by a function or a union';
  return [{ path: `${path}[*]`, old: isNode(left) ? show(left) : 'absent', new: show(right), why }];
}

function ownAt(properties: unknown, name: string): JsonSchema | undefined {
  if (!isNode(properties) || !Object.hasOwn(properties, name)) return undefined;
  const node = properties[name];
  return isNode(node) ? node : undefined;
}
