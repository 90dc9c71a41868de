import { sql } from 'kysely';
import { describe, expect } from 'vitest';
import { ManualClock } from '../support/clock.ts';
import { test } from '../support/replica.ts';
import { insertRow, makeDue, rowOf, wakeReplicas } from '../support/rows.ts';

const SKEWS_MS = { ahead: 600_000, behind: -600_000 };

describe('an application clock ten minutes off changes nothing but the warning', () => {
  for (const [title, skewMs] of Object.entries(SKEWS_MS)) {
    test(`when it is ${title} of the database`, async ({ db, startReplica }) => {
      const clock = new ManualClock({ wall: Date.now() + skewMs });
      const seen: { remainingMs: number; leaseSeconds: number; aborted: boolean }[] = [];
      const { events } = await startReplica({
        clock,
        timers: clock,
        slots: 1,
        handlers: {
          plain: async (_payload, { id, signal, remainingMs }) => {
            const { rows } = await sql<{ seconds: number }>`
              select round(extract(epoch from lease_expires_at - last_attempted_at))::int as seconds
              from taskq.async_tasks where id = ${id}`.execute(db);
            const leaseSeconds = rows[0]?.seconds ?? 0;
            seen.push({ remainingMs: Math.round(remainingMs()), leaseSeconds, aborted: signal.aborted });
          },
        },
      });
      // To a clock that is ahead this one is long due.
      const later = await insertRow(db, { runAtSeconds: 300 });
      const due = await insertRow(db, { runAtSeconds: -1 });
      await wakeReplicas(db);

      const settled = await events.first('settled');

      expect(settled).toMatchObject({ task: { id: due }, outcome: 'success' });
      await events.next('discovered');
      expect(await rowOf(db, later)).toMatchObject({ attempt_count: 0, lease_token: null });
      const { offsetMs } = await events.first('clock_offset');
      expect(Math.round(offsetMs / 60_000)).toBe(-skewMs / 60_000);

      await makeDue(db, later);
      await wakeReplicas(db);
      await events.atLeast(2, 'settled', ({ outcome }) => outcome === 'success');
      const budget = { remainingMs: 300_000, leaseSeconds: 330, aborted: false };
      expect(seen).toEqual([budget, budget]);
    });
  }
});
