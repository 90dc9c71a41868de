import assert from 'node:assert/strict';
import { TIMER_MS_MAX } from '../../src/domain/limits.ts';
import type { AppClock, MonotonicMs, Timer, Timers, WallMs } from '../../src/domain/time.ts';

interface Pending {
  readonly at: number;
  readonly order: number;
  readonly fire: () => void;
}

/** The application's clock and timers in the hands of a test. Nothing happens until it is moved. */
export class ManualClock implements AppClock, Timers {
  #monotonic: number;
  #wall: number;
  #order = 0;
  readonly #pending = new Set<Pending>();

  constructor(start: { monotonic?: number; wall?: number } = {}) {
    this.#monotonic = start.monotonic ?? 1_000;
    this.#wall = start.wall ?? Date.parse('2026-01-01T00:00:00Z');
  }

  monotonic(): MonotonicMs {
    return this.#monotonic as MonotonicMs;
  }

  wall(): WallMs {
    return this.#wall as WallMs;
  }

  after(ms: number, fire: () => void): Timer {
    assert(ms <= TIMER_MS_MAX, `a timer of ${ms} ms would fire at once`);
    const pending = { at: this.#monotonic + Math.max(0, ms), order: this.#order++, fire };
    this.#pending.add(pending);
    return { cancel: () => void this.#pending.delete(pending) };
  }

  /** Timers that have neither fired nor been cancelled. */
  get pendingCount(): number {
    return this.#pending.size;
  }

  /** Milliseconds until the next timer, or `undefined` when none is set. */
  get nextInMs(): number | undefined {
    const next = this.#next();
    return next === undefined ? undefined : next.at - this.#monotonic;
  }

  /** Moves both clocks, firing what falls due in order, timers set by those that fire included. */
  advance(ms: number): void {
    const end = this.#monotonic + ms;
    for (let next = this.#next(); next !== undefined && next.at <= end; next = this.#next()) {
      this.#moveTo(next.at);
      this.#pending.delete(next);
      next.fire();
    }
    this.#moveTo(end);
  }

  /** Like `advance`, letting promises settle after every timer; database answers are not waited for. */
  async advanceAsync(ms: number): Promise<void> {
    const end = this.#monotonic + ms;
    await settlePromises();
    for (let next = this.#next(); next !== undefined && next.at <= end; next = this.#next()) {
      this.#moveTo(next.at);
      this.#pending.delete(next);
      next.fire();
      await settlePromises();
    }
    this.#moveTo(end);
  }

  /** The wall clock alone jumps: somebody set it, or the machine slept. */
  shiftWall(ms: number): void {
    this.#wall += ms;
  }

  #moveTo(monotonic: number): void {
    this.#wall += monotonic - this.#monotonic;
    this.#monotonic = monotonic;
  }

  #next(): Pending | undefined {
    let first: Pending | undefined;
    for (const each of this.#pending) {
      if (first === undefined || each.at < first.at || (each.at === first.at && each.order < first.order)) {
        first = each;
      }
    }
    return first;
  }
}

function settlePromises(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
