import type { Lease, TaskId } from './ids.ts';
import type { DbInstant } from './time.ts';

/** What a claim hands over: one leased row, as it stands in the database. */
export interface ClaimedTask {
  readonly id: TaskId;
  readonly lease: Lease;
  readonly leaseExpiresAt: DbInstant;
  /** The `now()` of the claim itself, in the same frame as `leaseExpiresAt`. */
  readonly claimedAt: DbInstant;
  readonly type: string;
  readonly queue: string;
  readonly payloadText: string;
  readonly payloadRevision: number;
  readonly cursorText: string | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** This run's number: the claim has already burnt it. */
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly runAt: DbInstant;
  readonly enqueuedAt: DbInstant;
}
