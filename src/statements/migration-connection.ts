import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type QueryResult,
} from 'kysely';
import pg from 'pg';
import { TaskqError } from '../domain/errors.ts';
import { CONNECT_TIMEOUT_MS } from '../domain/limits.ts';

// kysely's Migrator locks at session level, with one key for every schema, and outside its own transaction.
// Behind PgBouncer the unlock reaches another server connection and the lock stays for ever. So it gets a
// dialect that neither locks nor begins: the caller has done both, in one transaction of this one connection.

/** A database without a type: migrations run before its tables exist. */
// biome-ignore lint/suspicious/noExplicitAny: see above.
export type UntypedDatabase = Kysely<any>;

/**
 * Opens the one connection of a migration.
 * @throws TaskqError `MIGRATION_FAILED` when the server cannot be reached or refuses the login
 */
export async function openConnection(connection: string | pg.ClientConfig): Promise<pg.Client> {
  const config = typeof connection === 'string' ? { connectionString: connection } : connection;
  let client: pg.Client;
  try {
    client = new pg.Client({
      application_name: 'taskq migrate',
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      keepAlive: true,
      ...config,
    });
  } catch {
    // The parser's own error carries the URL, and with it the password.
    throw new TaskqError('MIGRATION_FAILED', 'the database URL is not usable');
  }
  // Without a listener, a connection that breaks between two statements ends the process;
  // with it, the next statement reports the loss.
  client.on('error', () => {});
  try {
    await client.connect();
  } catch (cause) {
    await client.end().catch(() => {});
    throw new TaskqError('MIGRATION_FAILED', `cannot connect to the database: ${connectProblem(cause)}`, {
      cause,
    });
  }
  return client;
}

/** `localhost` is two addresses, and the error of both failing has no text of its own. */
function connectProblem(cause: unknown): string {
  if (cause instanceof AggregateError) return cause.errors.map(connectProblem).join('; ');
  return cause instanceof Error ? cause.message : String(cause);
}

/** Kysely over the connection as it stands, in whatever transaction it is. */
export function databaseOver(client: pg.Client): UntypedDatabase & { firstError(): unknown } {
  let firstError: unknown;
  const db = databaseOf(async (query) => {
    try {
      const { rows } = await client.query(query.sql, [...query.parameters]);
      // Several statements sent as one text answer with an array of results, which has no rows.
      return { rows: rows ?? [] };
    } catch (error) {
      firstError ??= error;
      throw error;
    }
  });
  // The Migrator looks again after a failure; in a transaction that is aborted by then,
  // the second error would hide the first, which is the one that explains.
  return Object.assign(db, { firstError: () => firstError });
}

/**
 * Kysely that reads from the connection and writes down everything else instead of sending it.
 * A table that is only written down so far reads as empty.
 */
export function rehearsalOver(client: pg.Client, written: string[]): UntypedDatabase {
  return databaseOf(async (query) => {
    if (query.query.kind !== 'SelectQueryNode') {
      written.push(withLiterals(query));
      return { rows: [] };
    }
    try {
      const { rows } = await client.query(query.sql, [...query.parameters]);
      return { rows };
    } catch (error) {
      if (error instanceof pg.DatabaseError && error.code === '42P01') return { rows: [] };
      throw error;
    }
  });
}

/** The text of a query with its parameters in place; only names and times are bound here. */
function withLiterals({ sql, parameters }: CompiledQuery): string {
  if (parameters.length === 0) return sql.trim();
  // A quoted name is passed over as a whole: a schema may be called "$1".
  return sql.replaceAll(/"(?:[^"]|"")*"|\$(\d+)/g, (found, place: string | undefined) => {
    if (place === undefined) return found;
    const value = parameters[Number(place) - 1];
    return typeof value === 'number' ? String(value) : pg.escapeLiteral(String(value));
  });
}

type Execute = (query: CompiledQuery) => Promise<{ rows: unknown[] }>;

function databaseOf(execute: Execute): UntypedDatabase {
  const connection: DatabaseConnection = {
    executeQuery: <Row>(query: CompiledQuery) => execute(query) as Promise<QueryResult<Row>>,
    streamQuery: () => {
      throw new Error('a migration does not stream');
    },
  };
  const dialect: Dialect = {
    createAdapter: () => new UnlockedAdapter(),
    createDriver: () => new OneConnectionDriver(connection),
    createIntrospector: (db) => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  };
  return new Kysely({ dialect });
}

class UnlockedAdapter extends PostgresAdapter {
  /** Keeps the Migrator from beginning a transaction of its own inside ours. */
  override get supportsTransactionalDdl(): boolean {
    return false;
  }
  override async acquireMigrationLock(): Promise<void> {}
  override async releaseMigrationLock(): Promise<void> {}
}

class OneConnectionDriver implements Driver {
  readonly #connection: DatabaseConnection;
  constructor(connection: DatabaseConnection) {
    this.#connection = connection;
  }
  async init(): Promise<void> {}
  async acquireConnection(): Promise<DatabaseConnection> {
    return this.#connection;
  }
  async releaseConnection(): Promise<void> {}
  async destroy(): Promise<void> {}
  async beginTransaction(): Promise<void> {
    throw new Error('the transaction of a migration is already open');
  }
  async commitTransaction(): Promise<void> {
    throw new Error('the transaction of a migration ends elsewhere');
  }
  async rollbackTransaction(): Promise<void> {
    throw new Error('the transaction of a migration ends elsewhere');
  }
}
