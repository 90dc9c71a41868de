import type { DeadLetter } from '../src/operator.ts';
import { oneLine } from './failure.ts';

/** Why a dead letter may have no error: whoever could have written one was gone. */
export const SILENT_DEATH =
  'none: the worker of the last attempt died or lost its connection before it could write one';

/** Why the payload of a task is not shown; undefined where it is. */
export function maskedNote(shown: {
  readonly type: string;
  readonly payloadRevision: number;
  readonly secretsKnown: boolean;
}): string | undefined {
  if (shown.secretsKnown) return undefined;
  return `taskq: the payload is not shown: no worker has registered revision ${shown.payloadRevision} of '${shown.type}', so nobody knows which of its fields are secret`;
}

const NAME_WIDTH = 14;

/** One line for each field that has a value. */
export function fieldLines(fields: Readonly<Record<string, string | undefined>>): string[] {
  return Object.entries(fields).flatMap(([name, value]) =>
    value === undefined ? [] : [`${`${name}:`.padEnd(NAME_WIDTH)}${oneLine(value)}`],
  );
}

/** The kept failures of a task, under their heading; no line when there are none. */
export function errorLines(errors: DeadLetter['errors']): string[] {
  if (errors.length === 0) return [];
  const lines = errors.flatMap(({ at, attempt, outcome, message, stack }) => [
    `  attempt ${attempt}, ${at}, ${outcome}: ${oneLine(message)}`,
    // The first line of a stack repeats the message.
    ...(stack ?? '')
      .split('\n')
      .slice(1)
      .map((line) => `    ${oneLine(line.trim())}`),
  ]);
  return ['errors:', ...lines];
}
