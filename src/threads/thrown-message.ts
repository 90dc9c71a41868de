import { ERROR_CODES, type ErrorCode, isSkipRetry, SkipRetry, TaskqError } from '../domain/errors.ts';
import { CAUSE_CHAIN_MAX } from '../domain/limits.ts';
import { describeThrown } from '../domain/thrown.ts';

// A structured clone keeps of an error its message and stack, and turns every class into the nearest built-in
// one: SkipRetry would become a failure that is retried, and an abort would not be recognised. So errors travel
// as data, and are made anew on the other side.

export type ThrownMessage =
  /** The very reason of the signal, which the other side has too: there it is the same object again. */
  | { readonly kind: 'abort_reason' }
  | {
      readonly kind: 'error';
      readonly name: string;
      readonly message: string;
      readonly stack: string | undefined;
      readonly code: string | number | undefined;
      readonly skipRetry: boolean;
      readonly cause: ThrownMessage | undefined;
      /** The members of an AggregateError. */
      readonly members: readonly ThrownMessage[] | undefined;
    }
  | { readonly kind: 'value'; readonly value: unknown };

/** Whatever was thrown, as a message. Never throws. */
export function packThrown(thrown: unknown, abortReason?: unknown): ThrownMessage {
  return packed(thrown, abortReason, new Set());
}

/** The other way; `abortReason` is what the signal on this side was aborted with. */
export function unpackThrown(message: ThrownMessage, abortReason?: unknown): unknown {
  switch (message.kind) {
    case 'abort_reason':
      return abortReason;
    case 'value':
      return message.value;
    case 'error':
      return revived(message, abortReason);
  }
}

function packed(thrown: unknown, abortReason: unknown, seen: Set<unknown>): ThrownMessage {
  if (abortReason !== undefined && thrown === abortReason) return { kind: 'abort_reason' };
  seen.add(thrown);
  try {
    if (thrown instanceof Error) return packedError(thrown, abortReason, seen);
    if (!isSkipRetry(thrown)) return { kind: 'value', value: structuredClone(thrown) };
  } catch {
    // A getter that throws, or a value that cannot be cloned: what can be said of it is its description.
  }
  const { name, message, stack } = describeThrown(thrown);
  return { ...NOTHING_MORE, name, message, stack, skipRetry: isMarkedSkipRetry(thrown) };
}

const NOTHING_MORE = { kind: 'error', code: undefined, cause: undefined, members: undefined } as const;

function packedError(error: Error, abortReason: unknown, seen: Set<unknown>): ThrownMessage {
  const next = (value: unknown): ThrownMessage | undefined =>
    value === undefined || seen.has(value) || seen.size >= CAUSE_CHAIN_MAX
      ? undefined
      : packed(value, abortReason, seen);
  const code: unknown = 'code' in error ? error.code : undefined;
  const members: unknown = 'errors' in error ? error.errors : undefined;
  return {
    kind: 'error',
    name: String(error.name),
    message: String(error.message),
    stack: error.stack === undefined ? undefined : String(error.stack),
    code: typeof code === 'string' || typeof code === 'number' ? code : undefined,
    skipRetry: isSkipRetry(error),
    cause: next(error.cause),
    members: Array.isArray(members) ? members.flatMap((member: unknown) => next(member) ?? []) : undefined,
  };
}

function isMarkedSkipRetry(thrown: unknown): boolean {
  try {
    return isSkipRetry(thrown);
  } catch {
    return false;
  }
}

function revived(packedError: ThrownMessage & { kind: 'error' }, abortReason: unknown): Error {
  const { name, stack, code } = packedError;
  const error = ofItsClass(packedError, abortReason);
  if (error.name !== name) Object.defineProperty(error, 'name', { value: name, configurable: true });
  Object.defineProperty(error, 'stack', { value: stack, configurable: true, writable: true });
  if (code !== undefined && !(error instanceof TaskqError)) Object.assign(error, { code });
  return error;
}

function ofItsClass(packedError: ThrownMessage & { kind: 'error' }, abortReason: unknown): Error {
  const { name, message, code, members } = packedError;
  const options =
    packedError.cause === undefined ? {} : { cause: unpackThrown(packedError.cause, abortReason) };
  if (packedError.skipRetry) return new SkipRetry(message, options);
  if (name === 'TaskqError' && typeof code === 'string' && Object.hasOwn(ERROR_CODES, code)) {
    return new TaskqError(code as ErrorCode, message, options);
  }
  if (members !== undefined) {
    const errors = members.map((member) => unpackThrown(member, abortReason));
    return new AggregateError(errors, message, options);
  }
  return new Error(message, options);
}
