import { type Health, healthOf } from '../domain/health.ts';
import { type ConnectionSettings, connectionKey, openLanes } from '../postgres/lanes.ts';
import { checkSchema } from '../statements/schema-check.ts';
import { createMetrics } from './metrics.ts';
import { type MetricsServer, startMetricsServer } from './server.ts';

export interface ExporterOptions {
  /** The primary. */
  readonly database: ConnectionSettings;
  /** Where the gauges are read; the primary by default. It may lag. */
  readonly readDatabase?: ConnectionSettings;
  readonly schema: string;
  readonly preparedStatements: boolean;
  readonly port: number;
  readonly host: string;
}

/** One for the gauges, one for the readiness beside it. */
const POOL_MAX = 2;

/**
 * Serves the gauges of a database without running a task: what the processes count themselves is not there.
 * @throws TaskqError `SCHEMA_BEHIND`, `SCHEMA_AHEAD`, `PRIVILEGE_MISSING`, `CONFIG_INVALID`; database errors as they are
 */
export async function startExporter(options: ExporterOptions): Promise<MetricsServer> {
  const { database, readDatabase, schema, preparedStatements, port, host } = options;
  const lanes = openLanes({
    database,
    readDatabase,
    schema,
    preparedStatements,
    poolMax: POOL_MAX,
    applicationName: 'taskq metrics',
  });
  try {
    await checkSchema(lanes.write.executor, schema);
    const metrics = createMetrics();
    const replica = metrics.replica({ types: [], entries: [], listens: false });
    replica.begin({ lane: lanes.read, database: connectionKey(readDatabase ?? database, schema) }, undefined);
    const health = async (): Promise<Health> =>
      healthOf((await replica.isDatabaseUp()) ? [] : ['database_down']);
    const server = await startMetricsServer({ metrics, apps: [{ health }], port, host });
    return {
      url: server.url,
      async close() {
        await server.close();
        replica.end();
        await lanes.close();
      },
    };
  } catch (error) {
    await lanes.close();
    throw error;
  }
}
