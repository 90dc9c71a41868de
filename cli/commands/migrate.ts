import type { Argv, CommandModule } from 'yargs';
import { durationMs } from '../../src/domain/duration.ts';
import { type ErrorCode, TaskqError } from '../../src/domain/errors.ts';
import {
  type DownOptions,
  type MigrateOptions,
  type MigrationReport,
  migrateDown,
  migrateUp,
  migrationStatus,
  plannedSql,
} from '../../src/statements/migrate.ts';
import type { MigrationStatus } from '../../src/statements/schema-check.ts';
import { settingOptions } from '../settings.ts';

const ACTIONS = ['up', 'down', 'status'] as const;
type Action = (typeof ACTIONS)[number];

interface MigrateArguments {
  action: Action;
  databaseUrl: string | undefined;
  schema: string;
  dryRun: boolean;
  json: boolean;
  yes: boolean;
  to: string | undefined;
  steps: number | undefined;
  lockTimeout: string | undefined;
}

/** Mistakes of whoever typed the command, as against failures of the run. */
const MISUSE: readonly ErrorCode[] = ['CONFIG_INVALID', 'OPTION_INVALID', 'DURATION_INVALID'];

/** `taskq migrate up|down|status`: result on stdout, progress and errors on stderr; exit code 0 done, 1 failed, 2 misuse. */
export const migrate: CommandModule<object, MigrateArguments> = {
  command: 'migrate <action>',
  describe: 'create or change the tables of the queue, or show where they stand',
  builder: migrateOptions,
  handler: async (argv) => {
    process.exitCode = await runMigrate(argv);
  },
};

function migrateOptions(yargs: Argv<object>): Argv<MigrateArguments> {
  const withOptions = yargs
    .positional('action', { choices: ACTIONS, demandOption: true, describe: 'what to do' })
    .option('dry-run', { type: 'boolean', default: false, describe: 'print the SQL that would run' })
    .option('json', { type: 'boolean', default: false, describe: 'print the result as one JSON object' })
    .option('yes', { type: 'boolean', default: false, describe: 'down: agree that data is dropped' })
    .option('to', { type: 'string', describe: "down: the migration to stop at, which stays; 'none' for all" })
    .option('steps', { type: 'number', describe: 'down: how many to undo (1)' })
    .option('lock-timeout', { type: 'string', describe: 'the longest wait for a lock on a table (5s)' });
  // yargs hands `dry-run` over as `dryRun` too; its types know only the spelling that was declared.
  return settingOptions(withOptions, ['databaseUrl', 'schema']) as unknown as Argv<MigrateArguments>;
}

async function runMigrate(argv: MigrateArguments): Promise<0 | 1 | 2> {
  try {
    if (argv.databaseUrl === undefined || argv.databaseUrl === '') {
      throw new TaskqError('CONFIG_INVALID', 'no database: give --database-url or set DATABASE_URL');
    }
    if (argv.action === 'down' && !argv.yes && !argv.dryRun) {
      throw new TaskqError(
        'OPTION_INVALID',
        'migrate down drops tables and the tasks in them; add --yes to do it, or --dry-run to see it',
      );
    }
    if (argv.action !== 'down' && (argv.to !== undefined || argv.steps !== undefined)) {
      throw new TaskqError('OPTION_INVALID', '--to and --steps belong to migrate down');
    }
    await perform(argv, argv.databaseUrl);
    return 0;
  } catch (error) {
    return report(argv, error);
  }
}

async function perform(argv: MigrateArguments, databaseUrl: string): Promise<void> {
  const options: MigrateOptions & DownOptions = {
    schema: argv.schema,
    onProgress: say,
    ...(argv.to === undefined ? {} : { to: argv.to }),
    ...(argv.steps === undefined ? {} : { steps: argv.steps }),
    ...(argv.lockTimeout === undefined
      ? {}
      : { lockTimeoutMs: durationMs(argv.lockTimeout, '--lock-timeout', { minMs: 1, maxMs: 3_600_000 }) }),
  };
  if (argv.action === 'status') {
    const status = await migrationStatus(databaseUrl, options);
    print(argv, status, statusLines(status));
  } else if (argv.dryRun) {
    const planned = await plannedSql(databaseUrl, { ...options, direction: argv.action });
    print(argv, planned, planned.sql === '' ? '-- nothing to do' : planned.sql.trimEnd());
  } else if (argv.action === 'up') {
    const done = await migrateUp(databaseUrl, options);
    print(argv, done, summary(done, 'applied'));
  } else {
    const done = await migrateDown(databaseUrl, options);
    print(argv, done, summary(done, 'undid'));
  }
}

function report(argv: MigrateArguments, error: unknown): 1 | 2 {
  const known = error instanceof TaskqError;
  const message = error instanceof Error ? error.message : String(error);
  const code = known ? error.code : 'UNEXPECTED';
  if (argv.json) process.stdout.write(`${JSON.stringify({ error: { code, message } })}\n`);
  say(`taskq migrate ${argv.action}: ${message} [${code}]`);
  return known && MISUSE.includes(error.code) ? 2 : 1;
}

function print(argv: MigrateArguments, value: object, text: string): void {
  process.stdout.write(`${argv.json ? JSON.stringify(value) : text}\n`);
}

function say(message: string): void {
  process.stderr.write(`${message}\n`);
}

function summary(done: MigrationReport, verb: 'applied' | 'undid'): string {
  if (done.ran.length > 0) return `schema ${done.schema}: ${verb} ${done.ran.join(', ')}`;
  const ahead = done.ahead.length > 0 ? `; ${done.ahead.length} applied by a newer version` : '';
  return verb === 'applied'
    ? `schema ${done.schema}: up to date${ahead}`
    : `schema ${done.schema}: nothing to undo${ahead}`;
}

function statusLines(status: MigrationStatus): string {
  const lines = [
    ...status.applied.filter((name) => !status.ahead.includes(name)).map((name) => `applied  ${name}`),
    ...status.ahead.map((name) => `ahead    ${name} (applied by a newer version)`),
    ...status.pending.map((name) => `pending  ${name}`),
  ];
  return [`schema ${status.schema}`, ...lines].join('\n');
}
