import path from 'node:path';
import type { Config } from '../src/config.ts';
import { TaskqError } from '../src/domain/errors.ts';
import type { Logger } from '../src/domain/logger.ts';
import { type Connection, requireDatabase, unreachable } from './connect.ts';
import type { GlobalArguments } from './settings.ts';
import { loadCron } from './user-exports.ts';

/** What the admin API is served with. */
export const ADMIN_SETTINGS = [
  'adminPort',
  'adminHost',
  'adminToken',
  'adminReadToken',
  'cron',
] as const satisfies readonly (keyof Config)[];

export type AdminArguments = GlobalArguments & Connection & Pick<Config, (typeof ADMIN_SETTINGS)[number]>;

export interface AdminServing {
  readonly url: string;
  /** Logs in once, within a quarter of an hour. */
  loginUrl(): string;
  close(): Promise<void>;
}

/**
 * Serves the admin API and the dashboard.
 * @throws TaskqError `CONFIG_INVALID` without a token, or when the port cannot be had
 */
export async function serveAdmin(argv: AdminArguments, logger?: Logger): Promise<AdminServing> {
  const { adminToken, adminReadToken, readDatabaseUrl, schema, preparedStatements, cron } = argv;
  const database = requireDatabase(argv);
  if (adminToken === undefined && adminReadToken === undefined) {
    throw new TaskqError(
      'CONFIG_INVALID',
      'the admin API is closed without a token: set TASKQ_ADMIN_TOKEN (or TASKQ_ADMIN_READ_TOKEN, for looking only)',
    );
  }
  // Not loaded by the other commands: the web server is none of theirs.
  const { createAdmin } = await import('../src/admin/index.ts');
  const entries = cron === undefined ? undefined : await loadCron(path.resolve(argv.surroundings.cwd, cron));
  const admin = await createAdmin({
    database,
    ...(readDatabaseUrl === undefined ? {} : { readDatabase: readDatabaseUrl }),
    schema,
    preparedStatements,
    ...(adminToken === undefined ? {} : { token: adminToken }),
    ...(adminReadToken === undefined ? {} : { readToken: adminReadToken }),
    ...(entries === undefined ? {} : { cron: entries }),
    ...(logger === undefined ? {} : { logger }),
  }).catch((error: unknown) => {
    throw unreachable(database, error);
  });
  try {
    const { url } = await admin.listen({ port: argv.adminPort, host: argv.adminHost });
    return { url, loginUrl: () => new URL(admin.loginPath(), url).href, close: () => admin.close() };
  } catch (error) {
    await admin.close();
    throw error;
  }
}
