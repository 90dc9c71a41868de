import { sql } from 'kysely';
import { expect } from 'vitest';
import { gate, test } from '../support/replica.ts';
import { allRows, claimRows, insertRow, insertRows, wakeReplicas } from '../support/rows.ts';

test('a claim for n slots leases exactly n rows, the first of those named, each under a token of its own', async ({
  db,
}) => {
  await sql`alter table taskq.async_tasks set (autovacuum_enabled = off)`.execute(db);
  const first = await insertRow(db);
  await sql`vacuum (analyze) taskq.async_tasks`.execute(db);
  const ids = [first, ...(await insertRows(db, 39))];

  // Whose turn it is was decided before, by queue and age: the order in which they are named.
  const tasks = await claimRows(db, ids.toReversed(), { slots: 7 });

  const named = ids.slice(-7);
  expect(tasks.map((task) => task.id).toSorted(numerically)).toEqual(named);
  expect(new Set(tasks.map((task) => task.lease.token)).size).toBe(7);
  const rows = await allRows(db);
  const leased = rows.filter((row) => row.lease_token !== null);
  expect(leased.map((row) => String(row['id']))).toEqual(named);
  expect(leased.map((row) => row.attempt_count)).toEqual(named.map(() => 1));
  for (const task of tasks) {
    expect(leased.find((row) => String(row['id']) === task.id)?.lease_token).toBe(task.lease.token);
  }
});

test('nothing is claimed that no slot is waiting for', async ({ db, startReplica }) => {
  const end = gate();
  const started = gate();
  let running = 0;
  const { events } = await startReplica({
    slots: 3,
    handlers: {
      plain: async () => {
        running += 1;
        if (running === 3) started.open();
        await end.promise;
      },
    },
  });

  await insertRows(db, 10);
  await wakeReplicas(db);
  await started.promise;
  // Further wakes find no idle slot, and must not lease rows that would then wait in memory.
  await wakeReplicas(db);
  await events.atLeast(2, 'wake_received');

  const leased = (await allRows(db)).filter((row) => row.lease_token !== null);
  expect(leased).toHaveLength(3);
  end.open();
  await events.atLeast(10, 'settled');
  expect(await allRows(db)).toEqual([]);
});

const numerically = (a: string, b: string) => Number(a) - Number(b);
