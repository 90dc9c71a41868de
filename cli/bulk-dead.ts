import { TaskqError } from '../src/domain/errors.ts';
import type {
  DeadLetterFilter,
  DeadLetterPreview,
  DroppedMany,
  Operator,
  ReplayedMany,
} from '../src/operator.ts';
import { type Connection, withOperator } from './connect.ts';
import { type FilterArguments, toFilter } from './dead-filter.ts';
import { print, say } from './output.ts';
import { printTable } from './print-table.ts';
import { type ProgressLine, progressLine } from './progress-line.ts';
import { stopSignal } from './stop-signal.ts';

export interface BulkArguments extends FilterArguments {
  ids: string[] | undefined;
  all: boolean;
  dryRun: boolean;
  json: boolean;
}

/**
 * What a command is for: the ids named, or, undefined, those that the filter matches.
 * @throws TaskqError `OPTION_INVALID` for both, and for neither
 */
export function chosenIds(argv: BulkArguments, command: string): readonly string[] | undefined {
  const isFiltered = Object.keys(toFilter(argv)).length > 0;
  const ids = argv.ids ?? [];
  if (ids.length > 0) {
    if (!isFiltered && !argv.all && !argv.dryRun) return ids;
    throw new TaskqError('OPTION_INVALID', `${command}: give ids, or a filter, not both`);
  }
  if (argv.all && isFiltered)
    throw new TaskqError('OPTION_INVALID', `${command}: --all takes no filter beside it`);
  if (argv.all || isFiltered) return undefined;
  throw new TaskqError(
    'OPTION_INVALID',
    `${command}: say which dead letters: their ids, a filter such as --type, or --all`,
  );
}

/** `taskq dead replay` without ids. */
export async function bulkReplay(argv: BulkArguments & Connection): Promise<void> {
  const filter = toFilter(argv);
  await withOperator(argv, async (operator) => {
    if (argv.dryRun) return preview(operator, filter, argv.json, 'would be replayed');
    await interruptibly<ReplayedMany>(
      argv.json,
      (options) => operator.replayMany(filter, options),
      describeReplayed,
    );
  });
}

/** `taskq dead drop` without ids. `confirm` is asked how many, unless `--yes` was given. */
export async function bulkDrop(
  argv: BulkArguments & Connection & { yes: boolean },
  confirm: (count: number) => Promise<boolean>,
): Promise<void> {
  const filter = toFilter(argv);
  await withOperator(argv, async (operator) => {
    if (argv.dryRun) return preview(operator, filter, argv.json, 'would be dropped');
    if (!argv.yes) {
      const { matched } = await operator.previewMany(filter);
      if (matched > 0 && !(await confirm(matched))) {
        process.exitCode = 1;
        return;
      }
    }
    await interruptibly<DroppedMany>(
      argv.json,
      (options) => operator.dropMany(filter, options),
      describeDropped,
    );
  });
}

/** Shows how far it is; Ctrl-C ends it after the batch under way, and what was done is told either way. */
async function interruptibly<Result extends ReplayedMany | DroppedMany>(
  json: boolean,
  run: (options: { onProgress: (soFar: Result) => void; signal: AbortSignal }) => Promise<Result>,
  describe: (result: Result) => string[],
): Promise<void> {
  const stop = stopSignal();
  const aborted = new AbortController();
  const line = progressLine();
  void stop.requested.then(() => {
    line.end();
    say('taskq: stopping after the batch under way');
    aborted.abort();
  });
  let soFar: Result | undefined;
  const onProgress = (progress: Result) => {
    soFar = progress;
    line.show(progressOf(progress));
  };
  try {
    const result = await run({ onProgress, signal: aborted.signal });
    line.end();
    if (json) print(JSON.stringify(result));
    else for (const text of describe(result)) print(text);
    if (aborted.signal.aborted) {
      say('taskq: interrupted; run it again for the rest');
      process.exitCode = 1;
    }
  } catch (error) {
    line.end();
    if (soFar !== undefined) say(`taskq: before it failed, at least: ${progressOf(soFar)}`);
    throw error;
  } finally {
    stop.forget();
  }
}

function progressOf(soFar: ReplayedMany | DroppedMany): string {
  const done = 'replayed' in soFar ? `replayed ${soFar.replayed}` : `dropped ${soFar.dropped}`;
  return `looked at ${soFar.looked}, ${done}`;
}

function describeReplayed({ matched, replayed, keyTaken, changed }: ReplayedMany): string[] {
  if (matched === 0) return [NOTHING];
  return [
    `replayed ${replayed} of ${matched} dead letters`,
    ...(keyTaken === 0
      ? []
      : [`${keyTaken} stay dead letters: another task has their unique key; replay them when that is done`]),
    ...describeChanged(changed),
  ];
}

function describeDropped({ matched, dropped, changed }: DroppedMany): string[] {
  if (matched === 0) return [NOTHING];
  return [`dropped ${dropped} of ${matched} dead letters`, ...describeChanged(changed)];
}

const NOTHING = 'no dead letter matches';

function describeChanged(changed: number): string[] {
  return changed === 0 ? [] : [`${changed} were left alone: changed or locked by somebody else meanwhile`];
}

async function preview(
  operator: Operator,
  filter: DeadLetterFilter,
  json: boolean,
  fate: string,
): Promise<void> {
  const line: ProgressLine = progressLine();
  const found = await operator.previewMany(filter, {
    onProgress: ({ looked, matched }) => line.show(`looked at ${looked}, ${matched} match`),
  });
  line.end();
  if (json) print(JSON.stringify(found));
  else printPreview(found, fate);
}

function printPreview({ matched, keyTaken, groups, others }: DeadLetterPreview, fate: string): void {
  if (matched === 0) {
    print(NOTHING);
    return;
  }
  const isReplay = fate === 'would be replayed';
  print(`${matched - (isReplay ? keyTaken : 0)} dead letters ${fate}; nothing was done`);
  if (isReplay && keyTaken > 0) print(`${keyTaken} would not: another task has their unique key`);
  printTable(
    ['count', 'type', 'last error'],
    groups.map(({ count, type, error }) => [String(count), type, error ?? 'none']),
    { alignRight: ['count'] },
  );
  if (others > 0) print(`and ${others} with other errors`);
}
