import { type Kysely, sql } from 'kysely';
import { expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../../src/domain/ids.ts';
import { ManualClock } from '../support/clock.ts';
import { MARGIN_MS, pulsedRegistry, startBeats } from '../support/pulsed.ts';
import { test } from '../support/replica.ts';
import { claimRow, insertRow, wakeReplicas } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { waitFor } from '../support/wait.ts';

/** The ceiling of `plain` and of `pulsed`. */
const CEILING_MS = 300_000;

async function leaseMs(db: Kysely<DB>, id: TaskId): Promise<number> {
  const { leaseExpiresAt, claimedAt } = await claimRow(db, id);
  return leaseExpiresAt.dbMs - claimedAt.dbMs;
}

/** Behind the product's back: a ceiling that no enqueue of the client would take. */
const setCeiling = (db: Kysely<DB>, id: TaskId, ms: number) =>
  sql`update taskq.async_tasks set ceiling_ms = ${ms} where id = ${id}`.execute(db);

test('a task enqueued with a timeout is leased for that and the margin, any other for its type’s ceiling', async ({
  db,
}) => {
  const lower = await enqueue(db, 'plain', {}, { timeout: '1m' });
  const plain = await enqueue(db, 'plain', {});
  expect(await leaseMs(db, lower.id)).toBeCloseTo(60_000 + MARGIN_MS, 0);
  expect(await leaseMs(db, plain.id)).toBeCloseTo(CEILING_MS + MARGIN_MS, 0);
});

test('a timeout above the ceiling is refused by the enqueue, and one in the table lengthens no lease', async ({
  db,
}) => {
  await expect(enqueue(db, 'plain', {}, { timeout: '301s' })).rejects.toMatchObject({
    code: 'OPTION_INVALID',
  });
  const id = await insertRow(db);
  await setCeiling(db, id, CEILING_MS * 2);
  expect(await leaseMs(db, id)).toBeCloseTo(CEILING_MS + MARGIN_MS, 0);
});

test('the handler’s signal aborts at the timeout', async ({ db, startReplica }) => {
  const clock = new ManualClock({ wall: Date.now() });
  const seen: unknown[] = [];
  const replica = await startReplica({
    clock,
    timers: clock,
    slots: 1,
    handlers: {
      plain: async (_payload, { signal, remainingMs }) => {
        seen.push(remainingMs() <= 60_000, remainingMs() > 55_000);
        clock.advance(54_000);
        seen.push(signal.aborted);
        clock.advance(7_000);
        seen.push(signal.aborted);
        throw signal.reason;
      },
    },
  });
  await enqueue(db, 'plain', {}, { timeout: '1m' });
  expect(await replica.events.first('settled')).toMatchObject({ outcome: 'timeout' });
  expect(seen).toEqual([true, true, false, true]);
});

test('with heartbeats the timeout bounds what they may extend the lease to', async ({ db }) => {
  const clock = new ManualClock({ wall: Date.now() });
  const id = await insertRow(db, { type: 'pulsed' });
  await setCeiling(db, id, 20_000);
  const { held, beats } = await startBeats(db, id, clock);
  // Three beats would be 45 s: less than the timeout and its margin.
  expect(held.task.leaseExpiresAt.dbMs - held.task.claimedAt.dbMs).toBeCloseTo(45_000, 0);
  // Claimed 20 s ago: three more beats would end beyond the timeout and its margin.
  await sql`update taskq.async_tasks set last_attempted_at = now() - interval '20 seconds'`.execute(db);
  const leasedMs = async () => {
    const { rows } = await sql<{ ms: number }>`
      select extract(epoch from lease_expires_at - last_attempted_at)::float8 * 1000 as ms
      from taskq.async_tasks`.execute(db);
    return rows[0]?.ms;
  };
  expect(await leasedMs()).toBeGreaterThan(60_000);
  await clock.advanceAsync(15_000);
  await waitFor(async () => (await leasedMs()) === 20_000 + MARGIN_MS);
  beats.cancel();
});

test('with heartbeats too the signal aborts at the timeout', async ({ db, startReplica }) => {
  const clock = new ManualClock({ wall: Date.now() });
  const seen: boolean[] = [];
  const replica = await startReplica({
    clock,
    timers: clock,
    slots: 1,
    registry: pulsedRegistry(async (_payload, { signal, remainingMs }) => {
      seen.push(remainingMs() <= 20_000);
      clock.advance(21_000);
      seen.push(signal.aborted);
      throw signal.reason;
    }),
  });
  const id = await insertRow(db, { type: 'pulsed', runAtSeconds: 60 });
  await setCeiling(db, id, 20_000);
  await sql`update taskq.async_tasks set run_at = now() where id = ${id}`.execute(db);
  await wakeReplicas(db);
  expect(await replica.events.first('settled')).toMatchObject({ outcome: 'timeout' });
  expect(seen).toEqual([true, true]);
});
