import pg from 'pg';
import { z } from 'zod';
import { createEnqueuer, createRegistry, defineTask } from '../../src/index.ts';
import { migrateUp } from '../../src/statements/migrate.ts';
import { wakeChannel } from '../../src/statements/wake-channel.ts';
import { test } from '../support/replica.ts';
import { allRows } from '../support/rows.ts';
import { recordStatements } from '../support/statements.ts';
import { expect, onTestFinished, TEST_SCHEMA, type TestDatabase } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

// Hazard 28: a large payload sent through NOTIFY hits its 8,000-byte cap, and the insert fails. The poll comes once
// an hour here, so that a task which starts proves that LISTEN and pg_notify agree on the channel.

const MEBIBYTE = 1_048_576;
const LONG_NAME = `a.long/name:${'n'.repeat(188)}`;

const text = defineTask({ type: LONG_NAME, queue: LONG_NAME, payload: z.string(), ceiling: '1m' });
const tasks = { [LONG_NAME]: { definition: text, revision: 1 } };

function lengthsOf(seen: string[]) {
  return createRegistry(tasks, { [LONG_NAME]: (payload: string) => void seen.push(payload) } as never);
}

/** Everything that is notified on a channel, in order. */
async function listen({ connection }: TestDatabase, channel: string): Promise<string[]> {
  const heard: string[] = [];
  const client = new pg.Client(connection);
  client.on('error', () => {});
  client.on('notification', ({ payload = '' }) => heard.push(payload));
  await client.connect();
  onTestFinished(() => client.end());
  await client.query(`listen ${pg.escapeIdentifier(channel)}`);
  return heard;
}

test('payloads around the cap of NOTIFY and up to the limit run, under names of 200 characters', async ({
  db,
  startReplica,
}) => {
  const seen: string[] = [];
  const { events } = await startReplica({ registry: lengthsOf(seen), pollInterval: '1h' });
  const { enqueue } = createEnqueuer(tasks);
  // With its two quotes the last is exactly as long as the limit.
  const payloads = [7_999, 8_001, MEBIBYTE - 2].map((length) => 'x'.repeat(length));

  for (const payload of payloads) {
    await db.transaction().execute((tx) => enqueue(tx, LONG_NAME, payload));
    await events.atLeast(payloads.indexOf(payload) + 1, 'settled', ({ outcome }) => outcome === 'success');
  }

  expect(seen.map(({ length }) => length)).toEqual(payloads.map(({ length }) => length));
  expect(seen).toEqual(payloads);
});

test('a payload beyond the limit is refused before any statement, and the limit can be raised', async ({
  db,
  startReplica,
}) => {
  const statements = recordStatements();
  const { enqueue, enqueueMany } = createEnqueuer(tasks);
  const large = 'x'.repeat(20 * MEBIBYTE);
  const refusal = { code: 'PAYLOAD_TOO_LARGE', message: expect.stringContaining(`the limit is ${MEBIBYTE}`) };
  await expect(enqueue(db, LONG_NAME, large)).rejects.toMatchObject(refusal);
  await expect(enqueue(db, LONG_NAME, 'x'.repeat(MEBIBYTE - 1))).rejects.toMatchObject(refusal);
  await expect(enqueueMany(db, LONG_NAME, ['small', large])).rejects.toMatchObject(refusal);
  expect(statements.all).toEqual([]);

  const seen: string[] = [];
  const { events } = await startReplica({ registry: lengthsOf(seen), pollInterval: '1h' });
  await createEnqueuer(tasks, { maxPayloadBytes: 32 * MEBIBYTE }).enqueue(db, LONG_NAME, large);
  expect(await events.first('settled')).toMatchObject({ outcome: 'success' });
  expect(seen[0] === large).toBe(true);
});

test('a transaction with a thousand different payloads sends one notification, and it is empty', async ({
  database,
  db,
}) => {
  const channel = wakeChannel(TEST_SCHEMA);
  const heard = await listen(database, channel);
  const payloads = Array.from({ length: 1_000 }, (_, n) => `${n} ${'x'.repeat(10_000)}`);

  await db.transaction().execute((tx) => createEnqueuer(tasks).enqueueMany(tx, LONG_NAME, payloads));
  const sentinel = new pg.Client(database.connection);
  await sentinel.connect();
  await sentinel.query('select pg_notify($1, $2)', [channel, 'the end']);
  await sentinel.end();

  await waitFor(() => heard.includes('the end'), { what: 'the sentinel' });
  expect(heard).toEqual(['', 'the end']);
  expect(await allRows(db)).toHaveLength(1_000);
});

for (const schema of ['MixedCase', 'n'.repeat(63), 'it\'s "quoted"; and spaced', 'ünï 日本 😀']) {
  test(`a queue in the schema ${schema} wakes its own replica`, async ({ database, db, startReplica }) => {
    await migrateUp(database.url, { schema });
    const seen: string[] = [];
    const { events } = await startReplica({ registry: lengthsOf(seen), schema, pollInterval: '1h' });
    const heardElsewhere = await listen(database, wakeChannel(TEST_SCHEMA));

    await createEnqueuer(tasks, { schema }).enqueue(db, LONG_NAME, 'here');

    expect(await events.first('settled')).toMatchObject({ outcome: 'success' });
    await events.first('wake_received');
    expect(seen).toEqual(['here']);
    expect(heardElsewhere).toEqual([]);
    expect(await allRows(db)).toEqual([]);
  });
}
