import type { TaskId } from '../domain/ids.ts';
import { DISCOVER_LIMIT } from '../domain/limits.ts';
import type { Observer } from '../domain/observer.ts';
import type { ClaimedTask } from '../domain/task.ts';
import type { AppClock, DbInstant } from '../domain/time.ts';
import type { Candidate, Horizon } from '../statements/discover.ts';
import type { SentAt } from './deadline.ts';
import { HeldTask } from './held-task.ts';

// Slots of one replica that want a task at the same moment share one discover and one claim. Each still owns
// exactly one row under a token of its own, and nothing is claimed that no slot is waiting for: a lease never
// ticks while its task waits in memory. What is kept between rounds are ids only, which are hints: the claim
// decides again, on the primary.

export interface ClaimStatements {
  /** From the horizon on, or a whole look. */
  discover(limit: number, from: Horizon | undefined): Promise<Candidate[]>;
  claim(ids: readonly TaskId[], slots: number): Promise<{ tasks: ClaimedTask[]; sentAt: SentAt }>;
  /** Resolves when the delete under way has answered, or soon; undefined when there is none. */
  dequeueUnderWay(): Promise<void> | undefined;
}

/** Older hints are not worth a claim: meanwhile the other replicas have had them. */
const HINT_AGE_MS_MAX = 1_000;

/** How long looks may begin at the horizon: a task that is older, committed late or released, waits no longer. */
const HORIZON_MS_MAX = 1_000;

/** Discoveries of one round: enough to get past a lagging replica's stale ids, few enough not to spin on them. */
const DISCOVERIES_MAX = 5;

interface WaitingSlot {
  serve(held: HeldTask | undefined): void;
  fail(error: unknown): void;
}

export class SharedClaims {
  readonly #statements: ClaimStatements;
  readonly #clock: AppClock;
  readonly #observe: Observer;
  readonly #stopping: AbortSignal;
  #waiting: WaitingSlot[] = [];
  #running = false;
  #hints: TaskId[] = [];
  #hintedAt = Number.NEGATIVE_INFINITY;
  #horizon: Horizon | undefined;
  #lookedWhollyAt = Number.NEGATIVE_INFINITY;

  constructor(statements: ClaimStatements, clock: AppClock, observe: Observer, stopping: AbortSignal) {
    this.#statements = statements;
    this.#clock = clock;
    this.#observe = observe;
    this.#stopping = stopping;
  }

  /** A task for one slot; undefined when none is claimable. Rejects when the database cannot be asked. */
  next(): Promise<HeldTask | undefined> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ serve: resolve, fail: reject });
      if (!this.#running) void this.#run();
    });
  }

  /** Slots that ask while a round is under way are the next round. */
  async #run(): Promise<void> {
    this.#running = true;
    while (this.#waiting.length > 0) {
      await this.#gather();
      const slots = this.#waiting;
      this.#waiting = [];
      try {
        await this.#round(slots);
      } catch (error) {
        this.#hints = [];
        this.#horizon = undefined;
        for (const slot of slots) slot.fail(error);
      }
      for (const slot of slots) slot.serve(undefined);
    }
    this.#running = false;
  }

  // Slots whose tasks are being deleted will ask in a moment. Without them the slots fall into two groups that
  // never meet, one claiming while the other deletes: twice the statements and commits for the same tasks.
  // On a quiet replica nothing is under way, and the claim goes out at once.
  async #gather(): Promise<void> {
    // Slots that were answered together ask in the same turn: the first of them must not go alone.
    await Promise.resolve();
    const dequeue = this.#statements.dequeueUnderWay();
    if (dequeue === undefined) return;
    await dequeue;
    await new Promise((resolve) => setImmediate(resolve));
  }

  /** Serves what it can, and takes the served slots out of `slots`. */
  async #round(slots: WaitingSlot[]): Promise<void> {
    if (this.#clock.monotonic() - this.#hintedAt > HINT_AGE_MS_MAX) this.#hints = [];
    if (this.#hints.length > 0) await this.#claimFor(slots);
    const tried = new Set<TaskId>();
    for (let discoveries = 0; slots.length > 0 && discoveries < DISCOVERIES_MAX; discoveries += 1) {
      // Stale ids of a lagging replica fill the head of the list, so each further look reaches beyond them.
      const limit = tried.size + Math.max(DISCOVER_LIMIT, slots.length);
      const wasWhole = this.#horizon === undefined;
      const found = await this.#look(limit);
      this.#hints = found.filter((id) => !tried.has(id));
      this.#hintedAt = this.#clock.monotonic();
      for (const id of this.#hints) tried.add(id);
      if (this.#hints.length > 0) await this.#claimFor(slots);
      // A look from the horizon on that found too little is followed by a whole one.
      if (found.length < limit && wasWhole) break;
    }
  }

  // While there is more work than a look takes, the next one begins where this one did: the head of the index may
  // be long (see discover.ts). With less work than that, and once a second, the look is a whole one.
  async #look(limit: number): Promise<TaskId[]> {
    const now = this.#clock.monotonic();
    if (now - this.#lookedWhollyAt > HORIZON_MS_MAX) this.#horizon = undefined;
    if (this.#horizon === undefined) this.#lookedWhollyAt = now;
    const found = await this.#statements.discover(limit, this.#horizon);
    this.#observe({ kind: 'discovered', candidates: found.length });
    this.#horizon = found.length < limit ? undefined : horizonOf(found);
    return found.map(({ id }) => id);
  }

  async #claimFor(slots: WaitingSlot[]): Promise<void> {
    // A stop may come while the discovery is under way. A claim sent after it would burn an attempt for nothing,
    // and the final one would make a dead letter of a task that was never run.
    if (this.#stopping.aborted) return;
    const ids = this.#hints;
    const { tasks, sentAt } = await this.#statements.claim(ids, slots.length);
    if (tasks.length === 0) this.#observe({ kind: 'claim_empty', candidates: ids.length });
    const claimedIds = new Set(tasks.map((task) => task.id));
    // Fewer rows than slots: whatever else the hints named is taken, settled or not due any more.
    this.#hints = tasks.length < slots.length ? [] : ids.filter((id) => !claimedIds.has(id));
    for (const task of tasks) slots.shift()?.serve(new HeldTask(task, sentAt));
  }
}

/** Each queue's oldest candidate; they come oldest first. */
function horizonOf(candidates: readonly Candidate[]): Horizon {
  const horizon = new Map<string, DbInstant>();
  for (const { queue, runAt } of candidates) if (!horizon.has(queue)) horizon.set(queue, runAt);
  return horizon;
}
