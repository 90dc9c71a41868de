import { type Duration, durationMs } from './duration.ts';
import { TaskqError } from './errors.ts';
import { ERROR_MESSAGE_LENGTH_MAX } from './limits.ts';
import { checkName } from './task-definition.ts';

/** Which dead letters; what is left out does not matter, so that `{}` is all of them. */
export interface DeadLetterFilter {
  readonly type?: string;
  readonly queue?: string;
  /** Their last attempt is at least this long ago. */
  readonly olderThan?: Duration;
  /** Their last attempt is less than this long ago. */
  readonly newerThan?: Duration;
  /** Text somewhere in their last error, to the letter but for upper and lower case. */
  readonly error?: string;
}

/** A filter as the statements take it. */
export interface CheckedFilter {
  readonly type: string | null;
  readonly queue: string | null;
  readonly olderThanMs: number | null;
  readonly newerThanMs: number | null;
  readonly error: string | null;
}

/** @throws TaskqError `OPTION_INVALID`, `DURATION_INVALID` */
export function checkFilter(filter: DeadLetterFilter): CheckedFilter {
  const { type, queue, olderThan, newerThan, error } = filter;
  const checked = {
    type: type === undefined ? null : nameOf(type, 'type'),
    queue: queue === undefined ? null : nameOf(queue, 'queue'),
    olderThanMs: olderThan === undefined ? null : durationMs(olderThan, 'older than'),
    newerThanMs: newerThan === undefined ? null : durationMs(newerThan, 'newer than'),
    error: error === undefined ? null : checkErrorText(error),
  };
  const { olderThanMs, newerThanMs } = checked;
  if (olderThanMs !== null && newerThanMs !== null && newerThanMs <= olderThanMs) {
    throw new TaskqError(
      'OPTION_INVALID',
      'nothing is older than the one and newer than the other: newer than must be the longer time',
    );
  }
  return checked;
}

/**
 * The name of a queue that an operator gave.
 * @throws TaskqError `OPTION_INVALID` for what can be the name of none
 */
export function checkQueueName(queue: string): string {
  return nameOf(queue, 'queue');
}

function nameOf(name: string, field: string): string {
  try {
    return checkName(name, field);
  } catch (error) {
    if (!(error instanceof TaskqError)) throw error;
    throw new TaskqError('OPTION_INVALID', error.message, { cause: error });
  }
}

function checkErrorText(text: string): string {
  if (text !== '' && text.length <= ERROR_MESSAGE_LENGTH_MAX && !text.includes('\0') && text.isWellFormed())
    return text;
  throw new TaskqError(
    'OPTION_INVALID',
    `error: expected 1 to ${ERROR_MESSAGE_LENGTH_MAX} characters of the error's text, without NUL`,
  );
}
