import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';

export interface Backend {
  readonly pid: number;
  readonly state: string;
  readonly query: string;
}

/** The server processes behind connections of that `application_name` to the test's database. */
export async function backendsOf(db: Kysely<DB>, applicationName: string): Promise<Backend[]> {
  const { rows } = await sql<Backend>`
    select pid, state, query from pg_stat_activity
    where datname = current_database() and application_name = ${applicationName}`.execute(db);
  return rows;
}

/** `pg_terminate_backend`, as an administrator or a failover script does; resolves once they are gone. */
export async function terminate(
  db: Kysely<DB>,
  backends: readonly { readonly pid: number }[],
): Promise<void> {
  for (const { pid } of backends) await sql`select pg_terminate_backend(${pid}, 10000)`.execute(db);
}
