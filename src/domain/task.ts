import type { Lease, TaskId } from './ids.ts';
import type { SliceProgress } from './slice.ts';
import type { TaskDefinition } from './task-definition.ts';
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
  /** What was saved with the cursor for people who look at the task. */
  readonly progress: SliceProgress | undefined;
  /** A lower ceiling than the type's, given by the enqueue; undefined for none. */
  readonly ceilingMs: number | undefined;
  /** Whether its record is kept once it is done. */
  readonly isKept: boolean;
  readonly runAt: DbInstant;
  readonly enqueuedAt: DbInstant;
}

/** The longest run of this task, in milliseconds: its type's, or the lower one that its enqueue has asked for. */
export function ceilingMsOf(definition: Pick<TaskDefinition, 'ceilingMs'>, task: ClaimedTask): number {
  return Math.min(definition.ceilingMs, task.ceilingMs ?? definition.ceilingMs);
}
