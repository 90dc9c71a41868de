import path from 'node:path';
import type { Argv, CommandModule } from 'yargs';
import { type App, createApp, type Role } from '../../src/app.ts';
import type { Config } from '../../src/config.ts';
import { TaskqError } from '../../src/domain/errors.ts';
import { EXIT_WAIT_MS, SHUTDOWN_ABORT_WAIT_MS, STATEMENT_TIMEOUT_MS } from '../../src/domain/limits.ts';
import type { Logger } from '../../src/domain/logger.ts';
import type { HandlerRegistry } from '../../src/index.ts';
import { ADMIN_SETTINGS, serveAdmin } from '../admin-serving.ts';
import { CONNECTION_SETTINGS, type Connection, requireDatabase, unreachable } from '../connect.ts';
import { messageOf, stackOf } from '../failure.ts';
import { type GlobalArguments, settingOptions } from '../settings.ts';
import { stopSignal } from '../stop-signal.ts';
import { loadCron, loadHandlers } from '../user-exports.ts';
import { workerLog } from '../worker-log.ts';

const WORKER_SETTINGS = [
  ...CONNECTION_SETTINGS,
  'listenDatabaseUrl',
  'concurrency',
  'queues',
  'strictQueues',
  'roles',
  'shutdownGrace',
  'retention',
  'leaseMargin',
  'pollInterval',
  'poolMax',
  'logLevel',
  'metricsPort',
  'metricsHost',
  'handlers',
  ...ADMIN_SETTINGS,
] as const satisfies readonly (keyof Config)[];

type WorkArguments = Connection & Pick<Config, (typeof WORKER_SETTINGS)[number]>;

/**
 * `taskq work [handlers]`: a worker process. The first SIGTERM or SIGINT stops it gracefully (exit code 0), a second
 * one at once. What nobody caught stops it gracefully too: leases are released, exit code 1.
 */
export const work: CommandModule<GlobalArguments, GlobalArguments & WorkArguments> = {
  command: 'work [handlers]',
  describe: 'run tasks until SIGTERM or Ctrl-C',
  builder: (yargs: Argv<GlobalArguments>) =>
    settingOptions(
      yargs.positional('handlers', { type: 'string', describe: 'the module that exports the handlers' }),
      WORKER_SETTINGS,
    ) as unknown as Argv<GlobalArguments & WorkArguments>,
  handler: async (argv) => {
    const { roles, hasAdmin } = splitRoles(argv.roles);
    if (roles.length === 0) return serveAdminAlone(argv);
    const database = requireDatabase(argv);
    const handlers = await loadHandlers(handlersFile(argv));
    const logger = workerLog(argv.logLevel);
    const serving = await metricsServing(argv);
    const app = createApp({
      ...toAppOptions(argv, database, handlers, logger),
      roles,
      ...(await cronOption(argv)),
      ...(serving === undefined ? {} : { metrics: serving.metrics }),
    });
    const admin = hasAdmin ? await serveAdmin(argv, logger) : undefined;
    if (admin !== undefined) logger.info({ event: 'admin_served', url: admin.url }, 'serving the admin API');
    // Before the start, which may take a while: until then it is alive, and not ready.
    const server = await serving?.start(app);
    if (server !== undefined) logger.info({ event: 'metrics_served', url: server.url }, 'serving metrics');
    await runUntilStopped(app, logger, argv, database);
    await Promise.all([server?.close(), admin?.close()]);
  },
};

/** The admin API is no part of a replica: it is served beside it. */
function splitRoles(all: WorkArguments['roles']): { roles: readonly Role[]; hasAdmin: boolean } {
  const roles: readonly (Role | 'admin')[] = all;
  return {
    roles: roles.filter((role) => role !== 'admin'),
    hasAdmin: roles.includes('admin'),
  };
}

async function serveAdminAlone(argv: GlobalArguments & WorkArguments): Promise<void> {
  const stopping = stopSignal();
  const logger = workerLog(argv.logLevel);
  const admin = await serveAdmin(argv, logger).catch((error: unknown) => {
    stopping.forget();
    throw error;
  });
  logger.info({ event: 'admin_served', url: admin.url }, 'serving the admin API');
  await stopping.requested;
  await admin.close();
}

function handlersFile({ handlers, surroundings }: GlobalArguments & WorkArguments): string {
  if (handlers !== undefined) return path.resolve(surroundings.cwd, handlers);
  throw new TaskqError(
    'CONFIG_INVALID',
    'no handlers: name the module, as in `taskq work src/handlers.ts`, or write handlers into taskq.config.ts',
  );
}

/** Not loaded where it is not used: its module may need what only those replicas have that tick. */
async function cronOption({ cron, roles, surroundings }: GlobalArguments & WorkArguments) {
  if (cron === undefined || !roles.includes('cron')) return {};
  return { cron: await loadCron(path.resolve(surroundings.cwd, cron)) };
}

/** Undefined without a port; nothing of it is loaded then. */
async function metricsServing({ metricsPort: port, metricsHost: host }: WorkArguments) {
  if (port === undefined) return undefined;
  const { createMetrics, startMetricsServer } = await import('../../src/metrics/index.ts');
  const metrics = createMetrics();
  return { metrics, start: (app: App) => startMetricsServer({ metrics, apps: [app], port, host }) };
}

function toAppOptions(argv: WorkArguments, database: string, handlers: HandlerRegistry, logger: Logger) {
  const { readDatabaseUrl, listenDatabaseUrl, queues } = argv;
  return {
    database,
    ...(readDatabaseUrl === undefined ? {} : { readDatabase: readDatabaseUrl }),
    ...(listenDatabaseUrl === undefined ? {} : { listenDatabase: listenDatabaseUrl }),
    ...(queues === undefined ? {} : { queues }),
    schema: argv.schema,
    handlers,
    strictQueues: argv.strictQueues,
    slots: argv.concurrency,
    shutdownGrace: argv.shutdownGrace,
    retention: argv.retention,
    leaseMargin: argv.leaseMargin,
    pollInterval: argv.pollInterval,
    poolMax: argv.poolMax,
    preparedStatements: argv.preparedStatements,
    logger,
  };
}

async function runUntilStopped(
  app: App,
  logger: Logger,
  { shutdownGrace }: WorkArguments,
  database: string,
): Promise<void> {
  const stopping = stopSignal();
  const uncaught = firstUncaught(logger);
  try {
    await app.start();
  } catch (error) {
    stopping.forget();
    exitSoon(1, EXIT_WAIT_MS);
    throw unreachable(database, error);
  }
  const exitCode = await Promise.race([stopping.requested.then(() => 0), uncaught.then(() => 1)]);
  // A settlement may wait for a database that went silent; beyond its time-out there is nothing to wait for.
  exitSoon(1, shutdownGrace + SHUTDOWN_ABORT_WAIT_MS + STATEMENT_TIMEOUT_MS + EXIT_WAIT_MS);
  await app.stop();
  process.exitCode = exitCode;
  exitSoon(exitCode, EXIT_WAIT_MS);
}

/** Resolves when something was thrown or rejected that nobody caught. All of it is logged. */
function firstUncaught(logger: Logger): Promise<void> {
  return new Promise((resolve) => {
    for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
      process.on(event, (error: unknown) => {
        const fields = {
          event: event === 'uncaughtException' ? 'uncaught_exception' : 'unhandled_rejection',
        };
        logger.error(
          { ...fields, error: messageOf(error), stack: stackOf(error) },
          'nobody caught this; the worker stops',
        );
        resolve();
      });
    }
  });
}

/** Ends the process then, if it has not ended by itself: a pool of the user's may hold it open for ever. */
function exitSoon(exitCode: number, ms: number): void {
  setTimeout(() => process.exit(exitCode), ms).unref();
}
