/** Every code a caller can meet, with the sentence that stands when no better one is at hand. */
export const ERROR_CODES = {
  CONFIG_INVALID: 'the configuration is not usable',
  DEFINITION_INVALID: 'the task definition is not usable',
  DURATION_INVALID: 'not a duration',
  UNKNOWN_TASK_TYPE: 'no such task type',
  OPTION_INVALID: 'not a usable enqueue option',
  TASK_EXISTS: 'a task stands in the way of another with its key',
  PAYLOAD_INVALID: 'the payload does not fit its schema',
  PAYLOAD_UNSTORABLE: 'the payload holds a value that cannot be stored unchanged',
  PAYLOAD_TOO_LARGE: 'the payload is larger than the limit',
  RESULT_TOO_LARGE: 'the result of a task is larger than the limit',
  LEASE_LOST: 'another worker holds this task, or it is gone',
  DEADLINE_REACHED: 'the handler has used up its ceiling',
  SHUTDOWN: 'the replica is stopping',
  THREAD_FAILED: 'the thread of a handler ended before the handler returned',
  SCHEMA_BEHIND: 'the database schema is behind this version of taskq',
  SCHEMA_AHEAD: 'the database schema is ahead of this version of taskq',
  PRIVILEGE_MISSING: 'the database role lacks a privilege',
  MIGRATION_FAILED: 'a migration failed and was rolled back',
  MIGRATION_LOCKED: 'another migration holds the lock',
  EMBEDDED_UNAVAILABLE: 'the embedded PostgreSQL cannot run here',
  CODEGEN_FAILED: 'the generated files could not be made',
} as const;

export type ErrorCode = keyof typeof ERROR_CODES;

/** The one error class of taskq. Branch on `code`, which is stable; the message is for people. */
export class TaskqError extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message?: string, options?: { cause?: unknown }) {
    super(message ?? ERROR_CODES[code], options);
    this.name = 'TaskqError';
    this.code = code;
  }
}

const SKIP_RETRY = Symbol.for('taskq.SkipRetry');

/**
 * Thrown by a handler for a task that no retry can help (a bad id, a refused key):
 * the task becomes a dead letter at once and keeps its true attempt count.
 */
export class SkipRetry extends Error {
  readonly [SKIP_RETRY] = true;

  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = 'SkipRetry';
  }
}

/** Marked by a symbol, not by class, so that a second copy of this package is understood too. */
export function isSkipRetry(thrown: unknown): boolean {
  return typeof thrown === 'object' && thrown !== null && SKIP_RETRY in thrown;
}
