import type { ArgumentsCamelCase, Argv, CommandModule } from 'yargs';
import type { Config } from '../../src/config.ts';
import { TaskqError } from '../../src/domain/errors.ts';
import { CHECK_PROGRESS_ROWS } from '../../src/domain/limits.ts';
import type { PayloadReport, RevisionReport } from '../../src/operator.ts';
import { CONNECTION_SETTINGS, type Connection, withOperator } from '../connect.ts';
import { enqueuableTasks } from '../enqueuable-tasks.ts';
import { oneLine } from '../failure.ts';
import { print, say } from '../output.ts';
import { printTable } from '../print-table.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';

interface CheckArguments extends Connection, Pick<Config, 'definitions' | 'out'> {
  tasks: string | undefined;
  type: string[] | undefined;
  read: boolean;
  json: boolean;
}

/**
 * `taskq check-payloads`: what the code at hand would make of the rows that wait. Exit code 1 when a live row would
 * become a dead letter; a dead letter that is poison is reported and fails nothing.
 */
export const checkPayloads: CommandModule<GlobalArguments, GlobalArguments & CheckArguments> = {
  command: 'check-payloads',
  describe: 'parse the rows that wait with the code at hand, before it is deployed; writes nothing',
  builder: checkOptions,
  handler: async (argv) => {
    const tasks = await enqueuableTasks({ ...argv, cwd: argv.surroundings.cwd });
    const types = checkTypes(argv.type, Object.keys(tasks));
    const onProgress = sayProgress();
    const report = await withOperator(connectionOf(argv), (operator) =>
      operator.checkPayloads(tasks, { types, onProgress }),
    );
    if (argv.json) print(JSON.stringify(report));
    else printReport(report);
    if (report.poison.live > 0) process.exitCode = 1;
  },
};

function checkOptions(yargs: Argv<GlobalArguments>): Argv<GlobalArguments & CheckArguments> {
  const withOptions = yargs
    .option('tasks', {
      type: 'string',
      requiresArg: true,
      describe: 'the generated tasks.ts, instead of the definitions',
    })
    .option('type', {
      type: 'string',
      array: true,
      requiresArg: true,
      describe: 'only rows of this task type; may be given several times',
    })
    .option('read', {
      type: 'boolean',
      default: false,
      describe: 'read on the read replica, if there is one; it may lag',
    })
    .option('json', { type: 'boolean', default: false, describe: 'print the report as one JSON object' });
  return settingOptions(withOptions, [...CONNECTION_SETTINGS, 'definitions', 'out']) as unknown as Argv<
    GlobalArguments & CheckArguments
  >;
}

/** One database for everything, so that a role on one server is enough. */
function connectionOf(argv: ArgumentsCamelCase<CheckArguments>): Connection {
  const { read, databaseUrl, readDatabaseUrl } = argv;
  if (read && readDatabaseUrl === undefined) say('taskq: no read replica is configured; reading the primary');
  return {
    ...argv,
    databaseUrl: read ? (readDatabaseUrl ?? databaseUrl) : databaseUrl,
    readDatabaseUrl: undefined,
  };
}

function checkTypes(types: readonly string[] | undefined, known: readonly string[]) {
  const unknown = types?.find((type) => !known.includes(type));
  if (unknown === undefined) return types;
  throw new TaskqError(
    'OPTION_INVALID',
    `--type: no task type '${unknown}' is defined; there are ${known.join(', ') || 'none'}`,
  );
}

function sayProgress() {
  let next = CHECK_PROGRESS_ROWS;
  return ({ rows, livePoison }: { rows: number; livePoison: number }): void => {
    if (rows < next) return;
    next = rows + CHECK_PROGRESS_ROWS;
    say(`checked ${rows} rows so far, ${livePoison} live poison`);
  };
}

const VERDICTS = ['fine', 'upgraded', 'poison'] as const;

function printReport(report: PayloadReport): void {
  const { rows, revisions, left } = report;
  if (revisions.length > 0) {
    printTable(
      ['type', 'revision', 'rows', ...VERDICTS],
      revisions.flatMap((of) => (['live', 'dead'] as const).flatMap((state) => countRow(of, state))),
      { alignRight: VERDICTS },
    );
  }
  for (const of of revisions) printExamples(of);
  for (const { type, revision, rows: waiting } of left) {
    const why = revision === undefined ? 'an unknown type' : `revision ${revision} is newer than this code`;
    print(oneLine(`left to other workers: ${type}, ${why}: ${waiting.live} live, ${waiting.dead} dead`));
  }
  const total = (verdict: (typeof VERDICTS)[number]) => report[verdict].live + report[verdict].dead;
  const poison = total('poison') === 0 ? '' : ` (${report.poison.live} live, ${report.poison.dead} dead)`;
  const others = rows - total('fine') - total('upgraded') - total('poison');
  const otherwise = others === 0 ? '' : `, ${others} left to other workers`;
  print(
    `checked ${rows} rows: ${total('fine')} fine, ${total('upgraded')} upgraded, ${total('poison')} poison${poison}${otherwise}`,
  );
}

function countRow(of: RevisionReport, state: 'live' | 'dead'): string[][] {
  const counts = VERDICTS.map((verdict) => of[verdict][state]);
  if (counts.every((count) => count === 0)) return [];
  return [[of.type, revisionsOf(of), state, ...counts.map(String)]];
}

function printExamples(of: RevisionReport): void {
  for (const { id, isDead, path, expectation, more } of of.examples) {
    const state = isDead ? 'dead' : 'live';
    const others = more === 0 ? '' : `, and ${more} more`;
    const place = `${of.type}, revision ${revisionsOf(of)}, task ${id} (${state})`;
    print(oneLine(`poison: ${place}: ${path}: ${expectation}${others}`));
  }
}

function revisionsOf({ revision, currentRevision }: RevisionReport): string {
  return revision === currentRevision ? String(revision) : `${revision} → ${currentRevision}`;
}
