import { inspect, isDeepStrictEqual } from 'node:util';

/** Differences that are listed; the others are counted. */
const DIFFERENCES_MAX = 10;

/** Where `actual` differs from `expected`, a line for each place: `payload.items[2].price: expected 1, received 2`. */
export function differences(expected: unknown, actual: unknown): string[] {
  const lines: string[] = [];
  compare(expected, actual, 'payload', lines);
  const more = lines.length - DIFFERENCES_MAX;
  return more > 0 ? [...lines.slice(0, DIFFERENCES_MAX), `… and ${more} more differences`] : lines;
}

function compare(expected: unknown, actual: unknown, path: string, lines: string[]): void {
  if (isDeepStrictEqual(expected, actual)) return;
  if (!isContainer(expected) || !isContainer(actual) || Array.isArray(expected) !== Array.isArray(actual)) {
    lines.push(`${path}: expected ${shown(expected)}, received ${shown(actual)}`);
    return;
  }
  const isList = Array.isArray(expected);
  for (const key of new Set([...Object.keys(expected), ...Object.keys(actual)])) {
    const place = isList ? `${path}[${key}]` : propertyPath(path, key);
    if (!Object.hasOwn(actual, key)) lines.push(`${place}: expected ${shown(expected[key])}, not there`);
    else if (!Object.hasOwn(expected, key))
      lines.push(`${place}: not expected, received ${shown(actual[key])}`);
    else compare(expected[key], actual[key], place, lines);
  }
}

// What the payload codec gives is plain: everything else is compared as a whole.
function isContainer(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !(value instanceof Date);
}

function propertyPath(path: string, key: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`;
}

function shown(value: unknown): string {
  return inspect(value, { depth: 1, breakLength: Number.POSITIVE_INFINITY, maxStringLength: 100 });
}
