import { sql } from 'kysely';
import { z } from 'zod';
import { createEnqueuer, createRegistry, defineTask } from '../../src/index.ts';
import { test } from '../support/replica.ts';
import { allRows, rowOf } from '../support/rows.ts';
import { recordStatements } from '../support/statements.ts';
import { expect, onTestFinished, vi } from '../support/test.ts';

// Hazard 17: Node fires a timer of more than 2^31-1 ms at once, so a 30-day ceiling aborts immediately.

const payload = z.object({});

function tasksWith(ceiling: number | '30d') {
  const definition = defineTask({ type: 'long', payload, ceiling });
  return { long: { definition, revision: 1 } };
}

/** Node's own word for a delay that it replaced by 1 ms. */
function watchOverflowWarnings(): unknown[] {
  const warnings: unknown[] = [];
  const onWarning = (warning: Error) => {
    if (warning.name === 'TimeoutOverflowWarning') warnings.push(warning);
  };
  process.on('warning', onWarning);
  onTestFinished(() => void process.off('warning', onWarning));
  return warnings;
}

test('a handler with a ceiling of 30 days runs to its end in one attempt', async ({ db, startReplica }) => {
  const warnings = watchOverflowWarnings();
  const tasks = tasksWith('30d');
  const aborts: unknown[] = [];
  let leftMs = 0;
  const { events } = await startReplica({
    registry: createRegistry(tasks, {
      long: async (_payload, { signal, remainingMs }) => {
        leftMs = remainingMs();
        signal.addEventListener('abort', () => aborts.push(signal.reason));
        // A timer that was cut to 1 ms has fired long before this one.
        await new Promise((resolve) => setTimeout(resolve, 250));
      },
    }),
  });

  const { id } = await createEnqueuer(tasks).enqueue(db, 'long', {});

  expect(await events.first('settled')).toMatchObject({ task: { id, attempt: 1 }, outcome: 'success' });
  expect(leftMs).toBeGreaterThan(29.9 * 86_400_000);
  expect(aborts).toEqual([]);
  expect(warnings).toEqual([]);
  expect(await allRows(db)).toEqual([]);
});

test('a task due in 60 days neither runs early nor makes an idle replica query in a loop', async ({
  db,
  startReplica,
}) => {
  const warnings = watchOverflowWarnings();
  const tasks = tasksWith('30d');
  const { events } = await startReplica({
    pollInterval: '200ms',
    registry: createRegistry(tasks, { long: async () => 'done' }),
  });
  const statements = recordStatements();
  const { id } = await createEnqueuer(tasks).enqueue(db, 'long', {}, { delay: '60d' });

  const from = performance.now();
  const looksBefore = events.of('discovered').length;
  await events.atLeast(looksBefore + 10, 'discovered');
  const pollsAtTheMost = (performance.now() - from) / (200 * 0.9) + 1;

  expect(events.of('discovered').length - looksBefore).toBeLessThanOrEqual(pollsAtTheMost);
  expect(statements.claims()).toEqual([]);
  expect(await rowOf(db, id)).toMatchObject({ attempt_count: 0, lease_token: null });
  expect(warnings).toEqual([]);
});

test('a ceiling that is no usable length of time is refused when the task is defined', () => {
  for (const ceiling of [1.5, 0, -5, Number.NaN, Number.POSITIVE_INFINITY]) {
    expect(() => tasksWith(ceiling), String(ceiling)).toThrow(
      expect.objectContaining({
        code: 'DURATION_INVALID',
        message: expect.stringMatching(/^ceiling of task type 'long': /),
      }),
    );
  }
});

test('a remaining time that is a fraction of a millisecond sets a timer that fires', async ({
  db,
  startReplica,
}) => {
  const setTimeoutSpy = vi.spyOn(globalThis, 'setTimeout');
  onTestFinished(() => setTimeoutSpy.mockRestore());
  const tasks = tasksWith(1_000.25);
  const { events } = await startReplica({
    leaseMargin: 1_000.5,
    registry: createRegistry(tasks, {
      long: (_payload, { signal }) =>
        new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
    }),
  });

  const { id } = await createEnqueuer(tasks).enqueue(db, 'long', {});

  const { rows } = await sql<{ leaseMs: string | null }>`
    select (extract(epoch from lease_expires_at - last_attempted_at) * 1000)::text as "leaseMs"
    from taskq.async_tasks where id = ${(await events.first('claimed')).task.id}`.execute(db);
  expect(Number(rows[0]?.leaseMs)).toBe(2_000.75);
  expect(await events.first('settled')).toMatchObject({ task: { id }, outcome: 'timeout' });
  expect(events.of('slot_failed')).toEqual([]);
  for (const [, delayMs] of setTimeoutSpy.mock.calls) expect(delayMs ?? 0).toBeGreaterThanOrEqual(0);
});
