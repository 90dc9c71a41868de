import { gate, test } from '../support/replica.ts';
import { backoffOf, claimRows, findRow, makeDue, rowOf, wakeReplicas } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { expect } from '../support/test.ts';

// Hazard 34: attempts are counted off by one, so that a limit of one gives no run or two, and the delays shift.

const SECONDS = [15, 30, 60, 120, 240, 480, 600];
const delayMs = (attempt: number) => (SECONDS[attempt - 1] ?? 600) * 1_000;

const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, n) => from + n);

test('a task that always fails runs twenty times, numbered 1 to 20, with the delays of the backoff', async ({
  db,
  startReplica,
}) => {
  const attempts: number[] = [];
  const { events } = await startReplica({
    handlers: {
      plain: (_payload, { attempt, maxAttempts }) => {
        expect(maxAttempts).toBe(20);
        attempts.push(attempt);
        throw new Error(`failure ${attempt}`);
      },
    },
  });

  const { id } = await enqueue(db, 'plain', {});
  for (const attempt of numbers(1, 20)) {
    const settled = await events.first('settled', ({ task }) => task.attempt === attempt);
    expect(settled).toMatchObject({ outcome: 'failure', dead: attempt === 20 });
    expect(await backoffOf(db, id), `after attempt ${attempt}`).toBe(delayMs(attempt));
    const row = await rowOf(db, id);
    expect(row).toMatchObject({ attempt_count: attempt, exhausted: attempt === 20, lease_token: null });
    await makeDue(db, id);
    if (attempt < 20) await wakeReplicas(db);
  }

  expect(await claimRows(db, [id]), 'a 21st claim').toEqual([]);
  expect(attempts).toEqual(numbers(1, 20));
  expect((await rowOf(db, id)).errors.map(({ attempt }) => attempt)).toEqual(numbers(1, 20));
});

for (const maxAttempts of [1, 2, 3]) {
  test(`a limit of ${maxAttempts} means as many runs, the first included`, async ({ db, startReplica }) => {
    const attempts: number[] = [];
    const { events } = await startReplica({
      handlers: {
        fragile: (_payload, { attempt }) => {
          attempts.push(attempt);
          throw new Error('always');
        },
      },
    });

    // The type's own limit is three.
    const { id } = await enqueue(db, 'fragile', {}, maxAttempts === 3 ? {} : { maxAttempts });
    for (const attempt of numbers(1, maxAttempts)) {
      const settled = await events.first('settled', ({ task }) => task.attempt === attempt);
      expect(settled.dead).toBe(attempt === maxAttempts);
      await makeDue(db, id);
      if (attempt < maxAttempts) await wakeReplicas(db);
    }

    expect(await claimRows(db, [id])).toEqual([]);
    expect(attempts).toEqual(numbers(1, maxAttempts));
  });
}

test('a run that a shutdown ends keeps its attempt: twenty starts in all, it included', async ({
  db,
  startReplica,
}) => {
  const starts: number[] = [];
  const interrupted = gate();
  const handlers = {
    plain: async (_payload: object, { attempt, signal }: { attempt: number; signal: AbortSignal }) => {
      starts.push(attempt);
      if (attempt !== 3) throw new Error('always');
      interrupted.open();
      await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    },
  };
  const first = await startReplica({ handlers });
  const { id } = await enqueue(db, 'plain', {});
  for (const attempt of [1, 2]) {
    await first.events.first('settled', ({ task }) => task.attempt === attempt);
    await makeDue(db, id);
    await wakeReplicas(db);
  }
  await interrupted.promise;
  await first.app.stop();
  expect(first.events.of('settled').at(-1)).toMatchObject({ task: { attempt: 3 }, outcome: 'cancelled' });
  expect(await rowOf(db, id)).toMatchObject({ attempt_count: 3, lease_token: null });

  const second = await startReplica({ handlers });
  for (const attempt of numbers(4, 20)) {
    const { dead } = await second.events.first('settled', ({ task }) => task.attempt === attempt);
    expect(dead).toBe(attempt === 20);
    await makeDue(db, id);
    if (attempt < 20) await wakeReplicas(db);
  }
  expect(await claimRows(db, [id])).toEqual([]);
  expect(starts).toEqual(numbers(1, 20));
});

test('an advanced cursor restarts the count', async ({ db, startReplica }) => {
  const starts: string[] = [];
  const { events } = await startReplica({
    slots: 1,
    handlers: {
      sliced: async (_payload, { attempt, cursor, advanceCursor }) => {
        starts.push(`${cursor?.page ?? 0}:${attempt}`);
        if (cursor === undefined && attempt === 5) {
          await advanceCursor({ page: 1 });
          return 'continue';
        }
        if (cursor !== undefined && attempt === 2) return 'done';
        throw new Error('not yet');
      },
    },
  });

  const { id } = await enqueue(db, 'sliced', { pages: 2 });
  // Settled seven times: four failures, the slice that advanced, a failure, and the last.
  for (const settledCount of numbers(1, 6)) {
    await events.atLeast(settledCount, 'settled');
    if (settledCount === 5) continue;
    await makeDue(db, id);
    await wakeReplicas(db);
  }
  await events.atLeast(7, 'settled');

  expect(starts).toEqual(['0:1', '0:2', '0:3', '0:4', '0:5', '1:1', '1:2']);
  expect(await findRow(db, id)).toBeUndefined();
});
