import type { core, ZodType } from 'zod';
import { TaskqError } from './errors.ts';
import { SECRET_LENGTH_MIN, SECRET_PREFIX_LENGTH } from './limits.ts';
import { memberNode, type SecretNode, type SecretShape, secretShape } from './secret-fields.ts';
import { describeThrown, type ThrownDescription } from './thrown.ts';

// Keeps what a payload's schema marks as secret out of everything that is said about the payload. A field is hidden
// by its place; text that may quote it (a handler's error) by its value: what this very payload holds in its secret
// fields is replaced wherever it stands.

/** What is shown in the place of a secret. */
export const SECRET_MASK = '•••';

/** What a secret field's problem is told as, unless it is only of the wrong type. */
const SECRET_PROBLEM = 'it does not fit (a secret field: no more is said)';

/** Text, errors and values with what is secret in them replaced. */
export interface Secrets {
  text(text: string): string;
  /** As `describeThrown`. */
  describe(thrown: unknown): ThrownDescription;
  /** A copy that says the same, without what else hangs on it. */
  error(error: Error): Error;
  /** A copy of plain data. */
  value(value: unknown): unknown;
}

/** Of a type without secret fields. */
export const NO_SECRETS: Secrets = {
  text: (text) => text,
  describe: describeThrown,
  error: (error) => error,
  value: (value) => value,
};

/** The secrets of one payload (and cursor), learned as it is read. */
export class LearnedSecrets implements Secrets {
  readonly #values = new Set<string>();
  #needles: Needle[] | undefined;

  /** What `shape` says is secret in `value`. */
  learn(value: unknown, shape: SecretShape | undefined): void {
    if (shape !== undefined) this.#learned(() => collect(value, shape, shape[0], this.#values, 0));
  }

  /** Everything in it but these names: nobody knows where its secrets are. */
  learnAll(value: unknown, names: readonly string[] = []): void {
    this.#learned(() => collectAll(value, new Set(names), this.#values, 0));
  }

  text(text: string): string {
    this.#needles ??= needlesOf(this.#values);
    return hide(text, this.#needles);
  }

  describe(thrown: unknown): ThrownDescription {
    const { name, message, stack } = describeThrown(thrown);
    return {
      name: this.text(name),
      message: this.text(message),
      stack: stack === undefined ? undefined : this.text(stack),
    };
  }

  error(error: Error): Error {
    const { name, message, stack } = this.describe(error);
    const told = error instanceof TaskqError ? new TaskqError(error.code, message) : new Error(message);
    Object.defineProperty(told, 'name', { value: name, configurable: true, writable: true });
    Object.defineProperty(told, 'stack', { value: stack, configurable: true, writable: true });
    const { code } = error as { code?: unknown };
    if (!(told instanceof TaskqError) && (typeof code === 'string' || typeof code === 'number')) {
      Object.assign(told, { code: typeof code === 'string' ? this.text(code) : code });
    }
    return told;
  }

  value(value: unknown): unknown {
    return this.#hidden(value, 0);
  }

  #hidden(value: unknown, depth: number): unknown {
    if (typeof value === 'string') return this.text(value);
    if (typeof value === 'number' || typeof value === 'bigint') {
      return this.#values.has(String(value)) && isLongEnough(String(value)) ? SECRET_MASK : value;
    }
    if (typeof value !== 'object' || value === null) return value;
    if (depth > VALUE_DEPTH_MAX) return SECRET_MASK;
    if (value instanceof Error) return this.error(value);
    if (Array.isArray(value)) return value.map((item) => this.#hidden(item, depth + 1));
    if (!isPlain(value)) return value;
    const entries = Object.entries(value);
    return Object.fromEntries(entries.map(([key, item]) => [this.text(key), this.#hidden(item, depth + 1)]));
  }

  // A getter or a proxy of the caller's may throw: what it would have answered is in no message either.
  #learned(collectValues: () => void): void {
    this.#needles = undefined;
    try {
      collectValues();
    } catch {
      // Said above.
    }
  }
}

/** A value with what is secret in it masked, by the place where it stands. */
export function maskValue(value: unknown, shape: SecretShape | undefined): unknown {
  return shape === undefined ? value : masked(value, shape, shape[0], 0);
}

/**
 * The issues of a failed parse, fit to be told: an issue in a secret field says where that field is and no more, and
 * the messages of the others, which a schema may make itself, do not quote one.
 */
export function withoutSecrets(
  schema: ZodType,
  value: unknown,
  issues: readonly core.$ZodIssue[],
): readonly core.$ZodIssue[] {
  const shape = secretShape(schema);
  if (shape === undefined) return issues;
  const secrets = new LearnedSecrets();
  secrets.learn(value, shape);
  return issues.map((issue) => {
    const path = pathToSecret(issue.path, shape);
    return path === undefined ? (secrets.value(issue) as core.$ZodIssue) : secretIssue(issue, path);
  });
}

/** The error of something that was done with a payload, fit to be told. */
export function errorWithoutSecrets(schema: ZodType, value: unknown, error: unknown): unknown {
  const shape = secretShape(schema);
  if (shape === undefined || !(error instanceof Error)) return error;
  const secrets = new LearnedSecrets();
  secrets.learn(value, shape);
  return secrets.error(error);
}

/** The part of a path that leads to a secret field; undefined when it leads to none. */
function pathToSecret(path: readonly PropertyKey[], shape: SecretShape): PropertyKey[] | undefined {
  let node: SecretNode | undefined = shape[0];
  for (const [depth, key] of path.entries()) {
    if (node?.secret === true) return path.slice(0, depth);
    node = node === undefined ? undefined : memberNode(shape, node, key);
  }
  return node?.secret === true ? [...path] : undefined;
}

// Its code and the expected type are the schema's own words.
function secretIssue(issue: core.$ZodIssue, path: PropertyKey[]): core.$ZodIssue {
  if (issue.code !== 'invalid_type')
    return { code: 'custom', path, message: SECRET_PROBLEM, input: undefined };
  const { code, expected } = issue;
  return { code, expected, path, message: `expected ${expected}`, input: undefined };
}

const VALUE_DEPTH_MAX = 100;

function collect(
  value: unknown,
  shape: SecretShape,
  node: SecretNode | undefined,
  into: Set<string>,
  depth: number,
): void {
  if (node === undefined || depth > VALUE_DEPTH_MAX) return;
  // Text where an object with secrets is expected will become that object (JSON in a string).
  if (node.secret === true || typeof value === 'string') {
    collectAll(value, new Set(node.names), into, depth);
    return;
  }
  if (typeof value !== 'object' || value === null) return;
  for (const [key, member] of Object.entries(value)) {
    collect(member, shape, memberNode(shape, node, key), into, depth + 1);
  }
}

/** Names inside of a secret field are data too, but for those that its schema gives: those say what is hidden. */
function collectAll(value: unknown, names: ReadonlySet<string>, into: Set<string>, depth: number): void {
  if (depth > VALUE_DEPTH_MAX) return;
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'bigint')
    into.add(String(value));
  else if (value instanceof Date) into.add(Number.isNaN(value.getTime()) ? '' : value.toISOString());
  else if (typeof value === 'object' && value !== null) {
    for (const [key, member] of Object.entries(value)) {
      if (!Array.isArray(value) && !names.has(key)) into.add(key);
      collectAll(member, names, into, depth + 1);
    }
  }
}

function masked(value: unknown, shape: SecretShape, node: SecretNode | undefined, depth: number): unknown {
  if (node === undefined) return value;
  if (node.secret === true || typeof value === 'string' || depth > VALUE_DEPTH_MAX) return SECRET_MASK;
  if (Array.isArray(value)) {
    return value.map((item, place) => masked(item, shape, memberNode(shape, node, place), depth + 1));
  }
  if (typeof value !== 'object' || value === null || !isPlain(value)) return value;
  const entries = Object.entries(value);
  return Object.fromEntries(
    entries.map(([key, member]) => [key, masked(member, shape, memberNode(shape, node, key), depth + 1)]),
  );
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

/** Text to be replaced, and so much of its beginning that is enough to know it by. */
interface Needle {
  readonly text: string;
  readonly prefix: string;
}

function isLongEnough(text: string): boolean {
  return text.length >= SECRET_LENGTH_MIN;
}

function needlesOf(values: ReadonlySet<string>): Needle[] {
  const texts = new Set([...values].flatMap(spellings).filter(isLongEnough));
  return [...texts].map((text) => ({ text, prefix: text.slice(0, SECRET_PREFIX_LENGTH) }));
}

/** How a value may stand in a message: as it is, within JSON or a URL, or as one line of it. */
function spellings(value: string): string[] {
  const storable = value.replaceAll('\0', '\ufffd').replace(/\p{Surrogate}/gu, '\ufffd');
  const lines = value.split(/[\r\n]+/).map((line) => line.trim());
  const inUrl = value.isWellFormed() ? encodeURIComponent(value) : value;
  return [value, storable, value.trim(), JSON.stringify(value).slice(1, -1), inUrl, ...lines];
}

interface Span {
  readonly from: number;
  readonly to: number;
}

function hide(text: string, needles: readonly Needle[]): string {
  const spans = needles.flatMap((needle) => [...whole(text, needle), ...cutOff(text, needle)]);
  if (spans.length === 0) return text;
  spans.sort((left, right) => left.from - right.from);
  let hidden = '';
  let end = 0;
  for (const { from, to } of spans) {
    // Touching spans are one secret, or one that holds another.
    if (from >= end && (from > end || end === 0)) hidden += `${text.slice(end, from)}${SECRET_MASK}`;
    end = Math.max(end, to);
  }
  return hidden + text.slice(end);
}

/** Where it stands, or its beginning of some length: whoever quotes a long value may cut it. */
function whole(text: string, { text: secret, prefix }: Needle): Span[] {
  const spans: Span[] = [];
  for (let from = text.indexOf(prefix); from !== -1; ) {
    let length = prefix.length;
    while (length < secret.length && text[from + length] === secret[length]) length += 1;
    spans.push({ from, to: from + length });
    from = text.indexOf(prefix, from + length);
  }
  return spans;
}

/** Where a text was cut in the middle of it: a shorter beginning, before the sign that something is missing. */
function cutOff(text: string, { text: secret }: Needle): Span[] {
  const spans: Span[] = [];
  for (let at = text.indexOf('…'); at !== -1; at = text.indexOf('…', at + 1)) {
    for (
      let length = Math.min(secret.length, SECRET_PREFIX_LENGTH) - 1;
      length >= SECRET_LENGTH_MIN;
      length--
    ) {
      if (!text.startsWith(secret.slice(0, length), at - length)) continue;
      spans.push({ from: at - length, to: at });
      break;
    }
  }
  return spans;
}
