import { type ErrorCode, TaskqError } from '../src/domain/errors.ts';
import { describeThrown } from '../src/domain/thrown.ts';

/** Done, failed, misused. */
type ExitCode = 0 | 1 | 2;

/** Mistakes of whoever typed the command, as against failures of the run. */
const MISUSE: readonly ErrorCode[] = ['CONFIG_INVALID', 'OPTION_INVALID', 'DURATION_INVALID'];

/** The arguments do not make a command. `usage` is what to show then. */
export class UsageError extends Error {
  readonly usage: string;

  constructor(message: string, usage: string) {
    super(message);
    this.usage = usage;
  }
}

export function exitCodeOf(error: unknown): ExitCode {
  if (error instanceof UsageError) return 2;
  return error instanceof TaskqError && MISUSE.includes(error.code) ? 2 : 1;
}

/** What stands in brackets behind a message: taskq's own code, the database's or the system's. */
function codeOf(error: unknown): string | undefined {
  if (error instanceof UsageError || typeof error !== 'object' || error === null) return undefined;
  return 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}

/** The error in one line with its code, without what may be secret and without what a terminal would obey. */
export function messageOf(error: unknown): string {
  const code = codeOf(error);
  return code === undefined ? textOf(error) : `${textOf(error)} [${code}]`;
}

/** The error for `--json`: whoever parses stdout finds JSON there in every case. */
export function jsonOf(error: unknown): string {
  return JSON.stringify({ error: { code: codeOf(error) ?? 'UNEXPECTED', message: textOf(error) } });
}

function textOf(error: unknown): string {
  // A message of taskq's own says what matters of its cause already.
  const text = error instanceof TaskqError ? error.message : describeThrown(error).message;
  return oneLine(withoutPasswords(text));
}

/** The stack, for `--verbose`. Never `inspect`: it would print an error's properties, such as a whole URL. */
export function stackOf(error: unknown): string {
  return withoutPasswords(describeThrown(error).stack ?? '');
}

const URL_PASSWORD = /(\w+:\/\/[^\s:@/]*):[^\s@]*@/g;

function withoutPasswords(text: string): string {
  return text.replaceAll(URL_PASSWORD, '$1:***@');
}

/** Text from rows and errors as one visible line: a message may hold escape sequences, and a terminal obeys them. */
export function oneLine(text: string): string {
  return text
    .replaceAll(/\s*[\r\n\u2028\u2029]+\s*/g, ' ')
    .replaceAll(/\p{Cc}/gu, (control) => `\\x${control.charCodeAt(0).toString(16).padStart(2, '0')}`);
}
