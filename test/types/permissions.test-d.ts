import { test } from 'vitest';
import type { Lease, TaskId } from '../../src/domain/ids.ts';
import type { DbInstant, WallMs } from '../../src/domain/time.ts';
import { claim } from '../../src/statements/claim.ts';
import type { CallerLane, ReadLane, WriteLane } from '../../src/statements/lanes.ts';
import { release } from '../../src/statements/settle.ts';

declare const read: ReadLane;
declare const write: WriteLane;
declare const caller: CallerLane;
declare const lease: Lease;
declare const id: TaskId;
declare const leaseEnd: DbInstant;
declare const now: WallMs;

const failure = { attempt: 1, outcome: 'failure', message: 'none' } as const;
const wanted = { ids: [id], known: {}, leaseMs: {}, marginMs: 30_000, slots: 1 };

test('a claim runs on the write lane and on no other', () => {
  void claim(write, wanted);
  // @ts-expect-error the read lane may be a standby
  void claim(read, wanted);
  // @ts-expect-error the transaction of an enqueuer is none of a worker's
  void claim(caller, wanted);
});

test('a settlement is made from a lease, which only a claim makes', () => {
  void release(write, lease, failure);
  // @ts-expect-error an id alone proves nothing
  void release(write, { id }, failure);
  // @ts-expect-error text is no lease token
  void release(write, { id, token: 'token' }, failure);
});

test('a moment of the database is not compared with one of the application', () => {
  // @ts-expect-error the one crossing is processor/deadline.ts
  void (leaseEnd < now);
});
