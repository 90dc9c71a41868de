import { expect } from 'vitest';
import type { Lease } from '../../src/domain/ids.ts';
import { recordFailure, release, retire } from '../../src/statements/settle.ts';
import { gate, test } from '../support/replica.ts';
import {
  claimRow,
  insertRow,
  lapseLease,
  makeDue,
  rowOf,
  wakeReplicas,
  writeLaneOf,
} from '../support/rows.ts';

test('the attempt is burnt by the claim, before the handler starts', async ({ db, startReplica }) => {
  const inHandler = gate<unknown>();
  const { events } = await startReplica({
    handlers: { plain: async (_payload, { id }) => inHandler.open(await rowOf(db, id)) },
  });
  await insertRow(db, { attemptCount: 4 });
  await wakeReplicas(db);

  expect(await inHandler.promise).toMatchObject({ attempt_count: 5, last_attempted_at: expect.any(String) });
  expect(await events.first('settled')).toMatchObject({ task: { attempt: 5 } });
});

test('no settlement gives the attempt back', async ({ db }) => {
  const failure = { attempt: 1, outcome: 'cancelled', message: 'stopped' } as const;
  const lane = writeLaneOf(db);
  const settlements: readonly ((lease: Lease) => Promise<unknown>)[] = [
    (lease) => release(lane, lease, failure),
    (lease) => recordFailure(lane, lease, failure, 15_000),
    (lease) => lapseLease(db, lease.id),
    (lease) => retire(lane, lease, failure),
  ];
  const id = await insertRow(db);

  for (const [index, settle] of settlements.entries()) {
    const task = await claimRow(db, id);
    expect(task.attempt).toBe(index + 1);
    await settle(task.lease);
    expect(await rowOf(db, id)).toMatchObject({ attempt_count: index + 1 });
    await makeDue(db, id);
  }
});

test('a release leaves the row due at once, and says nothing about an error', async ({ db }) => {
  const id = await insertRow(db);
  const before = await rowOf(db, id);
  const task = await claimRow(db, id);

  await release(writeLaneOf(db), task.lease, { attempt: 1, outcome: 'cancelled', message: 'stopped' });

  const { last_attempted_at: _, ...after } = await rowOf(db, id);
  const { last_attempted_at: __, ...expected } = { ...before, attempt_count: 1 } as Record<string, unknown>;
  expect(after).toEqual(expected);
});
