import { describe, expect } from 'vitest';
import type { Lease } from '../../src/domain/ids.ts';
import type { Write } from '../../src/domain/outcome.ts';
import { SkipRetry } from '../../src/index.ts';
import { callerLane, type WriteLane } from '../../src/statements/lanes.ts';
import {
  advanceCursor,
  complete,
  completeKeeping,
  dequeue,
  dequeueKeeping,
  extendLease,
  recordFailure,
  release,
  retire,
  SETTLE_STATEMENTS,
} from '../../src/statements/settle.ts';
import { gate, test } from '../support/replica.ts';
import {
  allRecords,
  claimRow,
  findRow,
  insertRow,
  lapseLease,
  rowOf,
  wakeReplicas,
  writeLaneOf,
} from '../support/rows.ts';

const failure = { attempt: 1, outcome: 'failure', message: 'written by the late holder' } as const;

/** Every statement that writes about a held row. */
const FENCED: Readonly<Record<string, (lane: WriteLane, lease: Lease) => Promise<Write>>> = {
  dequeue: async (lane, lease) => ((await dequeue(lane, [lease])).has(lease.id) ? 'written' : 'refused'),
  dequeueKeeping: async (lane, lease) =>
    (await dequeueKeeping(lane, [{ lease, resultText: '1' }])).has(lease.id) ? 'written' : 'refused',
  complete: (lane, lease) => complete(callerLane(lane.executor, lane.schema), lease),
  completeKeeping: (lane, lease) =>
    completeKeeping(callerLane(lane.executor, lane.schema), { lease, resultText: '1' }),
  recordFailure: (lane, lease) => recordFailure(lane, lease, failure, 15_000),
  retire: (lane, lease) => retire(lane, lease, failure),
  release: (lane, lease) => release(lane, lease, failure),
  advanceCursor: (lane, lease) => advanceCursor(lane, lease, '{"page":9}'),
  extendLease: async (lane, lease) => {
    const stamp = await extendLease(lane, lease, { leaseMs: 600_000, limitMs: 900_000 });
    return stamp === undefined ? 'refused' : 'written';
  },
};

describe('a late holder is refused while the new owner runs, and its refused write changes nothing', () => {
  for (const [name, write] of Object.entries(FENCED)) {
    test(`by ${name}`, async ({ db }) => {
      // The new owner is on the final attempt, where a release would stamp the row.
      const id = await insertRow(db, { type: 'sliced', attemptCount: 18, retentionMs: 60_000 });
      const late = await claimRow(db, id);
      await lapseLease(db, id);
      const owner = await claimRow(db, id);
      expect(owner.attempt).toBe(20);
      const before = await rowOf(db, id);

      expect(await write(writeLaneOf(db), late.lease)).toBe('refused');
      expect(await rowOf(db, id)).toEqual(before);
      expect(await allRecords(db)).toEqual([]);

      // The same statement under the owner's token is what changes it.
      expect(await write(writeLaneOf(db), owner.lease)).toBe('written');
      expect(await findRow(db, id)).not.toEqual(before);
    });
  }
});

const LATE_ENDINGS: Readonly<Record<string, () => 'done'>> = {
  'says done': () => 'done',
  throws: () => {
    throw new Error('too late');
  },
  'throws SkipRetry': () => {
    throw new SkipRetry('too late');
  },
};

test('no statement of the family is missing here', () => {
  expect(Object.keys(FENCED).toSorted()).toEqual(Object.keys(SETTLE_STATEMENTS).toSorted());
});

describe('a handler that ends after its task was taken over is recorded as lost', () => {
  for (const [title, ending] of Object.entries(LATE_ENDINGS)) {
    test(`when it ${title}`, async ({ db, startReplica }) => {
      const [lateStarted, lateEnd, ownerStarted, ownerEnd] = [gate(), gate(), gate(), gate()];
      const handler = async (_payload: unknown, { attempt }: { attempt: number }) => {
        (attempt === 1 ? lateStarted : ownerStarted).open();
        await (attempt === 1 ? lateEnd : ownerEnd).promise;
        return attempt === 1 ? ending() : ('done' as const);
      };
      const late = await startReplica({ slots: 1, handlers: { plain: handler } });
      const id = await insertRow(db);
      await wakeReplicas(db);
      await lateStarted.promise;
      const owner = await startReplica({ slots: 1, handlers: { plain: handler } });
      await lapseLease(db, id);
      await wakeReplicas(db);
      await ownerStarted.promise;
      const before = await rowOf(db, id);

      lateEnd.open();

      expect(await late.events.first('settled')).toMatchObject({
        outcome: 'lost',
        dead: false,
        task: { attempt: 1 },
      });
      expect(await rowOf(db, id)).toEqual(before);
      ownerEnd.open();
      expect(await owner.events.first('settled')).toMatchObject({ outcome: 'success', task: { attempt: 2 } });
      expect(await findRow(db, id)).toBeUndefined();
    });
  }
});
