import { DEADLINE_CHECK_MS, HEARTBEATS_OF_A_LEASE } from '../domain/limits.ts';
import { type Observer, taskFacts } from '../domain/observer.ts';
import type { Write } from '../domain/outcome.ts';
import { ceilingMsOf } from '../domain/task.ts';
import type { TaskDefinition } from '../domain/task-definition.ts';
import { toError } from '../domain/thrown.ts';
import type { AppClock, Timer, Timers } from '../domain/time.ts';
import { type WriteLane, writeLane } from '../statements/lanes.ts';
import { extendLease } from '../statements/settle.ts';
import { type LeaseStamp, readClocks, type SentAt } from './deadline.ts';
import type { HeldTask } from './held-task.ts';

// A type that opts in trades a write now and then for a quick takeover. Its lease is stamped short, three beats,
// and extended under its token while the handler runs, never beyond what the claim would have been given without
// heartbeats. A worker that dies stops beating, and its task is claimable after three beats at the most. A beat
// that is refused means that the row has another holder: the handler is told at once. A worker that cannot reach
// the database stops its handler one beat before the lease ends, so that the old run is over when the new begins.
//
// A beat without an answer does not hold up the next one: it may sit on a dead connection, and each goes out on
// one of its own. Which of them is answered first does not matter, since each says when it was sent.

export interface HeartbeatDeps {
  readonly write: WriteLane;
  readonly clock: AppClock;
  readonly timers: Timers;
  readonly marginMs: number;
  readonly observe: Observer;
}

/** The beats of one run. */
export interface KeepAlive {
  /** The handler has returned: no beat is sent after this. */
  cancel(): void;
  /**
   * Runs the write that gives the row back while the handler runs on (an advanced cursor). The row carries no
   * token once it is written, so a beat that is refused beside it says nothing, and none is sent after it.
   */
  whileGivingBack<Answer extends string>(write: () => Promise<Answer>): Promise<Answer>;
}

/** Milliseconds a claim of this type stamps: the whole ceiling and the margin, or three beats. */
export function leaseMsOf(definition: TaskDefinition, marginMs: number): number {
  const wholeMs = definition.ceilingMs + marginMs;
  const { heartbeatMs } = definition;
  return heartbeatMs === undefined ? wholeMs : Math.min(wholeMs, heartbeatMs * HEARTBEATS_OF_A_LEASE);
}

/**
 * Extends the lease of `held` while its handler runs; `onLost` is called once, with what to tell the handler,
 * when it is lost or cannot be kept. Types without a heartbeat get one that does nothing.
 */
export function keepAlive(
  held: HeldTask,
  definition: TaskDefinition,
  deps: HeartbeatDeps,
  onLost: (message: string) => void,
): KeepAlive {
  const { heartbeatMs } = definition;
  return heartbeatMs === undefined
    ? NO_HEARTBEAT
    : new Heartbeat(held, definition, heartbeatMs, deps, onLost);
}

const NO_HEARTBEAT: KeepAlive = { cancel() {}, whileGivingBack: (write) => write() };

const REFUSED = 'another worker holds this task, or it is gone: a heartbeat was refused';
const UNREACHABLE = 'no heartbeat could be written in time: the lease is about to end';

/** A beat that has no answer is sent again after this share of the interval: three tries before it is too late. */
const TRIES_PER_BEAT = 3;

/** The limit is computed twice from the same instants, once here in floating point. */
const LIMIT_TOLERANCE_MS = 1;

class Heartbeat implements KeepAlive {
  readonly #held: HeldTask;
  readonly #definition: TaskDefinition;
  readonly #heartbeatMs: number;
  readonly #deps: HeartbeatDeps;
  readonly #onLost: (message: string) => void;
  #timer: Timer | undefined;
  #ended = false;
  #givingBack = false;
  #extendedFrom: SentAt;
  /** On the monotonic clock. */
  #nextBeatAt: number;

  constructor(
    held: HeldTask,
    definition: TaskDefinition,
    heartbeatMs: number,
    deps: HeartbeatDeps,
    onLost: (message: string) => void,
  ) {
    this.#held = held;
    this.#definition = definition;
    this.#heartbeatMs = heartbeatMs;
    this.#deps = deps;
    this.#onLost = onLost;
    this.#extendedFrom = held.sentAt;
    this.#nextBeatAt = held.sentAt.monotonic + heartbeatMs;
    this.#schedule();
  }

  cancel(): void {
    this.#ended = true;
    this.#timer?.cancel();
  }

  async whileGivingBack<Answer extends string>(write: () => Promise<Answer>): Promise<Answer> {
    this.#givingBack = true;
    try {
      const answer = await write();
      if (answer === 'written') this.cancel();
      return answer;
    } finally {
      this.#givingBack = false;
    }
  }

  /** Until the handler must be told, one beat before the lease ends. */
  get #leftMs(): number {
    return this.#held.leaseLeftMs(this.#deps.clock) - this.#heartbeatMs;
  }

  // Also in between, as the deadline does: a timer stands still while the machine is suspended, the lease does not.
  #schedule(): void {
    const untilBeatMs = this.#nextBeatAt - this.#deps.clock.monotonic();
    const waitMs = Math.max(0, Math.min(untilBeatMs, this.#leftMs, DEADLINE_CHECK_MS));
    this.#timer = this.#deps.timers.after(Math.ceil(waitMs), () => this.#look(), { unref: true });
  }

  #look(): void {
    if (!(this.#leftMs > 0)) {
      this.#lost(UNREACHABLE);
      return;
    }
    const now = this.#deps.clock.monotonic();
    if (now >= this.#nextBeatAt) {
      this.#nextBeatAt = now + this.#heartbeatMs / TRIES_PER_BEAT;
      void this.#beat();
    }
    this.#schedule();
  }

  async #beat(): Promise<void> {
    try {
      const write = await this.#extend();
      if (write === 'refused' && !this.#ended && !this.#givingBack) this.#lost(REFUSED);
    } catch (thrown) {
      if (this.#ended) return;
      const retryMs = Math.max(0, this.#nextBeatAt - this.#deps.clock.monotonic());
      const task = taskFacts(this.#held.task);
      this.#deps.observe({ kind: 'heartbeat_failed', task, error: toError(thrown), retryMs });
    }
  }

  #extend(): Promise<Write | 'not_sent'> {
    const { write, clock, marginMs } = this.#deps;
    return write.executor.connection().execute(async (connection) => {
      // It may have waited for the connection past the handler's end, or past another beat's refusal.
      if (this.#ended) return 'not_sent';
      const sentAt = readClocks(clock);
      const lane = writeLane(connection, write.schema);
      const leaseMs = leaseMsOf(this.#definition, marginMs);
      const stamp = await extendLease(lane, this.#held.task.lease, { leaseMs, limitMs: this.#limitMs });
      if (stamp === undefined) return 'refused';
      this.#extended(stamp, sentAt);
      return 'written';
    });
  }

  #extended(stamp: LeaseStamp, sentAt: SentAt): void {
    if (sentAt.monotonic < this.#extendedFrom.monotonic) return;
    this.#extendedFrom = sentAt;
    this.#held.extended(stamp, sentAt);
    this.#nextBeatAt = sentAt.monotonic + this.#heartbeatMs;
    // No beat can move the end any more, and the handler's own deadline comes before it.
    const limit = this.#held.task.claimedAt.dbMs + this.#limitMs;
    if (stamp.leaseExpiresAt.dbMs >= limit - LIMIT_TOLERANCE_MS) this.cancel();
  }

  /** After the claim, the lease ends here whatever is beaten. */
  get #limitMs(): number {
    return ceilingMsOf(this.#definition, this.#held.task) + this.#deps.marginMs;
  }

  #lost(message: string): void {
    this.cancel();
    this.#deps.observe({ kind: 'lease_lost', task: taskFacts(this.#held.task), reason: message });
    this.#onLost(message);
  }
}
