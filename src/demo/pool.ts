import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import type { ConnectionSettings } from '../index.ts';

/** A database by a pool of up to `connectionsMax` connections, which carry the name given. */
export function openDatabase<Tables>(
  connection: ConnectionSettings,
  connectionsMax: number,
  name: string,
): Kysely<Tables> {
  const settings = typeof connection === 'string' ? { connectionString: connection } : connection;
  const pool = openPool({ ...settings, max: connectionsMax, application_name: name });
  return new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) });
}

/** A pool whose connections may end at any time, also while the pool itself closes, without ending the process. */
function openPool(config: pg.PoolConfig): pg.Pool {
  const pool = new pg.Pool(config);
  // Whoever uses a connection hears of its end as a failed query; these are for those that nobody uses.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  return pool;
}
