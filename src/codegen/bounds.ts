import type { JsonSchema } from './json-schema.ts';
import { CHECKS, isNode, listOf } from './schema-node.ts';

/** A bound that the new schema has and the old one did not keep. */
export interface Tightened {
  readonly old: string;
  readonly new: string;
  readonly why: string;
}

/** Formats that say nothing beyond the pattern beside them. */
const PATTERN_FORMATS = new Set(['ends_with', 'includes', 'lowercase', 'regex', 'starts_with', 'uppercase']);

/** Keywords that these functions judge, by type. */
export const BOUND_KEYWORDS: Readonly<Record<string, readonly string[]>> = {
  string: ['allOf', 'contentEncoding', 'format', 'maxLength', 'minLength', 'pattern', CHECKS],
  number: ['allOf', 'exclusiveMaximum', 'exclusiveMinimum', 'maximum', 'minimum', 'multipleOf'],
  array: ['maxItems', 'minItems'],
};

export function tightenedBounds(type: string, before: JsonSchema, after: JsonSchema): Tightened[] {
  switch (type) {
    case 'string':
      return [...compareSizes(before, after, 'minLength', 'maxLength'), ...compareText(before, after)];
    case 'number':
    case 'integer':
      return [...compareRanges(before, after), ...compareLists(before, after, 'multipleOf')];
    case 'array':
      return compareSizes(before, after, 'minItems', 'maxItems');
    default:
      return [];
  }
}

function compareSizes(before: JsonSchema, after: JsonSchema, lower: string, upper: string): Tightened[] {
  const tightened: Tightened[] = [];
  if (numberAt(after, lower, 0) > numberAt(before, lower, 0)) {
    tightened.push(bound(before, after, lower, 'the lower bound was raised'));
  }
  if (numberAt(after, upper, Infinity) < numberAt(before, upper, Infinity)) {
    tightened.push(bound(before, after, upper, 'the upper bound was lowered'));
  }
  return tightened;
}

function compareRanges(before: JsonSchema, after: JsonSchema): Tightened[] {
  const tightened: Tightened[] = [];
  const least = Math.max(
    numberAt(before, 'minimum', -Infinity),
    numberAt(before, 'exclusiveMinimum', -Infinity),
  );
  const most = Math.min(
    numberAt(before, 'maximum', Infinity),
    numberAt(before, 'exclusiveMaximum', Infinity),
  );
  if (least < numberAt(after, 'minimum', -Infinity)) {
    tightened.push(bound(before, after, 'minimum', 'the lower bound was raised'));
  }
  if (most > numberAt(after, 'maximum', Infinity)) {
    tightened.push(bound(before, after, 'maximum', 'the upper bound was lowered'));
  }
  // The old bound itself is excluded only where the old schema excluded it too.
  for (const [exclusive, edge, why] of [
    ['exclusiveMinimum', least, 'the lower bound was raised'],
    ['exclusiveMaximum', most, 'the upper bound was lowered'],
  ] as const) {
    const limit = after[exclusive];
    if (typeof limit !== 'number') continue;
    const isInside = exclusive === 'exclusiveMinimum' ? edge > limit : edge < limit;
    if (!isInside && !(edge === limit && before[exclusive] === limit)) {
      tightened.push(bound(before, after, exclusive, why));
    }
  }
  return tightened;
}

function compareText(before: JsonSchema, after: JsonSchema): Tightened[] {
  const tightened = compareLists(before, after, 'pattern');
  const format = after['format'];
  if (format !== undefined && !PATTERN_FORMATS.has(String(format))) {
    if (before['format'] !== format) {
      tightened.push(bound(before, after, 'format', 'another format is asked'));
    } else if (
      tightened.length === 0 &&
      valuesAt(before, 'pattern').length !== valuesAt(after, 'pattern').length
    ) {
      // One format with and without a pattern is two kinds of check under one name.
      tightened.push(bound(before, after, 'pattern', 'the pattern of the format changed'));
    }
  }
  if (after['contentEncoding'] !== undefined && after['contentEncoding'] !== before['contentEncoding']) {
    tightened.push(bound(before, after, 'contentEncoding', 'another encoding is asked'));
  }
  if (listOf(after[CHECKS]).join('\n') !== listOf(before[CHECKS]).join('\n')) {
    tightened.push(bound(before, after, CHECKS, 'a check that JSON Schema has no word for changed'));
  }
  return tightened;
}

/** Patterns and divisors, of which there may be several: each of the new ones must have been asked before. */
function compareLists(before: JsonSchema, after: JsonSchema, keyword: string): Tightened[] {
  const asked = valuesAt(before, keyword);
  const added = valuesAt(after, keyword).filter((value) => !asked.includes(value));
  if (added.length === 0) return [];
  const text = (values: readonly unknown[]) => values.map(String).join(' and ') || 'none';
  return [{ old: `${keyword} ${text(asked)}`, new: `${keyword} ${text(added)}`, why: `${keyword} is new` }];
}

function valuesAt(node: JsonSchema, keyword: string): unknown[] {
  const parts = [node, ...(Array.isArray(node['allOf']) ? node['allOf'] : [])];
  return parts.flatMap((part: unknown) =>
    isNode(part) && part[keyword] !== undefined ? [part[keyword]] : [],
  );
}

function numberAt(node: JsonSchema, keyword: string, otherwise: number): number {
  const value = node[keyword];
  return typeof value === 'number' ? value : otherwise;
}

function bound(before: JsonSchema, after: JsonSchema, keyword: string, why: string): Tightened {
  const text = (node: JsonSchema) => `${keyword} ${node[keyword] ?? 'none'}`;
  return { old: text(before), new: text(after), why };
}
