import { userInfo } from 'node:os';
import { type Config, describeDatabase } from '../src/config.ts';
import { TaskqError } from '../src/domain/errors.ts';
import { describeThrown } from '../src/domain/thrown.ts';
import { type Operator, openOperator } from '../src/operator.ts';

/** The settings that a command needs to reach the queue. */
export const CONNECTION_SETTINGS = [
  'databaseUrl',
  'readDatabaseUrl',
  'schema',
  'preparedStatements',
  'actor',
] as const satisfies readonly (keyof Config)[];

export type Connection = Pick<Config, (typeof CONNECTION_SETTINGS)[number]>;

/** Opens the lanes for one command, and closes them whatever becomes of it. */
export async function withOperator<Answer>(
  connection: Connection,
  use: (operator: Operator) => Promise<Answer>,
): Promise<Answer> {
  const database = requireDatabase(connection);
  const { readDatabaseUrl, schema, preparedStatements, actor = userOfSystem() } = connection;
  const operator = await openOperator({
    database,
    schema,
    preparedStatements,
    actor,
    ...(readDatabaseUrl === undefined ? {} : { readDatabase: readDatabaseUrl }),
  }).catch((error: unknown) => {
    throw unreachable(database, error);
  });
  try {
    return await use(operator);
  } finally {
    await operator.close();
  }
}

function userOfSystem(): string {
  try {
    return `cli:${userInfo().username}`;
  } catch {
    // A container may run under a number that no user has.
    return `cli:${process.getuid?.() ?? 'unknown'}`;
  }
}

/** @throws TaskqError `CONFIG_INVALID` when there is none */
export function requireDatabase({ databaseUrl }: Pick<Config, 'databaseUrl'>): string {
  if (databaseUrl !== undefined) return databaseUrl;
  throw new TaskqError(
    'CONFIG_INVALID',
    'no database: set DATABASE_URL, give --database-url, or write databaseUrl into taskq.config.ts',
  );
}

/** A connection's own error says neither which database nor, for two addresses, anything at all. */
export function unreachable(database: string, error: unknown): unknown {
  return error instanceof TaskqError ? error : new DatabaseError(database, error);
}

class DatabaseError extends Error {
  readonly code: string;

  constructor(database: string, cause: unknown) {
    super(`database ${describeDatabase(database)}: ${describeThrown(cause).message}`);
    if (cause instanceof Error && cause.stack !== undefined) this.stack = cause.stack;
    const code = typeof cause === 'object' && cause !== null && 'code' in cause ? cause.code : undefined;
    this.code = typeof code === 'string' ? code : 'DATABASE';
  }
}
