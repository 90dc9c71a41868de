import path from 'node:path';
import type { Argv, CommandModule } from 'yargs';
import type { Config } from '../../src/config.ts';
import { TaskqError } from '../../src/domain/errors.ts';
import {
  CHECK_STATUSES,
  type CheckStatus,
  type DoctorReport,
  doctor as examine,
} from '../../src/operator.ts';
import { requireDatabase } from '../connect.ts';
import { enqueuableTasks } from '../enqueuable-tasks.ts';
import { messageOf, oneLine } from '../failure.ts';
import { print, say } from '../output.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';
import { loadCron, loadHandlers } from '../user-exports.ts';

const DOCTOR_SETTINGS = [
  'databaseUrl',
  'readDatabaseUrl',
  'listenDatabaseUrl',
  'schema',
  'preparedStatements',
  'leaseMargin',
  'retention',
  'handlers',
  'cron',
  'definitions',
  'out',
] as const satisfies readonly (keyof Config)[];

type DoctorArguments = Pick<Config, (typeof DOCTOR_SETTINGS)[number]> & {
  json: boolean;
  check: string[] | undefined;
};

/** `taskq doctor`: what is wrong with a queue, and what to do. Exit code 1 when there is a problem; warnings are none. */
export const doctor: CommandModule<GlobalArguments, GlobalArguments & DoctorArguments> = {
  command: 'doctor',
  describe: 'examine the queue, its database and its connections, and say what to do; writes nothing',
  builder: (yargs) =>
    settingOptions(
      yargs
        .option('json', { type: 'boolean', default: false, describe: 'print one JSON object' })
        .option('check', {
          type: 'string',
          array: true,
          requiresArg: true,
          describe: 'only this check, by its id; may be given several times',
        }),
      DOCTOR_SETTINGS,
    ) as unknown as Argv<GlobalArguments & DoctorArguments>,
  handler: async (argv) => {
    const { readDatabaseUrl, listenDatabaseUrl } = argv;
    const [tasks, cron] = [
      await loaded('task types', tasksOf(argv)),
      await loaded('cron list', cronOf(argv)),
    ];
    const report = await examine({
      database: requireDatabase(argv),
      ...(readDatabaseUrl === undefined ? {} : { readDatabase: readDatabaseUrl }),
      ...(listenDatabaseUrl === undefined ? {} : { listenDatabase: listenDatabaseUrl }),
      schema: argv.schema,
      preparedStatements: argv.preparedStatements,
      leaseMarginMs: argv.leaseMargin,
      retentionMs: argv.retention,
      ...(argv.check === undefined ? {} : { checks: argv.check }),
      ...(tasks === undefined ? {} : { tasks }),
      ...(cron === undefined ? {} : { cron }),
    });
    if (argv.json) print(JSON.stringify(report));
    else printReport(report);
    if (report.counts.problem > 0) process.exitCode = 1;
  },
};

type Argued = GlobalArguments & DoctorArguments;

/** What the workers register: their handlers, else the definitions or the generated tasks of this folder. */
async function tasksOf({ handlers, definitions, out, surroundings: { cwd } }: Argued) {
  if (handlers !== undefined) return Object.fromEntries(await loadHandlers(path.resolve(cwd, handlers)));
  try {
    return await enqueuableTasks({ cwd, tasks: undefined, definitions, out });
  } catch (error) {
    // Nothing is said to be where there is nothing: the doctor is also run far from the code.
    if (definitions === undefined && error instanceof TaskqError && error.code === 'CONFIG_INVALID')
      return undefined;
    throw error;
  }
}

async function cronOf({ cron, surroundings: { cwd } }: Argued) {
  return cron === undefined ? undefined : loadCron(path.resolve(cwd, cron));
}

/** A module that cannot be loaded must not keep the database from being looked at. */
async function loaded<Value>(what: string, loading: Promise<Value>): Promise<Value | undefined> {
  try {
    return await loading;
  } catch (error) {
    say(`taskq: going on without the ${what}: ${messageOf(error)}`);
    return undefined;
  }
}

const HEADINGS: Readonly<Record<CheckStatus, string>> = {
  problem: 'problems',
  warning: 'warnings',
  unknown: 'could not be seen',
  ok: 'in order',
};

function printReport({ findings, counts }: DoctorReport): void {
  for (const status of CHECK_STATUSES) {
    if (counts[status] === 0) continue;
    print(`${HEADINGS[status]}:`);
    for (const { id, group, found, remedies } of findings.filter((finding) => finding.status === status)) {
      print(`  ${group}/${id}: ${oneLine(found)}`);
      for (const remedy of remedies) print(`      → ${oneLine(remedy)}`);
    }
    print('');
  }
  const sums = CHECK_STATUSES.map((status) => `${counts[status]} ${status}`);
  print(`${findings.length} ${findings.length === 1 ? 'check' : 'checks'}: ${sums.join(', ')}`);
}
