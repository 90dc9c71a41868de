import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { CONNECT_TIMEOUT_MS, STATEMENT_TIMEOUT_MS } from '../domain/limits.ts';
import { type ReadLane, readLane, type WriteLane, writeLane } from '../statements/lanes.ts';
import { PlainClient, PreparedClient } from './client.ts';

/** How to reach a database: a URL, or pg's own connection settings. */
export type ConnectionSettings = string | pg.ClientConfig;

export interface LaneSettings {
  readonly database: ConnectionSettings;
  /** A read replica for discovery and gauges; the primary when undefined. */
  readonly readDatabase: ConnectionSettings | undefined;
  readonly schema: string;
  /** Connections of each lane at the most. Settlements share statements, so a few serve many slots. */
  readonly poolMax: number;
  /** Off behind PgBouncer below 1.21, which cannot carry prepared statements in transaction mode. */
  readonly preparedStatements: boolean;
  /** Shown in pg_stat_activity. */
  readonly applicationName: string;
}

export interface Lanes {
  readonly read: ReadLane;
  readonly write: WriteLane;
  close(): Promise<void>;
}

/**
 * Opens the queue's own connections, lazily. They are apart from the application's, so that handlers which
 * hold every connection of theirs cannot keep a settlement waiting.
 */
export function openLanes(settings: LaneSettings): Lanes {
  const { schema } = settings;
  const primary = openKysely(settings, settings.database);
  const replica =
    settings.readDatabase === undefined ? undefined : openKysely(settings, settings.readDatabase);
  return {
    read: readLane(replica ?? primary, schema),
    write: writeLane(primary, schema),
    close: async () => {
      await Promise.all([primary.destroy(), replica?.destroy()]);
    },
  };
}

function openKysely(settings: LaneSettings, database: ConnectionSettings): Kysely<unknown> {
  const pool = new pg.Pool({
    ...connectionConfig(database),
    Client: settings.preparedStatements ? PreparedClient : PlainClient,
    max: settings.poolMax,
    application_name: settings.applicationName,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    query_timeout: STATEMENT_TIMEOUT_MS,
    keepAlive: true,
    // The process ends when its work does, not when the pool's last idle connection times out.
    allowExitOnIdle: true,
  });
  pool.on('error', () => {
    // An idle connection was lost. The pool has dropped it already, and the next statement opens another.
  });
  return new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) });
}

/** The same for connections to the same tables, however they are written. */
export function connectionKey(database: ConnectionSettings, schema: string): string {
  // A client that is never connected: it completes what a URL or the settings leave out, as a connection would.
  const { host, port, database: name, user } = new pg.Client(connectionConfig(database));
  return JSON.stringify([host, port, name, user, schema]);
}

export function connectionConfig(database: ConnectionSettings): pg.ClientConfig {
  return typeof database === 'string' ? { connectionString: database } : database;
}
