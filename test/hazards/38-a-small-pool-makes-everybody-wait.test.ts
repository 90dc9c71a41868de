import { sql } from 'kysely';
import { openApplicationPool } from '../support/application-pool.ts';
import { gate, test } from '../support/replica.ts';
import { allRows } from '../support/rows.ts';
import { enqueue, enqueueMany } from '../support/tasks.ts';
import { expect } from '../support/test.ts';

// Hazard 38: a pool smaller than the number of handlers, and everybody waits for everybody. The queue's own
// connections are apart from the application's, so no size of either is too small for the queue.

const SLOTS = 4;

for (const poolMax of [1, 2, 4]) {
  test(`fifty tasks and their follow-ups finish over ${poolMax} connections of the queue`, async ({
    database,
    db,
    startReplica,
  }) => {
    // One more than the slots: each handler holds one and wants another for a moment.
    const application = openApplicationPool({ ...database.connection, max: SLOTS + 1 });
    const { events } = await startReplica({
      slots: SLOTS,
      poolMax,
      handlers: {
        plain: async () => {
          await application.transaction().execute(async (tx) => {
            await enqueue(tx, 'fragile', {});
            await sql`select 1`.execute(application);
          });
        },
      },
    });

    await enqueueMany(
      db,
      'plain',
      Array.from({ length: 50 }, () => ({})),
    );
    await events.atLeast(50, 'settled', ({ task }) => task.type === 'fragile');

    expect(events.of('settled', ({ outcome }) => outcome !== 'success')).toEqual([]);
    expect(events.of('settled')).toHaveLength(100);
    expect(await allRows(db)).toEqual([]);
  });
}

test('while a handler holds the only connection of the application, others fail in the ordinary way and are settled', async ({
  database,
  db,
  startReplica,
}) => {
  const application = openApplicationPool({ ...database.connection, max: 1, connectionTimeoutMillis: 300 });
  const holding = gate();
  const mayEnd = gate();
  const { events } = await startReplica({
    slots: SLOTS,
    poolMax: 1,
    handlers: {
      plain: () =>
        application.transaction().execute(async (tx) => {
          await sql`select 1`.execute(tx);
          holding.open();
          await mayEnd.promise;
        }),
      fragile: async () => {
        await sql`select 1`.execute(application);
      },
    },
  });
  const { id: holder } = await enqueue(db, 'plain', {});
  await holding.promise;

  await enqueueMany(db, 'fragile', [{}, {}, {}, {}, {}]);
  const failed = await events.atLeast(5, 'settled', ({ outcome }) => outcome === 'failure');

  for (const { error } of failed) expect(error).toMatch(/timeout exceeded when trying to connect/);
  for (const row of (await allRows(db)).slice(1)) {
    expect(row).toMatchObject({ attempt_count: 1, lease_token: null, last_error: failed[0]?.error });
  }
  mayEnd.open();
  expect(await events.first('settled', ({ task }) => task.id === holder)).toMatchObject({
    outcome: 'success',
  });
});
