import type { Argv, CommandModule } from 'yargs';
import { type CodegenOptions, type CodegenReport, runCodegen } from '../../src/codegen/codegen.ts';
import type { AcceptRequest } from '../../src/codegen/revisions.ts';
import { watchSources } from '../../src/codegen/watch.ts';
import { type ErrorCode, TaskqError } from '../../src/domain/errors.ts';
import { PAYLOAD_BYTES_MAX_DEFAULT } from '../../src/domain/limits.ts';
import { settingOptions } from '../settings.ts';
import { stopSignal } from '../stop-signal.ts';

interface CodegenArguments {
  definitions: string[] | undefined;
  out: string;
  runtime: string;
  schema: string;
  maxPayloadBytes: number;
  migrations: string | undefined;
  check: boolean;
  watch: boolean;
  accept: string[] | undefined;
  reason: string[] | undefined;
  json: boolean;
  databaseTypes: boolean;
  scratchDatabaseUrl: string | undefined;
}

/** Mistakes of whoever typed the command, as against failures of the run. */
const MISUSE: readonly ErrorCode[] = ['CONFIG_INVALID', 'OPTION_INVALID'];

/**
 * `taskq codegen`: the report, or with `--check` the diff, on stdout; progress and errors on stderr. Exit code 0 done
 * or up to date, 1 drift found by `--check` or a payload change that rows might not survive, 2 misuse, 3 the files could not be made or checked.
 */
export const codegen: CommandModule<object, CodegenArguments> = {
  command: 'codegen',
  describe: 'make the typed enqueue functions, the handler types and the row types from the task definitions',
  builder: codegenOptions,
  handler: async (argv) => {
    process.exitCode = await (argv.watch ? generateOnChange(argv) : generate(argv));
  },
};

function codegenOptions(yargs: Argv<object>): Argv<CodegenArguments> {
  const withOptions = yargs
    .option('migrations', { type: 'string', describe: 'a folder of SQL migrations to embed (taskq itself)' })
    .option('check', {
      type: 'boolean',
      default: false,
      describe: 'write nothing; exit 1 if anything differs',
    })
    .option('watch', {
      type: 'boolean',
      default: false,
      describe: 'generate again whenever a source file changes, until Ctrl-C',
    })
    .option('accept', {
      type: 'string',
      array: true,
      requiresArg: true,
      describe: 'a task type whose payload change needs no upgrade; give --reason with it',
    })
    .option('reason', {
      type: 'string',
      array: true,
      requiresArg: true,
      describe: 'why it needs none; kept in the manifest',
    })
    .option('json', { type: 'boolean', default: false, describe: 'print the report as one JSON object' })
    .option('database-types', {
      type: 'boolean',
      default: true,
      describe: 'make db.ts, on a scratch database',
    })
    .option('scratch-database-url', {
      type: 'string',
      describe: 'a server for db.ts instead of the embedded one; a schema is made on it and dropped',
    });
  // yargs hands `database-types` over as `databaseTypes` too; its types know only the spelling that was declared.
  const withSettings = settingOptions(withOptions, [
    'definitions',
    'out',
    'runtime',
    'schema',
    'maxPayloadBytes',
  ]);
  // Several globs may follow one flag here, since no positional argument can be taken for one.
  return withSettings.array('definitions') as unknown as Argv<CodegenArguments>;
}

/** Generates, and again after each change. The table types do not depend on the definitions: once is enough. */
async function generateOnChange(argv: CodegenArguments): Promise<0 | 1 | 2 | 3> {
  const first = await generate(argv);
  if (first === 2) return first;
  const stop = stopSignal();
  const stopping = new AbortController();
  void stop.requested.then(() => stopping.abort());
  say('watching for changes, Ctrl-C ends it');
  const place = { cwd: process.cwd(), outDir: argv.out };
  await watchSources(place, stopping.signal, async () => {
    await generate({ ...argv, databaseTypes: false });
  });
  stop.forget();
  return 0;
}

async function generate(argv: CodegenArguments): Promise<0 | 1 | 2 | 3> {
  try {
    const report = await runCodegen(toOptions(argv));
    if (argv.json) print(JSON.stringify(report));
    else if (argv.check) printCheck(report);
    else if (report.problems.length === 0) printDone(report);
    for (const caution of report.cautions) say(`note: ${caution}`);
    if (report.problems.length === 0) return argv.check && !report.upToDate ? 1 : 0;
    for (const { message } of report.problems) say(message);
    if (!argv.check) say('nothing was written');
    return 1;
  } catch (error) {
    return fail(argv, error);
  }
}

function toOptions(argv: CodegenArguments): CodegenOptions {
  const { definitions = [], migrations, scratchDatabaseUrl } = argv;
  const accept = acceptRequests(argv);
  if (argv.watch && (argv.check || accept.length > 0)) {
    throw new TaskqError('OPTION_INVALID', '--watch writes by itself: give it without --check and --accept');
  }
  if (definitions.length === 0) {
    throw new TaskqError('CONFIG_INVALID', "no definitions: give --definitions 'src/tasks/**/*.ts'");
  }
  return {
    cwd: process.cwd(),
    definitions,
    outDir: argv.out,
    runtime: argv.runtime,
    schema: argv.schema,
    maxPayloadBytes: argv.maxPayloadBytes === PAYLOAD_BYTES_MAX_DEFAULT ? undefined : argv.maxPayloadBytes,
    check: argv.check,
    withDatabaseTypes: argv.databaseTypes,
    ...(accept.length === 0 ? {} : { accept }),
    ...(migrations === undefined ? {} : { migrationsDir: migrations }),
    ...(scratchDatabaseUrl === undefined ? {} : { scratchDatabaseUrl }),
    onProgress: say,
  };
}

/** One reason may stand for all the types; otherwise each has its own, in the same order. */
function acceptRequests({ accept = [], reason: reasons = [] }: CodegenArguments): AcceptRequest[] {
  const isPaired = reasons.length === accept.length || (reasons.length === 1 && accept.length > 0);
  if (!isPaired) {
    throw new TaskqError(
      'OPTION_INVALID',
      '--accept and --reason go together: a type, and why it needs no upgrade',
    );
  }
  return accept.map((type, at) => ({ type, reason: (reasons[at] ?? reasons[0]) as string }));
}

function printCheck(report: CodegenReport): void {
  if (report.upToDate) {
    if (report.problems.length > 0) return;
    print(`up to date: ${report.tasks.length} task types, ${report.files.length} files`);
    return;
  }
  for (const { diff } of report.files) if (diff !== '') print(diff);
  const drifted = report.files.filter(({ status }) => status === 'drifted').map((file) => file.path);
  print(`out of date: ${drifted.join(', ')}; run \`taskq codegen\` and commit the result`);
}

function printDone(report: CodegenReport): void {
  for (const { path: file, status } of report.files) print(`${status.padEnd(9)} ${file}`);
  for (const { type, revision, file } of report.tasks)
    print(`task type ${type}, revision ${revision}, ${file}`);
}

function fail(argv: CodegenArguments, error: unknown): 2 | 3 {
  const known = error instanceof TaskqError;
  const message = error instanceof Error ? error.message : String(error);
  const code = known ? error.code : 'UNEXPECTED';
  if (argv.json) print(JSON.stringify({ error: { code, message } }));
  say(`taskq codegen: ${message} [${code}]`);
  return known && MISUSE.includes(error.code) ? 2 : 3;
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

function say(message: string): void {
  process.stderr.write(`${message}\n`);
}
