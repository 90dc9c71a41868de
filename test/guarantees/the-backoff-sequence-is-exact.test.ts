import { expect } from 'vitest';
import { type StartReplica, test } from '../support/replica.ts';
import { backoffOf, insertRow, makeDue, type RowOptions, rowOf, wakeReplicas } from '../support/rows.ts';

type Db = Parameters<typeof rowOf>[0];

test('the backoff is 15 s, doubled after each failure up to 10 min, and the twentieth failure is the last', async ({
  db,
  startReplica,
}) => {
  const { seconds, row } = await failToDeath(db, startReplica, {});

  const rising = [15, 30, 60, 120, 240, 480];
  expect(seconds).toEqual([...rising, ...Array.from({ length: 20 - rising.length }, () => 600)]);
  expect(row).toMatchObject({ attempt_count: 20, exhausted: true, last_error: 'failure 20' });
});

test('the backoff and the attempts of a type are its own', async ({ db, startReplica }) => {
  const { seconds, row } = await failToDeath(db, startReplica, { type: 'fragile', maxAttempts: 3 });

  expect(seconds).toEqual([2, 4, 5]);
  expect(row).toMatchObject({ attempt_count: 3, exhausted: true, last_error: 'failure 3' });
});

/** Fails one task until it is dead; answers the backoffs that the row was given. */
async function failToDeath(db: Db, startReplica: StartReplica, options: RowOptions) {
  const fail = (_payload: unknown, { attempt }: { attempt: number }) => {
    throw new Error(`failure ${attempt}`);
  };
  const { events } = await startReplica({ slots: 1, handlers: { plain: fail, fragile: fail } });
  const id = await insertRow(db, options);
  const seconds: number[] = [];
  for (let attempt = 1; ; attempt += 1) {
    await wakeReplicas(db);
    const settled = await events.first('settled', ({ task }) => task.attempt === attempt);
    expect(settled.outcome).toBe('failure');
    seconds.push((await backoffOf(db, id)) / 1_000);
    if (settled.dead) return { seconds, row: await rowOf(db, id) };
    await makeDue(db, id);
  }
}
