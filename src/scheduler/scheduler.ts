import { CRON_RESYNC_MS } from '../domain/limits.ts';
import type { Observer } from '../domain/observer.ts';
import { retryDelayMs } from '../domain/retry-delay.ts';
import { toError } from '../domain/thrown.ts';
import { type AppClock, sleep, type Timers } from '../domain/time.ts';
import { beginSchedules, type EntryTicks, readTicks, type ScheduledEntry } from '../statements/cron.ts';
import type { WriteLane } from '../statements/lanes.ts';
import { dueTicks } from './due-ticks.ts';
import type { CheckedEntry, CronEntries } from './entries.ts';
import { takeAndEnqueue } from './take.ts';

// One loop in every replica, and no leader: each tries to take each tick, and the row of the tick has one winner.
// The database's clock alone says what time it is. The loop reads it, and estimates it by the monotonic clock only
// to know how long it may sleep; a replica whose own clock is wrong by hours ticks with the others.
// The entries are tried one after the other: one connection of the pool is all that cron ever holds.

export interface SchedulerDeps {
  readonly cron: CronEntries;
  readonly write: WriteLane;
  readonly clock: Pick<AppClock, 'monotonic'>;
  readonly timers: Timers;
  readonly observe: Observer;
}

interface EntryState {
  readonly entry: CheckedEntry;
  /** Every tick up to here was taken, by whomever, or given up. Undefined before the first look. */
  decidedMs: number | undefined;
  /** Failures in a row. */
  failures: number;
  /** By the monotonic clock; undefined when nothing is to be waited for but the next tick. */
  notBefore: number | undefined;
}

/** Enqueues the tasks of the cron list at their ticks, until it is stopped. */
export class Scheduler {
  readonly #deps: SchedulerDeps;
  readonly #states: readonly EntryState[];
  readonly #scheduled: readonly ScheduledEntry[];
  readonly #stopping = new AbortController();
  #sleeping = new AbortController();
  #running: Promise<void> | undefined;

  constructor(deps: SchedulerDeps) {
    this.#deps = deps;
    const { entries } = deps.cron;
    this.#states = entries.map((entry) => ({
      entry,
      decidedMs: undefined,
      failures: 0,
      notBefore: undefined,
    }));
    this.#scheduled = entries.map(({ name, schedule }) => ({ entry: name, schedule: schedule.text }));
  }

  start(): void {
    if (this.#states.length > 0) this.#running ??= this.#run();
  }

  /** Looks at the database's time again at once: somebody has moved it. */
  resync(): void {
    this.#sleeping.abort();
  }

  /** Lets the transaction under way finish. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#sleeping.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { observe, timers } = this.#deps;
    for (let failures = 0; !this.#stopping.signal.aborted; ) {
      // Made before the look: a resync that comes during it must not be lost.
      this.#sleeping = new AbortController();
      let waitMs: number;
      try {
        waitMs = await this.#look();
        if (failures > 0) observe({ kind: 'database_recovered', during: 'cron' });
        failures = 0;
        observe({ kind: 'cron_looked', nextMs: waitMs });
      } catch (error) {
        failures += 1;
        waitMs = retryDelayMs(failures);
        observe({ kind: 'database_failed', during: 'cron', error: toError(error), retryMs: waitMs });
      }
      if (!this.#stopping.signal.aborted) await sleep(timers, waitMs, this.#sleeping.signal);
    }
  }

  /** Takes what is due by the database's clock, and answers for how long there is nothing to do. */
  async #look(): Promise<number> {
    const { clock, write } = this.#deps;
    const { nowMs, ticks } = await readTicks(write, this.#scheduled);
    const readAt = clock.monotonic();
    await this.#begin(ticks, nowMs);
    for (const state of this.#states) {
      if (this.#stopping.signal.aborted) break;
      if ((state.notBefore ?? 0) <= clock.monotonic()) await this.#catchUp(state, nowMs);
    }
    return this.#untilNext(nowMs, clock.monotonic() - readAt);
  }

  /**
   * An entry that was never seen, or had another schedule, begins now: nothing before was missed. Only at the first
   * look: with two versions side by side, each would forever begin anew after the other's ticks.
   */
  async #begin(ticks: readonly EntryTicks[], nowMs: number): Promise<void> {
    const known = new Map(ticks.map((each) => [each.entry, each]));
    for (const state of this.#states) {
      const { newestMs, takenMs } = known.get(state.entry.name) ?? {};
      state.decidedMs ??= newestMs;
      if (state.decidedMs !== undefined) state.decidedMs = Math.max(state.decidedMs, takenMs ?? 0);
    }
    const fresh = this.#states.filter(({ decidedMs }) => decidedMs === undefined);
    if (fresh.length === 0) return;
    const names = new Set(fresh.map(({ entry }) => entry.name));
    const begun = await beginSchedules(
      this.#deps.write,
      this.#scheduled.filter(({ entry }) => names.has(entry)),
    );
    for (const state of fresh) state.decidedMs = begun.get(state.entry.name) ?? nowMs;
  }

  async #catchUp(state: EntryState, nowMs: number): Promise<void> {
    const { entry } = state;
    state.notBefore = undefined;
    const { take, missed } = dueTicks(entry.schedule, entry.missed, state.decidedMs ?? nowMs, nowMs);
    if (missed !== undefined) {
      // Said once, not at every look and not again when what follows fails.
      state.decidedMs = missed.lastMs;
      this.#deps.observe({
        kind: 'cron_missed',
        entry: entry.name,
        ticks: missed.count,
        first: iso(missed.firstMs),
        last: iso(missed.lastMs),
      });
    }
    for (const tickMs of take) {
      if (this.#stopping.signal.aborted || !(await this.#take(state, tickMs))) return;
    }
  }

  /** Answers whether the tick is decided; when it is not, it comes again, before those after it. */
  async #take(state: EntryState, tickMs: number): Promise<boolean> {
    const { cron, write, clock, observe } = this.#deps;
    const { entry } = state;
    const facts = { entry: entry.name, tick: iso(tickMs) };
    try {
      const taken = await takeAndEnqueue(cron, write, entry, tickMs);
      state.failures = 0;
      if (taken.answer === 'early') {
        state.notBefore = clock.monotonic() + Math.min(tickMs - taken.nowMs, CRON_RESYNC_MS);
        return false;
      }
      state.decidedMs = tickMs;
      if (taken.answer === 'enqueued') {
        observe({ kind: 'cron_enqueued', ...facts, taskId: taken.taskId, lateMs: taken.nowMs - tickMs });
      } else if (taken.answer === 'skipped')
        observe({ kind: 'cron_skipped', ...facts, taskId: taken.taskId });
      return true;
    } catch (error) {
      state.failures += 1;
      const retryMs = retryDelayMs(state.failures);
      state.notBefore = clock.monotonic() + retryMs;
      observe({ kind: 'cron_failed', ...facts, error: toError(error), retryMs });
      return false;
    }
  }

  /**
   * Milliseconds until the next tick, or the next try of one that failed; a minute at the most. A tick that has come
   * while others were being taken is due at once.
   */
  #untilNext(nowMs: number, sinceMs: number): number {
    let waitMs = CRON_RESYNC_MS;
    for (const { entry, decidedMs, notBefore } of this.#states) {
      if (notBefore !== undefined) {
        waitMs = Math.min(waitMs, notBefore - this.#deps.clock.monotonic());
        continue;
      }
      // After a clock that was set back, the ticks up to the last one taken are behind us.
      const nextMs = entry.schedule.next(Math.max(nowMs, decidedMs ?? nowMs));
      if (nextMs !== undefined) waitMs = Math.min(waitMs, nextMs - nowMs - sinceMs);
    }
    // Rounded up: a timer that fires before the tick finds nothing, and is set again.
    return Math.max(0, Math.ceil(waitMs));
  }
}

function iso(ms: number): string {
  return new Date(ms).toISOString();
}
