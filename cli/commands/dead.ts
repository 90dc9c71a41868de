import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import type { Argv, CommandModule } from 'yargs';
import { TaskqError } from '../../src/domain/errors.ts';
import { DEAD_PAGE_DEFAULT, DEAD_PAGE_MAX } from '../../src/domain/limits.ts';
import { type DeadLetter, type Operator, parseTaskId, type Replay, type TaskId } from '../../src/operator.ts';
import { type BulkArguments, bulkDrop, bulkReplay, chosenIds } from '../bulk-dead.ts';
import { CONNECTION_SETTINGS, type Connection, withOperator } from '../connect.ts';
import { type FilterArguments, filterOptions, toFilter } from '../dead-filter.ts';
import { messageOf } from '../failure.ts';
import { print, say } from '../output.ts';
import { printTable } from '../print-table.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';
import { errorLines, fieldLines, maskedNote, SILENT_DEATH } from '../task-lines.ts';

type Command<Own> = CommandModule<GlobalArguments, GlobalArguments & Connection & Own>;

const list: Command<FilterArguments & { limit: number; before: string | undefined; json: boolean }> = {
  command: 'list',
  describe: 'list dead letters, newest first',
  builder: (yargs) =>
    options(
      filterOptions(yargs)
        .option('limit', {
          type: 'number',
          requiresArg: true,
          default: DEAD_PAGE_DEFAULT,
          describe: `how many, 1 to ${DEAD_PAGE_MAX}`,
        })
        .option('before', {
          type: 'string',
          requiresArg: true,
          describe: 'only those with a smaller id: the next page',
        })
        .option('json', { type: 'boolean', default: false, describe: 'print one JSON array' }),
    ),
  handler: async (argv) => {
    const limit = checkLimit(argv.limit);
    const filter = toFilter(argv);
    const page =
      argv.before === undefined ? { limit, filter } : { limit, filter, before: toTaskId(argv.before) };
    const letters = await withOperator(argv, (operator) => operator.listDead(page));
    if (argv.json) print(`[${letters.map(toJson).join(',')}]`);
    else printList(letters, limit, Object.keys(filter).length > 0);
  },
};

const show: Command<{ id: string; json: boolean }> = {
  command: 'show <id>',
  describe: 'show the payload and the errors of a dead letter',
  builder: (yargs) =>
    options(
      yargs
        .positional('id', { type: 'string', demandOption: true, describe: 'its id' })
        .option('json', { type: 'boolean', default: false, describe: 'print one JSON object' }),
    ),
  handler: async (argv) => {
    const id = toTaskId(argv.id);
    const letter = await withOperator(argv, (operator) => operator.showDead(id));
    if (letter === undefined) {
      say(notDead(id));
      process.exitCode = 1;
    } else if (argv.json) print(toJson(letter));
    else {
      for (const line of describeLetter(letter)) print(line);
      const note = maskedNote(letter);
      if (note !== undefined) say(note);
    }
  },
};

const replay: Command<BulkArguments> = {
  command: 'replay [ids..]',
  describe: 'put dead letters back, with their attempts to start again',
  builder: (yargs) =>
    options(
      bulkOptions(yargs)
        .example('$0 dead replay 17 18', '')
        .example("$0 dead replay --type send_mail --error 'timed out' --dry-run", ''),
    ),
  handler: async (argv) => {
    const ids = chosenIds(argv, 'dead replay')?.map(toTaskId);
    if (ids === undefined) await bulkReplay(argv);
    else {
      await withOperator(argv, (operator) => each(ids, 'replayed', argv.json, (id) => operator.replay(id)));
    }
  },
};

const drop: Command<BulkArguments & { yes: boolean }> = {
  command: 'drop [ids..]',
  describe: 'delete dead letters for good',
  builder: (yargs) =>
    options(bulkOptions(yargs).option('yes', { type: 'boolean', default: false, describe: 'do not ask' })),
  handler: async (argv) => {
    const ids = chosenIds(argv, 'dead drop')?.map(toTaskId);
    if (!argv.yes && !argv.dryRun) requireTerminal();
    if (ids === undefined) return bulkDrop(argv, confirmDrop);
    await withOperator(argv, async (operator: Operator) => {
      if (argv.yes || (await confirmDrop(ids.length)))
        await each(ids, 'dropped', argv.json, (id) => operator.drop(id));
      else process.exitCode = 1;
    });
  },
};

/** `taskq dead list|show|replay|drop`. */
export const dead: CommandModule<GlobalArguments, GlobalArguments> = {
  command: 'dead',
  describe: 'look at, put back or delete dead letters',
  builder: (yargs) =>
    yargs
      .command(list)
      .command(show)
      .command(replay)
      .command(drop)
      .demandCommand(1, 'say what to do with dead letters'),
  handler: () => undefined,
};

function options<Given>(yargs: Argv<Given>): Argv<Given & Connection> {
  return settingOptions(yargs, CONNECTION_SETTINGS) as unknown as Argv<Given & Connection>;
}

function bulkOptions(yargs: Argv<GlobalArguments>): Argv<GlobalArguments & BulkArguments> {
  const withIds = yargs.positional('ids', {
    type: 'string',
    array: true,
    describe: 'their ids; without them, those that the filter matches',
  });
  return filterOptions(withIds)
    .option('all', { type: 'boolean', default: false, describe: 'every dead letter there is' })
    .option('dry-run', {
      type: 'boolean',
      default: false,
      describe: 'only say which it would be, by type and error',
    })
    .option('json', {
      type: 'boolean',
      default: false,
      describe: 'print one JSON object, of several ids one for each',
    }) as unknown as Argv<GlobalArguments & BulkArguments>;
}

function toTaskId(text: string): TaskId {
  const id = parseTaskId(text);
  if (id === undefined)
    throw new TaskqError('OPTION_INVALID', `'${text}' is no task id: expected a whole number from 1 on`);
  return id;
}

function checkLimit(limit: number): number {
  if (Number.isInteger(limit) && limit >= 1 && limit <= DEAD_PAGE_MAX) return limit;
  throw new TaskqError('OPTION_INVALID', `--limit: expected a whole number from 1 to ${DEAD_PAGE_MAX}`);
}

/** Every id is tried, whatever became of the one before. */
async function each(
  ids: readonly TaskId[],
  done: 'replayed' | 'dropped',
  json: boolean,
  write: (id: TaskId) => Promise<Replay>,
): Promise<void> {
  for (const id of ids) {
    try {
      const answer = await write(id);
      if (json) print(JSON.stringify({ id, result: answer === 'written' ? done : answer }));
      if (answer === 'written') {
        if (!json) print(`${done} ${id}`);
        continue;
      }
      say(answer === 'key_taken' ? keyTaken(id) : notDead(id));
    } catch (error) {
      say(`taskq: task ${id}: ${messageOf(error)}`);
    }
    process.exitCode = 1;
  }
}

function notDead(id: TaskId): string {
  return `taskq: task ${id} is no dead letter: it waits, runs, or is gone`;
}

function keyTaken(id: TaskId): string {
  return `taskq: task ${id} stays a dead letter: a live task has its unique key; replay it when that one is done`;
}

function requireTerminal(): void {
  if (process.stdin.isTTY) return;
  throw new TaskqError(
    'OPTION_INVALID',
    'dead drop deletes tasks for good; add --yes to do it without asking',
  );
}

async function confirmDrop(count: number): Promise<boolean> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  // At the end of the input (Ctrl-D) a question is never answered.
  const closed = once(terminal, 'close').then(() => '');
  try {
    const answered = terminal.question(`Delete ${count} dead letter(s) for good? [y/N] `);
    return /^y(es)?$/i.test((await Promise.race([answered, closed])).trim());
  } finally {
    terminal.close();
  }
}

function printList(letters: readonly DeadLetter[], limit: number, isFiltered: boolean): void {
  if (letters.length === 0) {
    print(isFiltered ? 'no dead letter matches' : 'no dead letters');
    return;
  }
  printTable(
    ['id', 'type', 'queue', 'attempts', 'last attempt', 'last error'],
    letters.map((letter) => [
      letter.id,
      letter.type,
      letter.queue,
      `${letter.attemptCount}/${letter.maxAttempts}`,
      letter.lastAttemptedAt?.toISOString() ?? '-',
      letter.lastError ?? SILENT_DEATH,
    ]),
  );
  if (letters.length === limit) say(`more with --before ${letters.at(-1)?.id}`);
}

function describeLetter(letter: DeadLetter): string[] {
  const { id, type, queue, attemptCount, maxAttempts, enqueuedAt, lastAttemptedAt, lastError } = letter;
  const fields = {
    id,
    type,
    queue,
    attempts: `${attemptCount} of ${maxAttempts}`,
    enqueued: enqueuedAt.toISOString(),
    'last attempt': lastAttemptedAt?.toISOString() ?? '-',
    payload: letter.payloadText,
    'last error': lastError ?? SILENT_DEATH,
  };
  return [...fieldLines(fields), ...errorLines(letter.errors)];
}

/** The payload as it is stored: parsed and printed again, its big numbers would change. */
function toJson({ payloadText, ...letter }: DeadLetter): string {
  return `${JSON.stringify({ ...letter, lastError: letter.lastError ?? null }).slice(0, -1)},"payload":${payloadText}}`;
}
