import { type Duration, durationMs, formatDuration } from './duration.ts';
import { TaskqError } from './errors.ts';
import { CEILING_MS_MIN } from './limits.ts';
import {
  checkMaxAttempts,
  checkName,
  checkWake,
  recordRetentionMs,
  type TaskDefinition,
  type Wake,
} from './task-definition.ts';
import { checkUnique, type Uniqueness, type UniqueOptions } from './uniqueness.ts';

/** `Path`: the fields that `unique.by` may name, `PayloadPath` of the payload. Without it `by` names none. */
export interface EnqueueOptions<Path extends string = never> {
  /** Not before this moment: a Date, or ISO text with an offset such as `'2027-01-31T09:00:00Z'`. */
  readonly runAt?: Date | string;
  /** Not before this long after the enqueue, by the database's clock. Either this or `runAt`. */
  readonly delay?: Duration;
  /** Instead of the type's own queue. */
  readonly queue?: string;
  /** Instead of the type's own limit; runs in all, the first included. */
  readonly maxAttempts?: number;
  /** A lower ceiling for this task: from 1 s to its type's own. */
  readonly timeout?: Duration;
  /** How long the record of the finished task is kept, instead of the type's own; `false` for not at all. From 1 s. */
  readonly retention?: Duration | false;
  /**
   * Instead of the type's own. `'poll'` sends no notification: an idle replica starts the task at its next poll (every
   * 5 s by default) instead of at once, and the commit does not take its turn behind all others that notify.
   */
  readonly wake?: Wake;
  /** Small strings that travel with the task and come back in the handler's context. */
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * Only when nothing stands in the way of its key, instead of the type's own rule; `false` for none: the task is
   * enqueued whatever there is, has no key, and stands in nobody's way.
   */
  readonly unique?: UniqueOptions<Path> | false;
}

/** `EnqueueOptions`, checked, with the definition's where they say nothing. */
export interface EnqueueSettings {
  readonly runAtMs: number | undefined;
  readonly delayMs: number | undefined;
  readonly queue: string;
  readonly maxAttempts: number;
  /** Undefined for the type's own ceiling. */
  readonly ceilingMs: number | undefined;
  /** Undefined for no record of the finished task. */
  readonly retentionMs: number | undefined;
  readonly wake: Wake;
  readonly headers: Readonly<Record<string, string>>;
  readonly unique: Uniqueness | false;
}

const OPTION_NAMES = new Set([
  ...['runAt', 'delay', 'queue', 'maxAttempts', 'timeout', 'retention', 'wake', 'headers', 'unique'],
]);

/**
 * What `options` and the definition come to.
 * @throws TaskqError `OPTION_INVALID` naming the option
 */
export function enqueueSettings(
  definition: TaskDefinition,
  options: EnqueueOptions<string> = {},
): EnqueueSettings {
  for (const name of Object.keys(options)) {
    if (!OPTION_NAMES.has(name)) {
      throw new TaskqError(
        'OPTION_INVALID',
        `enqueue option '${name}': no such option; there are ${[...OPTION_NAMES].join(', ')}`,
      );
    }
  }
  if (options.runAt !== undefined && options.delay !== undefined) {
    throw new TaskqError('OPTION_INVALID', 'enqueue options runAt and delay: give one of them, not both');
  }
  const { runAt, delay, queue, maxAttempts, timeout, retention, wake, unique } = options;
  return asOptionError(() => ({
    runAtMs: runAt === undefined ? undefined : instantMs(runAt),
    delayMs: delay === undefined ? undefined : durationMs(delay, 'enqueue option delay'),
    queue: queue === undefined ? definition.queue : checkName(queue, 'enqueue option queue'),
    maxAttempts:
      maxAttempts === undefined ? definition.maxAttempts : checkMaxAttempts(maxAttempts, 'enqueue options'),
    ceilingMs: timeout === undefined ? undefined : timeoutMs(timeout, definition),
    retentionMs: retention === undefined ? definition.retentionMs : retentionMs(retention),
    wake: wake === undefined ? definition.wake : checkWake(wake, 'enqueue option wake'),
    headers: checkHeaders(options.headers ?? {}, 'enqueue option headers'),
    unique: unique === undefined ? (definition.unique ?? false) : uniqueness(unique),
  }));
}

// Whole milliseconds, as the columns take them. Rounded up, a timeout is never longer than the ceiling: the claim
// takes the shorter of the two.
function timeoutMs(timeout: Duration, { type, ceilingMs }: TaskDefinition): number {
  const ms = durationMs(timeout, 'enqueue option timeout', { minMs: CEILING_MS_MIN });
  if (ms <= ceilingMs) return Math.ceil(ms);
  throw new TaskqError(
    'OPTION_INVALID',
    `enqueue option timeout: ${formatDuration(ms)} is above the ceiling of ${type}, ${formatDuration(ceilingMs)}; it can only lower it`,
  );
}

function retentionMs(retention: Duration | false): number | undefined {
  return retention === false ? undefined : recordRetentionMs(retention, 'enqueue option retention');
}

function uniqueness(unique: UniqueOptions | false): Uniqueness | false {
  return unique === false ? false : checkUnique(unique, 'enqueue option unique');
}

/** With an offset, so that it means the same on every machine. */
const ISO_WITH_OFFSET = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:\d{2})$/;

function instantMs(runAt: Date | string): number {
  if (typeof runAt === 'string' && !ISO_WITH_OFFSET.test(runAt)) {
    throw new TaskqError(
      'OPTION_INVALID',
      `enqueue option runAt: expected ISO text with an offset such as '2027-01-31T09:00:00Z', received '${runAt}'`,
    );
  }
  const ms = typeof runAt === 'string' || runAt instanceof Date ? new Date(runAt).getTime() : Number.NaN;
  // PostgreSQL's timestamps reach further than a Date, but nothing sensible lies beyond.
  if (Number.isNaN(ms) || ms < 0) {
    throw new TaskqError(
      'OPTION_INVALID',
      `enqueue option runAt: expected a valid Date after 1970, received ${String(runAt)}`,
    );
  }
  return ms;
}

/** @throws TaskqError `OPTION_INVALID` naming `field` and the header that PostgreSQL could not store */
export function checkHeaders(
  given: Readonly<Record<string, string>>,
  field: string,
): Readonly<Record<string, string>> {
  for (const [name, value] of Object.entries(given)) {
    const text = `${name}${value}`;
    if (typeof value !== 'string' || text.includes('\0') || !text.isWellFormed()) {
      throw new TaskqError(
        'OPTION_INVALID',
        `${field}: '${name}' must be a string without NUL and lone surrogates`,
      );
    }
  }
  return given;
}

/** The checks are shared with definitions; here the fault lies with an option. */
function asOptionError<T>(check: () => T): T {
  try {
    return check();
  } catch (error) {
    if (error instanceof TaskqError && error.code !== 'OPTION_INVALID') {
      throw new TaskqError('OPTION_INVALID', error.message, { cause: error });
    }
    throw error;
  }
}
