import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Argv, CommandModule } from 'yargs';
import type { Config } from '../../src/config.ts';
import { TaskqError } from '../../src/domain/errors.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/index.ts';
import { migrateUp } from '../../src/statements/migrate.ts';
import { print, say } from '../output.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';
import { stopSignal } from '../stop-signal.ts';

interface DevArguments extends Pick<Config, 'schema'> {
  data: string | undefined;
  ephemeral: boolean;
  port: number | undefined;
  json: boolean;
}

const DATA_FOLDER = path.join('.taskq', 'dev');
const PORT_MAX = 65_535;

/** `taskq dev`: a PostgreSQL of one's own with the queue's tables in it, until Ctrl-C. */
export const dev: CommandModule<GlobalArguments, GlobalArguments & DevArguments> = {
  command: 'dev',
  describe: 'run a PostgreSQL for development, with the tables of the queue in it',
  builder: devOptions,
  handler: async (argv) => {
    const port = argv.port === undefined ? {} : { port: checkPort(argv.port) };
    const dataDirectory = await dataDirectoryOf(argv);
    const stopping = stopSignal();
    try {
      const data = dataDirectory === undefined ? {} : { dataDirectory };
      const server = await startEmbeddedPostgres({ ...data, ...port, onProgress: say });
      try {
        await announce(server, argv, dataDirectory);
        await stopping.requested;
      } finally {
        await server.stop();
      }
    } finally {
      stopping.forget();
    }
  },
};

async function announce(
  server: EmbeddedPostgres,
  { schema, json }: DevArguments,
  dataDirectory: string | undefined,
): Promise<void> {
  const { version } = server;
  const url = server.url();
  await migrateUp(url, { schema, onProgress: say });
  print(json ? JSON.stringify({ url, schema, version, dataDirectory: dataDirectory ?? null }) : url);
  say(`PostgreSQL ${version}, schema ${schema}, ${kept(dataDirectory)}. Ctrl-C stops it.`);
}

function devOptions(yargs: Argv<GlobalArguments>): Argv<GlobalArguments & DevArguments> {
  const withOptions = yargs
    .option('data', {
      type: 'string',
      requiresArg: true,
      describe: `the folder of the data (${DATA_FOLDER})`,
    })
    .option('ephemeral', { type: 'boolean', default: false, describe: 'throw the data away at the end' })
    .option('port', {
      type: 'number',
      requiresArg: true,
      describe: 'listen on 127.0.0.1 too, not only on a socket',
    })
    .option('json', {
      type: 'boolean',
      default: false,
      describe: 'print one JSON object instead of the URL',
    });
  return settingOptions(withOptions, ['schema']) as unknown as Argv<GlobalArguments & DevArguments>;
}

async function dataDirectoryOf({ data, ephemeral, surroundings }: GlobalArguments & DevArguments) {
  if (ephemeral && data !== undefined)
    throw new TaskqError('OPTION_INVALID', '--data and --ephemeral: give one of them, not both');
  if (ephemeral) return undefined;
  if (data !== undefined) return path.resolve(surroundings.cwd, data);
  const folder = path.join(surroundings.cwd, DATA_FOLDER);
  // A whole cluster must not end up in somebody's commit.
  const ignore = path.join(path.dirname(folder), '.gitignore');
  await mkdir(folder, { recursive: true });
  if (!existsSync(ignore)) await writeFile(ignore, '*\n');
  return folder;
}

function checkPort(port: number): number {
  if (Number.isInteger(port) && port >= 1 && port <= PORT_MAX) return port;
  throw new TaskqError('OPTION_INVALID', `--port: expected a whole number from 1 to ${PORT_MAX}`);
}

function kept(dataDirectory: string | undefined): string {
  return dataDirectory === undefined ? 'data thrown away at the end' : `data kept in ${dataDirectory}`;
}
