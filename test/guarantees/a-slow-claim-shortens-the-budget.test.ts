import { sql } from 'kysely';
import { expect } from 'vitest';
import { ManualClock } from '../support/clock.ts';
import { gate, type StartReplica, test } from '../support/replica.ts';
import { backoffOf, insertRow, rowOf, wakeReplicas } from '../support/rows.ts';
import { waitFor } from '../support/wait.ts';

const CEILING_MS = 300_000;

test('a slow claim shortens the budget of its handler by as long as it took', async ({
  db,
  startReplica,
}) => {
  const remaining = gate<number>();
  const { events } = await claimSlowly(db, startReplica, 60_000, (ms) => remaining.open(ms));

  expect(await remaining.promise).toBeCloseTo(CEILING_MS - 60_000, 3);
  expect(await events.first('settled')).toMatchObject({ outcome: 'success' });
});

test('a deadline that has passed when the claim returns starts no handler', async ({ db, startReplica }) => {
  const started: number[] = [];
  const { events, id } = await claimSlowly(db, startReplica, CEILING_MS + 1, (ms) => started.push(ms));

  expect(await events.first('settled')).toMatchObject({ outcome: 'timeout', ranMs: undefined, dead: false });
  expect(started).toEqual([]);
  expect(await rowOf(db, id)).toMatchObject({
    attempt_count: 1,
    lease_token: null,
    last_error: expect.stringContaining('not started'),
    errors: [{ attempt: 1, outcome: 'timeout' }],
  });
  expect(await backoffOf(db, id)).toBe(15_000);
});

type Db = Parameters<typeof insertRow>[0];

/** One task whose claim is kept waiting on the server while the application's clocks go on by `claimMs`. */
async function claimSlowly(db: Db, startReplica: StartReplica, claimMs: number, onRun: (ms: number) => void) {
  const clock = new ManualClock({ wall: Date.now() });
  const { events } = await startReplica({
    clock,
    timers: clock,
    slots: 1,
    handlers: { plain: async (_payload, { remainingMs }) => onRun(remainingMs()) },
  });
  const id = await insertRow(db);
  await db.transaction().execute(async (blocker) => {
    // Reads pass, and so does the discovery; the claim's row locks do not.
    await sql`lock table taskq.async_tasks in exclusive mode`.execute(blocker);
    await wakeReplicas(db);
    await waitFor(() => isWaitingForLock(db), { what: 'the claim to wait for the table' });
    clock.advance(claimMs);
  });
  return { events, id };
}

async function isWaitingForLock(db: Db): Promise<boolean> {
  const { rows } = await sql`
    select 1 from pg_locks l join pg_class c on c.oid = l.relation
    where c.relname = 'async_tasks' and not l.granted`.execute(db);
  return rows.length > 0;
}
