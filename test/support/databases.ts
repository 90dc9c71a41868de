import { randomBytes } from 'node:crypto';
import pg from 'pg';

/** Every database of the tests starts with this; what is left at the end of a run was kept. */
export const DATABASE_PREFIX = 'taskq_test_';

const NAME_LENGTH_MAX = 63;

export interface TestDatabase {
  readonly name: string;
  readonly url: string;
  readonly connection: Connection;
}

export interface Connection {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password?: string;
  readonly database: string;
}

/** `postgres://…` of another database on the same server. */
export function urlOf(serverUrl: string, database: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${encodeURIComponent(database)}`;
  return url.href;
}

/** What `pg` makes of a URL, piece by piece, so that a test can put a proxy in front of it. */
export function connectionOf(url: string): Connection {
  const { host, port, user, password, database } = new pg.Client({ connectionString: url });
  const known = { host, port, user: user ?? 'postgres', database: database ?? 'postgres' };
  return password ? { ...known, password } : known;
}

/** `'A claim leases one row'` → `taskq_test_a_claim_leases_one_row_3f9c01ab`. */
export function databaseName(title: string): string {
  const suffix = `_${randomBytes(4).toString('hex')}`;
  const words = title.toLowerCase().replaceAll(/[^a-z0-9]+/g, '_');
  return DATABASE_PREFIX + words.slice(0, NAME_LENGTH_MAX - DATABASE_PREFIX.length - suffix.length) + suffix;
}

/** Runs statements that belong to no test database, such as CREATE DATABASE. */
export async function administer(serverUrl: string, ...statements: string[]): Promise<pg.QueryResult> {
  const client = new pg.Client({ connectionString: serverUrl });
  client.on('error', () => {});
  await client.connect();
  try {
    let result: pg.QueryResult | undefined;
    for (const statement of statements) result = await client.query(statement);
    return result as pg.QueryResult;
  } finally {
    await client.end();
  }
}
