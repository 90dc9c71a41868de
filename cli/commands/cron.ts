import path from 'node:path';
import type { Argv, CommandModule } from 'yargs';
import type { Config } from '../../src/config.ts';
import { TaskqError } from '../../src/domain/errors.ts';
import type { CronEntries } from '../../src/index.ts';
import type { CronStatus } from '../../src/operator.ts';
import { CONNECTION_SETTINGS, type Connection, withOperator } from '../connect.ts';
import { print, say } from '../output.ts';
import { printTable } from '../print-table.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';
import { loadCron } from '../user-exports.ts';

type CronArguments = Connection & Pick<Config, 'cron'>;
type Command<Own> = CommandModule<GlobalArguments, GlobalArguments & CronArguments & Own>;

const list: Command<{ json: boolean }> = {
  command: 'list',
  describe: 'show the entries with their last and next ticks',
  builder: (yargs) =>
    options(yargs.option('json', { type: 'boolean', default: false, describe: 'print one JSON array' })),
  handler: async (argv) => {
    const cron = await cronEntries(argv);
    const statuses = await withOperator(argv, (operator) => operator.listCron(cron));
    if (argv.json) print(JSON.stringify(statuses.map(toJson)));
    else printStatuses(statuses);
  },
};

const run: Command<{ entry: string }> = {
  command: 'run <entry>',
  describe: 'enqueue the task of an entry now, beside its ticks',
  builder: (yargs) =>
    options(yargs.positional('entry', { type: 'string', demandOption: true, describe: 'its name' })),
  handler: async (argv) => {
    const cron = await cronEntries(argv);
    const { id, status } = await withOperator(argv, (operator) => operator.runCron(cron, argv.entry));
    if (status !== 'existing') {
      print(`${status} ${id}`);
      return;
    }
    say(`taskq: nothing was enqueued: task ${id} is in the way of another of the entry '${argv.entry}'`);
    process.exitCode = 1;
  },
};

/** `taskq cron list|run`. */
export const cron: CommandModule<GlobalArguments, GlobalArguments> = {
  command: 'cron',
  describe: 'look at the cron list, or run one of its entries now',
  builder: (yargs) => yargs.command(list).command(run).demandCommand(1, 'say what to do with the cron list'),
  handler: () => undefined,
};

function options<Given>(yargs: Argv<Given>): Argv<Given & CronArguments> {
  return settingOptions(yargs, [...CONNECTION_SETTINGS, 'cron']) as unknown as Argv<Given & CronArguments>;
}

async function cronEntries({ cron, surroundings }: GlobalArguments & CronArguments): Promise<CronEntries> {
  if (cron !== undefined) return loadCron(path.resolve(surroundings.cwd, cron));
  throw new TaskqError(
    'CONFIG_INVALID',
    'no cron list: name its module with --cron, or write cron into taskq.config.ts',
  );
}

function printStatuses(statuses: readonly CronStatus[]): void {
  if (statuses.length === 0) {
    print('no cron entries');
    return;
  }
  printTable(
    ['entry', 'schedule', 'task', 'queue', 'last tick', 'outcome', 'task id', 'next ticks'],
    statuses.map(({ name, schedule, defined, last }) => [
      name,
      schedule,
      defined?.task ?? '-',
      defined?.queue ?? '-',
      last?.tick.toISOString() ?? '-',
      last?.outcome ?? '-',
      last?.taskId ?? '-',
      defined === undefined ? 'not in the list any more' : ticks(defined.next),
    ]),
  );
}

function ticks(next: readonly Date[]): string {
  return next.map((tick) => tick.toISOString()).join(', ') || 'none';
}

function toJson({ name, schedule, defined, last }: CronStatus): object {
  const { task = null, queue = null, next = [] } = defined ?? {};
  return { entry: name, schedule, removed: defined === undefined, task, queue, last: last ?? null, next };
}
