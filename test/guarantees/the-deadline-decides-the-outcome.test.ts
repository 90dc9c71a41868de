import type { Kysely } from 'kysely';
import { expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { DEADLINE_CHECK_MS } from '../../src/domain/limits.ts';
import type { HandlerContext, HandlerResult } from '../../src/index.ts';
import { ManualClock } from '../support/clock.ts';
import { gate, type StartReplica, test } from '../support/replica.ts';
import { backoffOf, findRow, insertRow, rowOf, wakeReplicas } from '../support/rows.ts';

const CEILING_MS = 300_000;

test('the signal aborts at the deadline with DEADLINE_REACHED, and not a moment before', async ({
  db,
  startReplica,
}) => {
  const seen: unknown[] = [];
  const { events } = await runPastDeadline(db, startReplica, async ({ signal }, clock) => {
    seen.push(signal.aborted);
    clock.advance(CEILING_MS - 1_000);
    seen.push(signal.aborted);
    clock.advance(2_000);
    seen.push(signal.aborted, signal.reason.code);
    throw signal.reason;
  });

  expect(await events.first('settled')).toMatchObject({ outcome: 'timeout' });
  expect(seen).toEqual([false, false, true, 'DEADLINE_REACHED']);
});

test('a machine that was suspended ends the run as soon as it wakes, since the lease went on', async ({
  db,
  startReplica,
}) => {
  const seen: boolean[] = [];
  const { events } = await runPastDeadline(db, startReplica, async ({ signal, remainingMs }, clock) => {
    // Only the wall clock went on while the machine slept.
    clock.shiftWall(CEILING_MS);
    seen.push(remainingMs() === 0);
    clock.advance(DEADLINE_CHECK_MS);
    seen.push(signal.aborted);
    throw signal.reason;
  });

  expect(await events.first('settled')).toMatchObject({ outcome: 'timeout' });
  expect(seen).toEqual([true, true]);
});

test('an error that wraps the abort of the deadline is a timeout, backed off like a failure', async ({
  db,
  startReplica,
}) => {
  const { events, id } = await runPastDeadline(db, startReplica, async ({ signal }, clock) => {
    clock.advance(CEILING_MS);
    const wrapped = new Error('the page could not be read', { cause: signal.reason });
    throw new AggregateError([new Error('first'), wrapped], 'several pages failed');
  });

  expect(await events.first('settled')).toMatchObject({ outcome: 'timeout', dead: false });
  expect(await rowOf(db, id)).toMatchObject({
    attempt_count: 1,
    lease_token: null,
    errors: [{ attempt: 1, outcome: 'timeout' }],
  });
  expect(await backoffOf(db, id)).toBe(15_000);
});

test('an error of another kind is a failure, also after the deadline', async ({ db, startReplica }) => {
  const { events } = await runPastDeadline(db, startReplica, async (_context, clock) => {
    clock.advance(CEILING_MS);
    throw new Error('a bug');
  });

  expect(await events.first('settled')).toMatchObject({ outcome: 'failure', error: 'a bug' });
});

test('done at the deadline is success', async ({ db, startReplica }) => {
  const { events, id } = await runPastDeadline(db, startReplica, async (_context, clock) => {
    clock.advance(CEILING_MS);
    return 'done';
  });

  expect(await events.first('settled')).toMatchObject({ outcome: 'success', ranMs: CEILING_MS });
  expect(await findRow(db, id)).toBeUndefined();
});

test('continue past the deadline is a timeout, and before it continued', async ({ db, startReplica }) => {
  const { events, id } = await runPastDeadline(db, startReplica, async ({ attempt }, clock) => {
    if (attempt === 1) {
      clock.advance(CEILING_MS);
      return 'continue';
    }
    return attempt === 2 ? 'continue' : 'done';
  });

  await events.first('settled', ({ outcome }) => outcome === 'success');
  const settled = events.of('settled').map(({ task, outcome }) => [task.id, outcome]);
  expect(settled).toEqual([
    [id, 'timeout'],
    [id, 'continued'],
    [id, 'success'],
  ]);
});

test('a handler that ignores its signal keeps its slot, is reported, and its late settlement is lost', async ({
  db,
  startReplica,
}) => {
  const end = gate();
  const overdue = gate();
  const clocks: ManualClock[] = [];
  const late = await runPastDeadline(db, startReplica, async (_context, clock) => {
    clocks.push(clock);
    clock.advance(CEILING_MS + 60_000);
    overdue.open();
    await end.promise;
    return 'done';
  });
  await overdue.promise;
  expect(late.app.status()).toEqual({ slots: 1, busy: 1, overrun: 1 });
  // Nothing else is run in that slot, while the report is repeated at each tick.
  const report = late.events.next('handler_overrun');
  clocks[0]?.advance(66_000);
  expect(await report).toMatchObject({ task: { id: late.id } });
  expect((await report).overMs).toBeGreaterThan(60_000);
  expect(late.events.of('claimed')).toHaveLength(1);

  await db
    .updateTable('async_tasks')
    .set({ lease_expires_at: new Date(Date.now() - 1_000) })
    .execute();
  const ownerEnd = gate();
  const ownerRuns = gate();
  const owner = await startReplica({
    handlers: {
      plain: async () => {
        ownerRuns.open();
        await ownerEnd.promise;
      },
    },
  });
  await ownerRuns.promise;
  end.open();

  expect(await late.events.first('settled')).toMatchObject({ outcome: 'lost' });
  ownerEnd.open();
  expect(await owner.events.first('settled')).toMatchObject({ outcome: 'success', task: { attempt: 2 } });
  await late.events.until(
    () =>
      late.events.all
        .slice(late.events.all.findIndex(({ kind }) => kind === 'settled'))
        .some(({ kind }) => kind === 'discovered'),
    'the slot to look for its next task',
  );
  expect(late.app.status()).toMatchObject({ busy: 0, overrun: 0 });
});

/** Runs one `plain` task with a handler that moves the clock itself. */
async function runPastDeadline(
  db: Kysely<DB>,
  startReplica: StartReplica,
  handler: (context: HandlerContext, clock: ManualClock) => Promise<HandlerResult>,
) {
  const clock = new ManualClock({ wall: Date.now() });
  const replica = await startReplica({
    clock,
    timers: clock,
    slots: 1,
    handlers: { plain: (_payload, context) => handler(context, clock) },
  });
  const id = await insertRow(db);
  await wakeReplicas(db);
  return { ...replica, id };
}
