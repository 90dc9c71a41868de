import type { Brand } from './brand.ts';

/**
 * A moment as the database stamped it: milliseconds since the epoch with the microseconds kept.
 * An object, not a number, so that it cannot be compared with the application's clock by accident;
 * the one crossing is `processor/deadline.ts`.
 */
export interface DbInstant {
  readonly dbMs: number;
}

/** A reading of the monotonic clock, in milliseconds: only differences mean anything. */
export type MonotonicMs = Brand<number, 'MonotonicMs'>;

/** A reading of the application's wall clock, in milliseconds since the epoch. */
export type WallMs = Brand<number, 'WallMs'>;

export interface AppClock {
  monotonic(): MonotonicMs;
  wall(): WallMs;
}

export interface Timer {
  cancel(): void;
}

/** Timers as a parameter: whatever waits takes these, so that a test decides when it ends. */
export interface Timers {
  /** Calls `fire` once, `ms` from now; `ms` must not exceed `TIMER_MS_MAX`. Does not keep the process alive when `unref` is set. */
  after(ms: number, fire: () => void, options?: { unref?: boolean }): Timer;
}

export const systemClock: AppClock = {
  monotonic: () => performance.now() as MonotonicMs,
  wall: () => Date.now() as WallMs,
};

export const systemTimers: Timers = {
  after(ms, fire, options) {
    const timer = setTimeout(fire, ms);
    if (options?.unref === true) timer.unref();
    return { cancel: () => clearTimeout(timer) };
  },
};

/** Resolves after `ms`, or at once when `signal` aborts; never rejects. */
export function sleep(timers: Timers, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve();
      return;
    }
    const wake = () => {
      timer.cancel();
      signal?.removeEventListener('abort', wake);
      resolve();
    };
    const timer = timers.after(ms, wake);
    signal?.addEventListener('abort', wake, { once: true });
  });
}
