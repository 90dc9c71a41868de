import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { onTestFinished } from 'vitest';

/**
 * The application's own connections, apart from the queue's, with the two error listeners that pg asks of whoever
 * opens a pool: without them the end of a server's backend ends the process. Closed when the test is over.
 */
export function openApplicationPool(settings: pg.PoolConfig): Kysely<unknown> {
  const pool = new pg.Pool(settings);
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  const application = new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) });
  onTestFinished(() => application.destroy());
  return application;
}
