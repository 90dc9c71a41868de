import { type Kysely, sql } from 'kysely';
import { expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { createApp } from '../../src/index.ts';
import { EventLog, test } from '../support/replica.ts';
import { handlersFor } from '../support/tasks.ts';
import type { TestDatabase } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

test('start and stop are idempotent, also when called at the same time', async ({ database, db }) => {
  const { app, events } = makeApp(database);

  await Promise.all([app.start(), app.start()]);
  await app.start();
  expect(events.of('started')).toHaveLength(1);
  expect(app.status()).toMatchObject({ slots: 4 });

  await Promise.all([app.stop(), app.stop()]);
  await app.stop();
  expect(events.of('stopped')).toHaveLength(1);
  await waitFor(async () => (await sessions(db)) === 0, { what: 'every connection to be closed' });
});

test('a stop before the start opens nothing, and the app stays stopped', async ({ database, db }) => {
  const { app, events } = makeApp(database);

  await app.stop();

  expect(events.all).toEqual([]);
  await expect(app.start()).rejects.toMatchObject({ code: 'SHUTDOWN' });
  expect(await sessions(db)).toBe(0);
});

test('a stop while the start is under way leaves nothing running', async ({ database, db }) => {
  const { app, events } = makeApp(database);

  const starting = app.start();
  await app.stop();
  await starting;

  expect(events.all.at(-1)).toEqual({ kind: 'stopped' });
  await waitFor(async () => (await sessions(db)) === 0, { what: 'every connection to be closed' });
});

test('a start that fails leaves nothing open', async ({ database, db }) => {
  await sql`drop schema taskq cascade`.execute(db);
  const { app, events } = makeApp(database);

  await expect(app.start()).rejects.toMatchObject({ code: 'SCHEMA_BEHIND' });

  expect(events.all).toEqual([]);
  await waitFor(async () => (await sessions(db)) === 0, { what: 'every connection to be closed' });
  await app.stop();
});

function makeApp(database: TestDatabase) {
  const events = new EventLog();
  const app = createApp({ database: database.url, handlers: handlersFor(), observer: events.observe });
  return { app, events };
}

async function sessions(db: Kysely<DB>): Promise<number> {
  const { rows } = await sql`
    select 1 from pg_stat_activity
    where datname = current_database() and application_name like 'taskq%'`.execute(db);
  return rows.length;
}
