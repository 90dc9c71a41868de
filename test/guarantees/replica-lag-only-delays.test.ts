import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { administer, urlOf } from '../support/databases.ts';
import { test } from '../support/replica.ts';
import { type ReplicaPair, startReplicaPair } from '../support/replica-pair.ts';
import { allRows, wakeReplicas } from '../support/rows.ts';
import { migrateTemplate, TEST_SCHEMA } from '../support/schema.ts';
import { enqueue } from '../support/tasks.ts';

test('a read replica that lags only delays: what it does not show yet runs once it does', async ({
  startReplica,
}) => {
  await withPair(async (pair, db, databases) => {
    const { app, events } = await startReplica({ ...databases, pollInterval: 100, slots: 1 });
    await pair.pauseReplay();

    const { id } = await enqueue(db, 'plain', {});
    await events.first('wake_received');
    await events.next('discovered');
    expect(events.of('claimed')).toEqual([]);
    await pair.resumeReplay();

    // Its wake is spent: the poll finds it.
    expect(await events.first('settled')).toMatchObject({ outcome: 'success', task: { id, attempt: 1 } });
    await app.stop();
  });
});

test('what a lagging replica still shows is a hint only: a settled task does not run again', async ({
  startReplica,
}) => {
  await withPair(async (pair, db, databases) => {
    // Shown as waiting and due for as long as the replay is paused.
    await enqueue(db, 'plain', {});
    await pair.caughtUp();
    await pair.pauseReplay();

    const { app, events } = await startReplica({ ...databases, slots: 1 });
    await events.first('settled');
    await events.first('claim_empty');
    expect(await allRows(db)).toEqual([]);
    const looks = events.of('claim_empty').length;
    await wakeReplicas(db);
    await events.atLeast(looks + 1, 'claim_empty');

    expect(events.of('claimed')).toHaveLength(1);
    await app.stop();
  });
});

interface Databases {
  readonly database: string;
  readonly readDatabase: string;
}

async function withPair(run: (pair: ReplicaPair, db: Kysely<DB>, databases: Databases) => Promise<void>) {
  const pair = await startReplicaPair();
  const database = urlOf(pair.primary.url(), 'lag');
  const pool = new pg.Pool({ connectionString: database });
  pool.on('error', () => {});
  const db = new Kysely<DB>({ dialect: new PostgresDialect({ pool }) }).withSchema(TEST_SCHEMA);
  try {
    await administer(pair.primary.url(), 'create database lag');
    await migrateTemplate(database);
    await pair.caughtUp();
    await run(pair, db, { database, readDatabase: urlOf(pair.replica.url(), 'lag') });
  } finally {
    await db.destroy();
    await pair.stop();
  }
}
