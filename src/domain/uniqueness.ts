import { type Duration, durationMs } from './duration.ts';
import { TaskqError } from './errors.ts';

/**
 * What stands in the way of a unique enqueue: a `live` task (it waits or runs), only a `waiting` one (so that a
 * change made while the handler runs gets a run of its own), or any enqueue less than its `window` ago.
 */
export type UniqueWhile = 'live' | 'waiting' | { readonly window: Duration };

/**
 * What becomes of an enqueue that finds its place taken. `skip` answers the task that is there; `replace` gives that
 * task the new payload (and due time, if one is given) unless a worker holds it; `error` throws `TASK_EXISTS`.
 */
export const ON_CONFLICTS = ['skip', 'replace', 'error'] as const;
export type OnConflict = (typeof ON_CONFLICTS)[number];

/** `Path`: the fields that `by` may name, `PayloadPath` of the payload. */
export interface UniqueOptions<Path extends string = string> {
  /** The key, any text; the task type is part of it. Either this or `by`; with neither it is the whole payload. */
  readonly key?: string;
  /** The fields of the payload that make the key: `['stackId']`, `['owner.id']`. Each must be there. */
  readonly by?: readonly Path[];
  /** What stands in the way. */
  readonly while: UniqueWhile;
  /** Default `'skip'`. */
  readonly onConflict?: OnConflict;
}

/** Values without fields of their own. */
type Leaf =
  | string
  | number
  | bigint
  | boolean
  | symbol
  | null
  | undefined
  | Date
  | ((...given: never) => unknown);

/** The path of a payload's field, `'owner.id'`, up to four names long; any text where the shape is not known. */
export type PayloadPath<Payload, Below extends readonly unknown[] = [1, 1, 1]> = unknown extends Payload
  ? string
  : Payload extends Leaf | readonly unknown[]
    ? never
    : {
        [Field in keyof Payload & string]-?:
          | Field
          | (Below extends [unknown, ...infer Rest]
              ? `${Field}.${PayloadPath<NonNullable<Payload[Field]>, Rest>}`
              : never);
      }[keyof Payload & string];

/** `UniqueOptions`, checked. */
export interface Uniqueness {
  readonly key: string | undefined;
  readonly by: readonly string[] | undefined;
  readonly while: 'live' | 'waiting' | 'window';
  /** With `while: 'window'` only. */
  readonly windowMs: number | undefined;
  readonly onConflict: OnConflict;
}

/** The key of one enqueue: text as given, or JSON that the database writes in its own way. */
export interface UniqueKey {
  /** `payload`: the whole payload, which need not be sent twice. */
  readonly kind: 'text' | 'json' | 'payload';
  readonly text: string;
}

const OPTION_NAMES = new Set(['key', 'by', 'while', 'onConflict']);

/**
 * @param of what the options belong to, for the message: `enqueue option unique`
 * @throws TaskqError `OPTION_INVALID` naming what does not fit
 */
export function checkUnique(options: unknown, of: string): Uniqueness {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw invalid(of, `expected { while: … }, received ${String(options)}`);
  }
  const given = options as Record<string, unknown>;
  const unknown = Object.keys(given).find((name) => !OPTION_NAMES.has(name));
  if (unknown !== undefined) throw invalid(of, `no such option '${unknown}'`);
  const { key, by, onConflict = 'skip' } = given;
  if (key !== undefined && by !== undefined) throw invalid(of, 'give key or by, not both');
  if (!ON_CONFLICTS.includes(onConflict as OnConflict)) {
    throw invalid(of, `onConflict: expected ${ON_CONFLICTS.join(', ')}, received ${String(onConflict)}`);
  }
  return Object.freeze({
    key: key === undefined ? undefined : checkKey(key, of),
    by: by === undefined ? undefined : checkPaths(by, of),
    ...checkWhile(given['while'], of),
    onConflict: onConflict as OnConflict,
  });
}

/**
 * The key of an encoded payload: that of what is stored, so that SQL can make the same one of the column.
 * @param subject the task type, with the index in a bulk enqueue, for the message
 * @throws TaskqError `OPTION_INVALID` naming the path of a field that is not there
 */
export function uniqueKeyOf({ key, by }: Uniqueness, payloadText: string, subject: string): UniqueKey {
  if (key !== undefined) return { kind: 'text', text: key };
  const payload: unknown = JSON.parse(payloadText);
  if (by === undefined) return { kind: 'payload', text: canonicalJson(payload) };
  const fields = Object.fromEntries(by.map((path) => [path, fieldAt(payload, path, subject)]));
  return { kind: 'json', text: canonicalJson(fields) };
}

/** Where keys are locked in one order, no two bulk enqueues can wait for each other. */
export function orderOfKeys({ text: left }: UniqueKey, { text: right }: UniqueKey): number {
  return left < right ? -1 : left > right ? 1 : 0;
}

function checkKey(key: unknown, of: string): string {
  if (typeof key === 'string' && !key.includes('\0') && key.isWellFormed()) return key;
  throw invalid(of, 'key: expected text without NUL and lone surrogates');
}

function checkPaths(by: unknown, of: string): readonly string[] {
  if (!Array.isArray(by) || by.some((path) => typeof path !== 'string' || path === '')) {
    throw invalid(of, "by: expected a list of the payload's fields, such as ['stackId']");
  }
  // Every task of the type would have one key: that is asked for with `key`, not by leaving the fields out.
  if (by.length === 0) throw invalid(of, 'by: name a field, or give a key');
  return Object.freeze([...new Set(by as string[])]);
}

function checkWhile(given: unknown, of: string): Pick<Uniqueness, 'while' | 'windowMs'> {
  if (given === 'live' || given === 'waiting') return { while: given, windowMs: undefined };
  if (typeof given === 'object' && given !== null && Object.keys(given).join() === 'window') {
    const { window } = given as { window: unknown };
    return { while: 'window', windowMs: durationMs(window, `${of}: window`, { minMs: WINDOW_MS_MIN }) };
  }
  throw invalid(
    of,
    "while: say what stands in the way: 'live', 'waiting' or { window: '1h' }; for an enqueue that nothing stands in the way of, give unique: false",
  );
}

/** A window of no length would stand in nothing's way. */
const WINDOW_MS_MIN = 1;

function fieldAt(payload: unknown, path: string, subject: string): unknown {
  let value = payload;
  for (const name of path.split('.')) {
    if (typeof value !== 'object' || value === null || !hasField(value, name)) {
      throw new TaskqError(
        'OPTION_INVALID',
        `${subject}: unique by '${path}': the payload has no such field, so that the task would have no key`,
      );
    }
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}

/** An array's own `length` is no field of the JSON. */
function hasField(container: object, name: string): boolean {
  return Object.hasOwn(container, name) && (!Array.isArray(container) || /^\d+$/.test(name));
}

/** The same text for the same value, in whatever order its fields were set. */
function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_name, member: unknown) => {
    if (typeof member !== 'object' || member === null || Array.isArray(member)) return member;
    return Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)));
  });
}

function invalid(of: string, problem: string): TaskqError {
  return new TaskqError('OPTION_INVALID', `${of}: ${problem}`);
}
