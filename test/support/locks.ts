import pg from 'pg';
import { waitFor } from './wait.ts';

/**
 * Resolves once `count` sessions of the database wait for a lock.
 * Asks on a connection of its own: inside a transaction `pg_stat_activity` stands still after the first look.
 */
export async function waitUntilBlocked(url: string, count = 1): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    await waitFor(
      async () => {
        const { rows } = await client.query(
          `SELECT count(*)::int AS waiting FROM pg_stat_activity
           WHERE datname = current_database() AND wait_event_type = 'Lock'`,
        );
        return rows[0].waiting >= count;
      },
      { what: `${count} session(s) to wait for a lock` },
    );
  } finally {
    await client.end();
  }
}
