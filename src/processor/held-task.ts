import type { ClaimedTask } from '../domain/task.ts';
import type { AppClock } from '../domain/time.ts';
import { type Deadline, type LeaseStamp, leaseEnd, remainingMs, type SentAt } from './deadline.ts';

/** A claimed row in a slot's hands: the task, when its claim was sent, and until when the lease lives. */
export class HeldTask {
  readonly task: ClaimedTask;
  readonly sentAt: SentAt;
  #leaseEnd: Deadline;

  constructor(task: ClaimedTask, sentAt: SentAt) {
    this.task = task;
    this.sentAt = sentAt;
    this.#leaseEnd = leaseEnd(this.stamp, sentAt);
  }

  get stamp(): LeaseStamp {
    return { leaseExpiresAt: this.task.leaseExpiresAt, databaseNow: this.task.claimedAt };
  }

  /** A heartbeat has moved the end of the lease. */
  extended(stamp: LeaseStamp, sentAt: SentAt): void {
    this.#leaseEnd = leaseEnd(stamp, sentAt);
  }

  /** Until then nobody else may touch the row. */
  leaseLeftMs(clock: AppClock): number {
    return remainingMs(this.#leaseEnd, clock);
  }
}
