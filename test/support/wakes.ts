import pg from 'pg';
import { onTestFinished } from 'vitest';
import { wakeChannel } from '../../src/statements/wake-channel.ts';
import type { TestDatabase } from './databases.ts';
import { TEST_SCHEMA } from './schema.ts';

export interface HeardWakes {
  /** How many notifications have been committed since the last call, or since listening began. */
  count(): Promise<number>;
}

/** Listens beside the product, on a connection of the test's own. */
export async function hearWakes(database: TestDatabase): Promise<HeardWakes> {
  const channel = wakeChannel(TEST_SCHEMA);
  const client = new pg.Client(database.connection);
  client.on('error', () => {});
  await client.connect();
  onTestFinished(() => client.end().catch(() => {}));
  let heard: string[] = [];
  let onMarker = (): void => {};
  client.on('notification', ({ payload = '' }) => {
    if (payload === 'marker') onMarker();
    else heard.push(payload);
  });
  await client.query(`listen ${pg.escapeIdentifier(channel)}`);
  return {
    // Notifications arrive in the order of their commits, so whatever was committed has come before the marker.
    async count() {
      const marked = new Promise<void>((resolve) => {
        onMarker = resolve;
      });
      await client.query(`select pg_notify($1, 'marker')`, [channel]);
      await marked;
      const { length } = heard;
      heard = [];
      return length;
    },
  };
}
