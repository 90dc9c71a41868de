import type { Argv } from 'yargs';
import { checkFilter } from '../src/domain/dead-letter-filter.ts';
import type { Duration } from '../src/domain/duration.ts';
import { TaskqError } from '../src/domain/errors.ts';
import type { DeadLetterFilter } from '../src/operator.ts';

export interface FilterArguments {
  type: string | undefined;
  queue: string | undefined;
  olderThan: string | undefined;
  newerThan: string | undefined;
  error: string | undefined;
}

export function filterOptions<Given>(yargs: Argv<Given>): Argv<Given & FilterArguments> {
  const text = (describe: string) => ({ type: 'string', requiresArg: true, describe }) as const;
  return yargs
    .option('type', text('only of this task type'))
    .option('queue', text('only of this queue'))
    .option('older-than', text("only those whose last attempt is at least this long ago: '1h'"))
    .option('newer-than', text("only those whose last attempt is less than this long ago: '2d'"))
    .option(
      'error',
      text('only those with this text in their last error, upper or lower case'),
    ) as unknown as Argv<Given & FilterArguments>;
}

/** @throws TaskqError `OPTION_INVALID`, `DURATION_INVALID` before anything is connected to */
export function toFilter(given: FilterArguments): DeadLetterFilter {
  const { type, queue, olderThan, newerThan, error } = given;
  for (const [name, value] of Object.entries({ type, queue, olderThan, newerThan, error })) {
    if (Array.isArray(value)) {
      throw new TaskqError('OPTION_INVALID', `${FLAGS[name as keyof FilterArguments]}: give it once`);
    }
  }
  const filter = {
    ...(type === undefined ? {} : { type }),
    ...(queue === undefined ? {} : { queue }),
    ...(olderThan === undefined ? {} : { olderThan: olderThan as Duration }),
    ...(newerThan === undefined ? {} : { newerThan: newerThan as Duration }),
    ...(error === undefined ? {} : { error }),
  };
  checkFilter(filter);
  return filter;
}

const FLAGS: Readonly<Record<keyof FilterArguments, string>> = {
  type: '--type',
  queue: '--queue',
  olderThan: '--older-than',
  newerThan: '--newer-than',
  error: '--error',
};
