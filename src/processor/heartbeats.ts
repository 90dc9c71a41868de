import { HEARTBEATS_OF_A_LEASE } from '../domain/limits.ts';
import { type Observer, taskFacts } from '../domain/observer.ts';
import type { Write } from '../domain/outcome.ts';
import type { TaskDefinition } from '../domain/task-definition.ts';
import { toError } from '../domain/thrown.ts';
import type { AppClock, MonotonicMs, Timer, Timers } from '../domain/time.ts';
import { type WriteLane, writeLane } from '../statements/lanes.ts';
import { extendLease } from '../statements/settle.ts';
import { readClocks } from './deadline.ts';
import type { HeldTask } from './held-task.ts';

// A type that opts in trades a write now and then for a quick takeover. Its lease is stamped short, three beats,
// and extended under its token while the handler runs, never beyond what the claim would have been given without
// heartbeats. A worker that dies stops beating, and its task is claimable after three beats at the most. A beat
// that is refused means that the row has another holder: the handler is told at once. A worker that cannot reach
// the database stops its handler one beat before the lease ends, so that the old run is over when the new begins.

export interface HeartbeatDeps {
  readonly write: WriteLane;
  readonly clock: AppClock;
  readonly timers: Timers;
  readonly marginMs: number;
  readonly observe: Observer;
}

/** Milliseconds a claim of this type stamps: the whole ceiling and the margin, or three beats. */
export function leaseMsOf(definition: TaskDefinition, marginMs: number): number {
  const wholeMs = definition.ceilingMs + marginMs;
  const { heartbeatMs } = definition;
  return heartbeatMs === undefined ? wholeMs : Math.min(wholeMs, heartbeatMs * HEARTBEATS_OF_A_LEASE);
}

/** Looks at a beat: often enough to try one again before the lease is given up. */
const LOOKS_PER_BEAT = 3;

/**
 * Extends the lease of `held` while its handler runs; `onLost` is called once when it is lost or cannot be
 * kept. Answers the timer that ends it. Types without a heartbeat get one that does nothing.
 */
export function keepAlive(
  held: HeldTask,
  definition: TaskDefinition,
  deps: HeartbeatDeps,
  onLost: () => void,
): Timer {
  const { heartbeatMs } = definition;
  return heartbeatMs === undefined
    ? { cancel() {} }
    : new Heartbeat(held, definition, heartbeatMs, deps, onLost);
}

class Heartbeat implements Timer {
  readonly #held: HeldTask;
  readonly #definition: TaskDefinition;
  readonly #heartbeatMs: number;
  readonly #deps: HeartbeatDeps;
  readonly #onLost: () => void;
  #timer: Timer | undefined;
  #ended = false;
  #beating = false;
  #lastBeat: MonotonicMs;

  constructor(
    held: HeldTask,
    definition: TaskDefinition,
    heartbeatMs: number,
    deps: HeartbeatDeps,
    onLost: () => void,
  ) {
    this.#held = held;
    this.#definition = definition;
    this.#heartbeatMs = heartbeatMs;
    this.#deps = deps;
    this.#onLost = onLost;
    this.#lastBeat = held.sentAt.monotonic;
    this.#schedule();
  }

  cancel(): void {
    this.#ended = true;
    this.#timer?.cancel();
  }

  #schedule(): void {
    const look = () => {
      this.#look();
      if (!this.#ended) this.#schedule();
    };
    this.#timer = this.#deps.timers.after(this.#heartbeatMs / LOOKS_PER_BEAT, look, { unref: true });
  }

  #look(): void {
    const { clock } = this.#deps;
    if (this.#held.leaseLeftMs(clock) <= this.#heartbeatMs && !this.#isAtItsLimit()) {
      this.#lost();
      return;
    }
    if (!this.#beating && clock.monotonic() - this.#lastBeat >= this.#heartbeatMs) void this.#beat();
  }

  /** The lease has reached the end that no beat can move: the handler's own deadline comes before it. */
  #isAtItsLimit(): boolean {
    const limitMs = this.#definition.ceilingMs + this.#deps.marginMs;
    return this.#deps.clock.monotonic() - this.#held.sentAt.monotonic >= limitMs - 2 * this.#heartbeatMs;
  }

  async #beat(): Promise<void> {
    this.#beating = true;
    try {
      if ((await this.#extend()) === 'refused' && !this.#ended) this.#lost();
    } catch (error) {
      const retryMs = this.#heartbeatMs / LOOKS_PER_BEAT;
      this.#deps.observe({
        kind: 'settlement_retried',
        task: taskFacts(this.#held.task),
        error: toError(error),
        retryMs,
      });
    } finally {
      this.#beating = false;
    }
  }

  async #extend(): Promise<Write> {
    const { write, clock, marginMs } = this.#deps;
    const { lease } = this.#held.task;
    return write.executor.connection().execute(async (connection) => {
      const sentAt = readClocks(clock);
      const limitMs = this.#definition.ceilingMs + marginMs;
      const leaseMs = leaseMsOf(this.#definition, marginMs);
      const stamp = await extendLease(writeLane(connection, write.schema), lease, { leaseMs, limitMs });
      if (stamp === undefined) return 'refused';
      this.#held.extended(stamp, sentAt);
      this.#lastBeat = sentAt.monotonic;
      return 'written';
    });
  }

  #lost(): void {
    this.cancel();
    this.#onLost();
  }
}
