import { type Kysely, sql } from 'kysely';
import { expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../../src/domain/ids.ts';
import { extendLease } from '../../src/statements/settle.ts';
import { ManualClock } from '../support/clock.ts';
import {
  BEAT_MS,
  CEILING_MS,
  definePulsed,
  MARGIN_MS,
  pulsedRegistry,
  startBeats,
} from '../support/pulsed.ts';
import { gate, test } from '../support/replica.ts';
import { insertRow, rowOf, wakeReplicas, writeLaneOf } from '../support/rows.ts';
import { waitFor } from '../support/wait.ts';

test('a lease with heartbeats is stamped for three of them, and extended under its token', async ({
  db,
  startReplica,
}) => {
  const clock = new ManualClock({ wall: Date.now() });
  const [started, end] = [gate<number>(), gate()];
  const { events } = await startReplica({
    clock,
    timers: clock,
    registry: pulsedRegistry(async (_payload, { remainingMs }) => {
      started.open(remainingMs());
      await end.promise;
    }),
  });
  const id = await insertRow(db, { type: 'pulsed' });
  await wakeReplicas(db);

  // The deadline is the ceiling all the same.
  expect(await started.promise).toBeCloseTo(CEILING_MS, 3);
  expect(await leaseMs(db, id)).toBe(3 * BEAT_MS);
  const claimed = await rowOf(db, id);

  for (const beat of [1, 2, 3]) {
    const before = await rowOf(db, id);
    clock.advance(BEAT_MS);
    const after = await waitFor(
      async () => {
        const row = await rowOf(db, id);
        return row.lease_expires_at !== before.lease_expires_at && row;
      },
      { what: `heartbeat ${beat}` },
    );
    // The statement's now() decides, and nothing but the end of the lease has changed.
    expect(after).toEqual({ ...claimed, lease_expires_at: after.lease_expires_at });
    expect(await leaseMs(db, id)).toBeGreaterThan(3 * BEAT_MS);
  }
  end.open();
  expect(await events.first('settled')).toMatchObject({ outcome: 'success' });
  expect(events.of('lease_lost')).toEqual([]);
});

test('heartbeats never extend a lease beyond the ceiling and the margin after its claim', async ({ db }) => {
  const id = await insertRow(db, { type: 'pulsed' });
  const { held, beats } = await startBeats(db, id, new ManualClock());
  beats.cancel();
  for (const sinceClaimMs of [CEILING_MS, CEILING_MS + MARGIN_MS - 1_000, CEILING_MS + MARGIN_MS + 60_000]) {
    await sql`update taskq.async_tasks
                set last_attempted_at = now() - ${sinceClaimMs}::float8 * interval '1 millisecond'`.execute(
      db,
    );
    const limits = { leaseMs: 3 * BEAT_MS, limitMs: CEILING_MS + MARGIN_MS };
    const stamp = await extendLease(writeLaneOf(db), held.task.lease, limits);
    expect(await leaseMs(db, id)).toBe(CEILING_MS + MARGIN_MS);
    expect(stamp?.leaseExpiresAt.dbMs).toBeLessThanOrEqual((stamp?.databaseNow.dbMs ?? 0) + MARGIN_MS);
  }
});

test("where no heartbeat can extend the lease any more, the handler's deadline stops it, and no missing beat", async ({
  db,
  startReplica,
}) => {
  const aborted = gate<{ code: string; leaseMs: number }>();
  const { events } = await startReplica({
    leaseMargin: '1s',
    registry: pulsedRegistry(
      async (_payload, { signal }) => {
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        aborted.open({ code: signal.reason.code, leaseMs: await leaseMs(db, id) });
        throw signal.reason;
      },
      definePulsed('1s', '3s'),
    ),
  });
  const id = await insertRow(db, { type: 'pulsed' });
  await wakeReplicas(db);

  expect(await aborted.promise).toEqual({ code: 'DEADLINE_REACHED', leaseMs: 4_000 });
  expect(await events.first('settled')).toMatchObject({ outcome: 'timeout' });
  expect(events.of('lease_lost')).toEqual([]);
});

/** From the claim to the end of the lease, both as the database stamped them. */
async function leaseMs(db: Kysely<DB>, id: TaskId): Promise<number> {
  const { rows } = await sql<{ ms: number }>`
    select (extract(epoch from lease_expires_at - last_attempted_at) * 1000)::float8 as ms
    from taskq.async_tasks where id = ${id}`.execute(db);
  return rows[0]?.ms ?? Number.NaN;
}
