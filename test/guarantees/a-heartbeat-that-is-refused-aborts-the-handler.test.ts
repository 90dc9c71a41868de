import { expect } from 'vitest';
import type { TaskqError } from '../../src/index.ts';
import { ManualClock } from '../support/clock.ts';
import { BEAT_MS, pulsedRegistry } from '../support/pulsed.ts';
import { gate, test } from '../support/replica.ts';
import { findRow, insertRow, lapseLease, rowOf, wakeReplicas } from '../support/rows.ts';

test('a heartbeat that is refused aborts the handler with LEASE_LOST, and its settlement is lost while the new owner runs', async ({
  db,
  startReplica,
}) => {
  const clock = new ManualClock({ wall: Date.now() });
  const [lateStarted, ownerStarted, ownerEnd, aborted] = [gate(), gate(), gate(), gate<TaskqError>()];
  const late = await startReplica({
    clock,
    timers: clock,
    slots: 1,
    registry: pulsedRegistry(async (_payload, { signal }) => {
      lateStarted.open();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      aborted.open(signal.reason);
      throw signal.reason;
    }),
  });
  const id = await insertRow(db, { type: 'pulsed' });
  await wakeReplicas(db);
  await lateStarted.promise;
  const owner = await startReplica({
    slots: 1,
    registry: pulsedRegistry(async () => {
      ownerStarted.open();
      await ownerEnd.promise;
    }),
  });
  await lapseLease(db, id);
  await wakeReplicas(db);
  await ownerStarted.promise;
  const before = await rowOf(db, id);

  clock.advance(BEAT_MS);

  expect(await aborted.promise).toMatchObject({ name: 'TaskqError', code: 'LEASE_LOST' });
  expect(await late.events.first('settled')).toMatchObject({ outcome: 'lost', task: { attempt: 1 } });
  expect(late.events.of('lease_lost')).toMatchObject([
    { task: { id }, reason: expect.stringContaining('refused') },
  ]);
  expect(await rowOf(db, id)).toEqual(before);
  ownerEnd.open();
  expect(await owner.events.first('settled')).toMatchObject({ outcome: 'success', task: { attempt: 2 } });
  expect(await findRow(db, id)).toBeUndefined();
});
