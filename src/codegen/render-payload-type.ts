import type { JsonSchema } from './json-schema.ts';
import { quote } from './quote.ts';
import { finiteValues, isNode, listOf, marksOf, resolve, variantsOf } from './schema-node.ts';

// The TypeScript type of what rows of a revision hold, from the manifest's JSON Schema: the payload as it was
// enqueued, so defaults are not filled in and transforms have not run. `unknown` wherever the schema cannot tell.

/** Marks behind which anything may have been enqueued. */
const OPAQUE = ['catch', 'coerced', 'preprocessed'];

/** Text of a type. `indent` is that of the line it starts on. */
export function payloadType(schema: JsonSchema, indent = ''): string {
  return typeOf(schema, { root: schema, indent, above: [] });
}

interface Place {
  readonly root: JsonSchema;
  readonly indent: string;
  /** The nodes around this one: a type cannot contain itself without a name. */
  readonly above: readonly JsonSchema[];
}

function typeOf(node: JsonSchema, place: Place): string {
  const resolved = resolve(node, place.root);
  const isRecursive = place.above.includes(node) || (node['$ref'] === '#' && place.above.length > 0);
  if (resolved === undefined || isRecursive) return 'unknown';
  const below = { ...place, above: [...place.above, node] };
  const marks = marksOf(resolved);
  if (OPAQUE.some((mark) => marks.includes(mark))) return 'unknown';
  const literals = resolved['x-taskq-literals'];
  if (Array.isArray(literals)) return union(literals.map(literalType));
  if (marks.includes('date')) return 'Date';
  if (marks.includes('bigint')) return 'bigint';
  const values = finiteValues(resolved);
  if (values !== undefined) return union(values.map(valueType));
  const variants = variantsOf(resolved);
  if (variants !== undefined) return union(variants.map((variant) => typeOf(variant, below)));
  return plainType(resolved, below);
}

function plainType(node: JsonSchema, place: Place): string {
  switch (node['type']) {
    case 'string':
      return 'string';
    case 'number':
    case 'integer':
      return 'number';
    case 'boolean':
      return 'boolean';
    case 'null':
      return 'null';
    case 'array':
      return arrayType(node, place);
    case 'object':
      return objectType(node, place);
    default:
      return node['not'] === undefined ? 'unknown' : 'never';
  }
}

function arrayType(node: JsonSchema, place: Place): string {
  const items = node['items'];
  const item = isNode(items) ? typeOf(items, place) : 'unknown';
  const prefix = node['prefixItems'];
  if (!Array.isArray(prefix)) return `${grouped(item)}[]`;
  const least = typeof node['minItems'] === 'number' ? node['minItems'] : prefix.length;
  const members = prefix.map(
    (member: JsonSchema, at) => `${grouped(typeOf(member, place))}${at < least ? '' : '?'}`,
  );
  return `[${[...members, ...(items === false ? [] : [`...${grouped(item)}[]`])].join(', ')}]`;
}

function objectType(node: JsonSchema, place: Place): string {
  const inner = { ...place, indent: `${place.indent}  ` };
  const required = listOf(node['required']);
  const properties = isNode(node['properties']) ? Object.entries(node['properties']) : [];
  const lines = properties.map(
    ([name, property]) =>
      `${propertyName(name)}${required.includes(name) ? '' : '?'}: ${typeOf(property as JsonSchema, inner)};`,
  );
  const others = node['additionalProperties'];
  if (isNode(others)) {
    const keys = isNode(node['propertyNames']) ? finiteValues(node['propertyNames']) : undefined;
    const value = typeOf(others, inner);
    if (keys !== undefined) {
      lines.push(...keys.map((key) => recordLine(String(key), required.includes(String(key)), value)));
    } else {
      // Beside named properties an index signature would have to fit them all.
      lines.push(`[key: string]: ${properties.length > 0 ? 'unknown' : value};`);
    }
  }
  if (node['patternProperties'] !== undefined) lines.push('[key: string]: unknown;');
  if (lines.length === 0) return '{}';
  return `{\n${lines.map((line) => `${inner.indent}${line}\n`).join('')}${place.indent}}`;
}

function recordLine(key: string, isRequired: boolean, value: string): string {
  return `${propertyName(key)}${isRequired ? '' : '?'}: ${value};`;
}

function propertyName(name: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(name) ? name : quote(name);
}

function valueType(value: unknown): string {
  if (typeof value === 'string') return quote(value);
  return value === null || typeof value === 'boolean' || typeof value === 'number'
    ? String(value)
    : 'unknown';
}

/** As json-schema.ts writes them: JSON, `1n`, or `undefined`. */
function literalType(literal: unknown): string {
  const text = String(literal);
  return text.startsWith('"') ? quote(JSON.parse(text) as string) : text;
}

function union(types: readonly string[]): string {
  const members = [...new Set(types)];
  if (members.includes('unknown')) return 'unknown';
  return members.join(' | ') || 'never';
}

function grouped(type: string): string {
  return type.includes(' | ') ? `(${type})` : type;
}
