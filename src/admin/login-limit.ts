import {
  ADMIN_ADDRESSES_MAX,
  ADMIN_FAILURES_MAX,
  ADMIN_FAILURES_OF_ADDRESS_MAX,
  ADMIN_FAILURES_WINDOW_MS,
} from '../domain/limits.ts';
import type { AppClock } from '../domain/time.ts';

interface Failures {
  count: number;
  /** Monotonic milliseconds. */
  readonly until: number;
}

/**
 * Counts wrong tokens, of each address and of everybody, in windows of five minutes. Of everybody: whoever has many
 * addresses gets no further than a hundred tries in a window. Sessions that stand are not asked.
 */
export class LoginLimit {
  readonly #clock: AppClock;
  readonly #byAddress = new Map<string, Failures>();
  #all: Failures = { count: 0, until: 0 };

  constructor(clock: AppClock) {
    this.#clock = clock;
  }

  /** Seconds to wait before the next try; 0 when it may be made now. */
  retryAfterSeconds(address: string): number {
    const now = this.#clock.monotonic();
    const of = this.#byAddress.get(address);
    const waits = [
      of !== undefined && of.count >= ADMIN_FAILURES_OF_ADDRESS_MAX ? of.until - now : 0,
      this.#all.count >= ADMIN_FAILURES_MAX ? this.#all.until - now : 0,
    ];
    return Math.max(0, Math.ceil(Math.max(...waits) / 1_000));
  }

  failed(address: string): void {
    const now = this.#clock.monotonic();
    if (this.#all.until <= now) this.#all = { count: 0, until: now + ADMIN_FAILURES_WINDOW_MS };
    this.#all.count += 1;
    let of = this.#byAddress.get(address);
    if (of === undefined || of.until <= now) {
      this.#byAddress.delete(address);
      if (this.#byAddress.size >= ADMIN_ADDRESSES_MAX) this.#forgetOldest();
      of = { count: 0, until: now + ADMIN_FAILURES_WINDOW_MS };
      this.#byAddress.set(address, of);
    }
    of.count += 1;
  }

  // A map keeps the order of insertion, and every window is as long: the first is the one that ends first.
  #forgetOldest(): void {
    const [oldest] = this.#byAddress.keys();
    if (oldest !== undefined) this.#byAddress.delete(oldest);
  }
}
