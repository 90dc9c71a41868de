import { DEADLINE_CHECK_MS } from '../domain/limits.ts';
import type { AppClock, DbInstant, MonotonicMs, Timer, Timers, WallMs } from '../domain/time.ts';

// The single place where a database instant meets the application's clocks.
//
// Why from the stamp. The lease ends when the database says so. A deadline computed from the ceiling and a clock
// read after the claim returned would run on for as long as the answer was under way, past the lease's end when
// the claim was slow. So the database answers both its `now()` and the expiry it stamped; their difference is a
// length of time on one clock, which means the same on every clock. It is counted from a reading taken before the
// claim was sent: the database stamped later than that, so the deadline can only be early, by the one way that the
// claim travelled and waited. A slow claim shortens the budget; nothing lengthens it.
//
// Why no measured round trip is deducted. Counting from before the sending already charges all of it. Deducting it
// as well would charge it twice; deducting half would assume that both ways took the same time, which a claim that
// waited for a lock on its way in refutes.
//
// Why the reading is taken with the connection in hand. Waiting for a free connection is no part of the lease:
// the database had not stamped anything yet.
//
// Why both clocks. The monotonic clock is the rule, since nobody can set it. But it stands still while the machine
// is suspended, and the lease does not. The wall clock goes on, so the same budget is counted on it too, from its
// own reading at the same moment. Database time is app wall time plus an offset; the offset measured in this very
// claim would be added and taken off again, so it does not appear, and a constant skew of any size changes nothing.
// What remains: a wall clock set forward during a run ends that run early (a timeout, one attempt), never late;
// one set back is caught by the monotonic bound.

/** What a claim answers about the lease it stamped, both on the database's clock and in the same statement. */
export interface LeaseStamp {
  readonly leaseExpiresAt: DbInstant;
  readonly databaseNow: DbInstant;
}

/** Both clocks of the application, read with the connection in hand and before the claim was sent. */
export interface SentAt {
  readonly monotonic: MonotonicMs;
  readonly wall: WallMs;
}

/** A moment on both of the application's clocks; it has come when either has reached it. */
export interface Deadline {
  readonly monotonic: MonotonicMs;
  readonly wall: WallMs;
}

/** To be called with the connection in hand, right before the claim is sent. */
export function readClocks(clock: AppClock): SentAt {
  return { monotonic: clock.monotonic(), wall: clock.wall() };
}

/** When the handler must have stopped: `marginMs` before the lease ends. May have passed already. */
export function handlerDeadline(stamp: LeaseStamp, sentAt: SentAt, marginMs: number): Deadline {
  const budgetMs = stamp.leaseExpiresAt.dbMs - stamp.databaseNow.dbMs - marginMs;
  return {
    monotonic: (sentAt.monotonic + budgetMs) as MonotonicMs,
    wall: (sentAt.wall + budgetMs) as WallMs,
  };
}

/** When the lease itself ends: until then a settlement may be tried again. */
export function leaseEnd(stamp: LeaseStamp, sentAt: SentAt): Deadline {
  return handlerDeadline(stamp, sentAt, 0);
}

/** Milliseconds left on the clock that has fewer of them; zero or less once the deadline has passed. */
export function remainingMs(deadline: Deadline, clock: AppClock): number {
  return Math.min(deadline.monotonic - clock.monotonic(), deadline.wall - clock.wall());
}

/** Milliseconds left of the whole lease, margin included. */
export function leaseRemainingMs(stamp: LeaseStamp, sentAt: SentAt, clock: AppClock): number {
  return remainingMs(leaseEnd(stamp, sentAt), clock);
}

/**
 * How far the database's clock is ahead of the application's wall clock, in milliseconds. An estimate: it is too
 * large by the time the claim took to reach the database, so it is no better than the round trip. Only shown and
 * warned about; no deadline is computed from it.
 */
export function clockOffsetMs(stamp: LeaseStamp, sentAt: SentAt): number {
  return stamp.databaseNow.dbMs - sentAt.wall;
}

/**
 * Calls `onReached` once when `deadline` comes, never before this function has returned, and not after `cancel`.
 * Timers are chained and both clocks read again at each: Node fires a timer of more than 2^31 ms at once, a timer
 * runs on the clock that stands still in a suspended machine, and it may fire a fraction of a millisecond early.
 */
export function watchDeadline(
  deadline: Deadline,
  clock: AppClock,
  timers: Timers,
  onReached: () => void,
): Timer {
  let timer: Timer;
  const check = () => {
    const leftMs = remainingMs(deadline, clock);
    // Written so that a NaN counts as reached: an unusable stamp must not give a handler for ever.
    if (leftMs > 0) schedule(leftMs);
    else onReached();
  };
  const schedule = (leftMs: number) => {
    const waitMs = leftMs > 0 ? Math.min(Math.ceil(leftMs), DEADLINE_CHECK_MS) : 0;
    timer = timers.after(waitMs, check, { unref: true });
  };
  schedule(remainingMs(deadline, clock));
  return { cancel: () => timer.cancel() };
}
