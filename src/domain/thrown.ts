import { inspect } from 'node:util';
import {
  CAUSE_CHAIN_MAX,
  ERROR_MESSAGE_LENGTH_MAX,
  ERROR_STACK_LENGTH_MAX,
  NAME_LENGTH_MAX,
} from './limits.ts';

// JavaScript throws anything: undefined, a symbol, an object whose message getter throws, a revoked proxy.
// A failure that cannot be described cannot be recorded, and its row would stay leased; so nothing here throws,
// and every text that leaves is one PostgreSQL can store.

/** What is written about a thrown value. */
export interface ThrownDescription {
  /** Never empty; with the messages of causes and of an AggregateError's members. */
  readonly message: string;
  readonly stack: string | undefined;
  readonly name: string;
}

/** Messages of an AggregateError that are listed; the others are counted. */
const MEMBERS_SHOWN_MAX = 5;

/** Name, message and stack of anything that can be thrown, cut to their limits and safe to store. Never throws. */
export function describeThrown(thrown: unknown): ThrownDescription {
  const stack = stackWithCauses(thrown);
  return {
    message: storable(messageWithCauses(thrown, new Set()), ERROR_MESSAGE_LENGTH_MAX),
    stack: stack === '' ? undefined : storable(stack, ERROR_STACK_LENGTH_MAX),
    name: storable(nameOf(thrown), NAME_LENGTH_MAX),
  };
}

/** `thrown` itself when it is an Error that can be read; else an Error that says what it was and has it as cause. */
export function toError(thrown: unknown): Error {
  if (isReadableError(thrown)) return thrown;
  return new Error(describeThrown(thrown).message, { cause: thrown });
}

/**
 * `thrown`, what it was caused by and, for an AggregateError, its members, nearest first; each once, and at most
 * `CAUSE_CHAIN_MAX` of them. Never throws.
 */
export function causeChain(thrown: unknown): unknown[] {
  const chain = new Set<unknown>([thrown]);
  // A Set is iterated over what is added on the way, too; a cycle adds nothing.
  for (const link of chain) {
    for (const next of [causeOf(link), ...membersOf(link).members]) {
      if (chain.size >= CAUSE_CHAIN_MAX) return [...chain];
      if (next !== undefined) chain.add(next);
    }
  }
  return [...chain];
}

function messageWithCauses(thrown: unknown, seen: Set<unknown>): string {
  seen.add(thrown);
  const own = ownMessage(thrown);
  let text = own;
  const { members, memberCount } = membersOf(thrown);
  if (memberCount > 0) text += ` [${memberMessages(members, memberCount, seen)}]`;
  const cause = causeOf(thrown);
  if (cause === undefined || seen.has(cause) || seen.size >= CAUSE_CHAIN_MAX) return text;
  const causeText = messageWithCauses(cause, seen);
  return causeText === own ? text : `${text}; caused by: ${causeText}`;
}

function memberMessages(members: readonly unknown[], memberCount: number, seen: Set<unknown>): string {
  const shown: string[] = [];
  for (const member of members.slice(0, MEMBERS_SHOWN_MAX)) {
    if (seen.has(member) || seen.size >= CAUSE_CHAIN_MAX) continue;
    shown.push(messageWithCauses(member, seen));
  }
  const hidden = memberCount - shown.length;
  if (hidden > 0) shown.push(`${hidden} more`);
  return shown.join('; ');
}

function stackWithCauses(thrown: unknown): string {
  const stacks: string[] = [];
  for (const link of causeChain(thrown)) {
    const stack = textProperty(link, 'stack');
    if (stack !== undefined) stacks.push(cut(stack, ERROR_STACK_LENGTH_MAX));
  }
  return stacks.join('\ncaused by: ');
}

function ownMessage(thrown: unknown): string {
  const message = textProperty(thrown, 'message');
  if (message !== undefined) return cut(message, ERROR_MESSAGE_LENGTH_MAX);
  if (typeof thrown === 'string') {
    return thrown.trim() === '' ? 'an empty text was thrown' : cut(thrown, ERROR_MESSAGE_LENGTH_MAX);
  }
  if (thrown === undefined || thrown === null) return `${thrown} was thrown`;
  if (typeof thrown === 'function') return `a function was thrown: ${nameOf(thrown)}`;
  if (typeof thrown !== 'object') return `a ${typeof thrown} was thrown: ${String(thrown)}`;
  if (isError(thrown)) return `${nameOf(thrown)} without a message`;
  return `an object was thrown: ${inspected(thrown)}`;
}

/** Getters, custom inspectors and proxy traps are the thrower's code: none of them is run. */
function inspected(thrown: object): string {
  const text = attempt(() =>
    inspect(thrown, {
      depth: 1,
      customInspect: false,
      getters: false,
      showProxy: false,
      breakLength: Number.POSITIVE_INFINITY,
      maxArrayLength: 10,
      maxStringLength: 200,
    }),
  );
  return text === undefined || text === '' ? 'one that cannot be shown' : cut(text, ERROR_MESSAGE_LENGTH_MAX);
}

function nameOf(thrown: unknown): string {
  const name = textProperty(thrown, 'name');
  if (name !== undefined) return name;
  if (typeof thrown === 'function') return 'anonymous';
  if (typeof thrown !== 'object' || thrown === null) return thrown === null ? 'null' : typeof thrown;
  return textProperty(property(thrown, 'constructor'), 'name') ?? 'object';
}

function causeOf(thrown: unknown): unknown {
  return property(thrown, 'cause') ?? undefined;
}

/** An AggregateError's members, as many as can matter; `errors` is read as a list only when it is one. */
function membersOf(thrown: unknown): { members: unknown[]; memberCount: number } {
  const errors = property(thrown, 'errors');
  const read = attempt(() =>
    Array.isArray(errors)
      ? { members: errors.slice(0, CAUSE_CHAIN_MAX), memberCount: errors.length }
      : undefined,
  );
  return read ?? { members: [], memberCount: 0 };
}

function isReadableError(thrown: unknown): thrown is Error {
  if (!isError(thrown)) return false;
  const read = attempt(() => [thrown.name, thrown.message, thrown.stack ?? '']);
  return read?.every((text) => typeof text === 'string') ?? false;
}

function isError(thrown: unknown): thrown is Error {
  return attempt(() => thrown instanceof Error) ?? false;
}

/** A property's text when it is one and says something. */
function textProperty(thrown: unknown, key: string): string | undefined {
  const value = property(thrown, key);
  return typeof value === 'string' && value.trim() !== '' ? value : undefined;
}

function property(thrown: unknown, key: string): unknown {
  if ((typeof thrown !== 'object' && typeof thrown !== 'function') || thrown === null) return undefined;
  return attempt(() => (thrown as Record<string, unknown>)[key]);
}

function attempt<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

/** PostgreSQL refuses NUL in text, and half of a surrogate pair is no character in UTF-8. */
function storable(text: string, lengthMax: number): string {
  return cut(text, lengthMax)
    .replaceAll('\0', '\ufffd')
    .replace(/\p{Surrogate}/gu, '\ufffd');
}

/** At most `lengthMax` UTF-16 units, the last of them `…` when something was cut off; never half a pair. */
function cut(text: string, lengthMax: number): string {
  if (text.length <= lengthMax) return text;
  const kept = text.slice(0, lengthMax - 1);
  return `${/[\ud800-\udbff]$/.test(kept) ? kept.slice(0, -1) : kept}…`;
}
