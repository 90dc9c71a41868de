import type { Argv, CommandModule } from 'yargs';
import type { Config } from '../../src/config.ts';
import { METRICS_PORT_DEFAULT } from '../../src/domain/limits.ts';
import { CONNECTION_SETTINGS, type Connection, requireDatabase, unreachable } from '../connect.ts';
import { print } from '../output.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';
import { stopSignal } from '../stop-signal.ts';

const EXPORTER_SETTINGS = [
  ...CONNECTION_SETTINGS,
  'metricsPort',
  'metricsHost',
] as const satisfies readonly (keyof Config)[];

type ExporterArguments = Connection & Pick<Config, 'metricsPort' | 'metricsHost'>;

/** `taskq metrics`: serves the gauges of the database for Prometheus, and runs no task, until SIGTERM or Ctrl-C. */
export const metrics: CommandModule<GlobalArguments, GlobalArguments & ExporterArguments> = {
  command: 'metrics',
  describe: 'serve the gauges of the database for Prometheus',
  builder: (yargs: Argv<GlobalArguments>) =>
    settingOptions(yargs, EXPORTER_SETTINGS) as unknown as Argv<GlobalArguments & ExporterArguments>,
  handler: async (argv) => {
    const { readDatabaseUrl, schema, preparedStatements, metricsPort, metricsHost } = argv;
    const database = requireDatabase(argv);
    const stopping = stopSignal();
    // Not loaded by the other commands: prom-client takes as long as all the rest of the program.
    const { startExporter } = await import('../../src/metrics/exporter.ts');
    const server = await startExporter({
      database,
      ...(readDatabaseUrl === undefined ? {} : { readDatabase: readDatabaseUrl }),
      schema,
      preparedStatements,
      port: metricsPort ?? METRICS_PORT_DEFAULT,
      host: metricsHost,
    }).catch((error: unknown) => {
      stopping.forget();
      throw unreachable(database, error);
    });
    print(`serving ${server.url}/metrics`);
    await stopping.requested;
    await server.close();
  },
};
