import type { TaskId } from '../domain/ids.ts';
import { DISCOVER_LIMIT } from '../domain/limits.ts';
import type { Observer } from '../domain/observer.ts';
import type { ClaimedTask } from '../domain/task.ts';
import type { AppClock, DbInstant } from '../domain/time.ts';
import { type Candidate, candidatesMax, type Horizon } from '../statements/discover.ts';
import type { SentAt } from './deadline.ts';
import { HeldTask } from './held-task.ts';
import type { QueueHints, QueueOrder } from './queue-order.ts';

// Slots of one replica that want a task at the same moment share one discover and one claim. Each still owns
// exactly one row under a token of its own, and nothing is claimed that no slot is waiting for: a lease never
// ticks while its task waits in memory. What is kept between rounds are ids only, which are hints: the claim
// decides again, on the primary.

export interface SharedClaimsDeps {
  readonly statements: ClaimStatements;
  readonly order: QueueOrder;
  /** The queues served, where they are named. */
  readonly queues: readonly string[] | undefined;
  readonly clock: AppClock;
  readonly observe: Observer;
  /** Aborts when no further task may be claimed. */
  readonly stopping: AbortSignal;
}

export interface ClaimStatements {
  /** From the horizon on, or a whole look; up to `limit` candidates of each queue. */
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

/** Names of queues that a look from the horizon on remembers; of more, the others wait for the next whole look. */
const QUEUES_REMEMBERED_MAX = 100;

interface WaitingSlot {
  serve(held: HeldTask | undefined): void;
  fail(error: unknown): void;
}

export class SharedClaims {
  readonly #deps: SharedClaimsDeps;
  #waiting: WaitingSlot[] = [];
  #running = false;
  #hints: QueueHints[] = [];
  #hintedAt = Number.NEGATIVE_INFINITY;
  #horizon: Horizon | undefined;
  #lookedWhollyAt = Number.NEGATIVE_INFINITY;
  /** Queues that a look from the horizon on reaches beside those with a horizon. */
  readonly #queues: Set<string>;

  constructor(deps: SharedClaimsDeps) {
    this.#deps = deps;
    this.#queues = new Set(deps.queues?.slice(0, QUEUES_REMEMBERED_MAX));
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
    const dequeue = this.#deps.statements.dequeueUnderWay();
    if (dequeue === undefined) return;
    await dequeue;
    await new Promise((resolve) => setImmediate(resolve));
  }

  /** Serves what it can, and takes the served slots out of `slots`. */
  async #round(slots: WaitingSlot[]): Promise<void> {
    if (this.#deps.clock.monotonic() - this.#hintedAt > HINT_AGE_MS_MAX) this.#hints = [];
    if (this.#isEnough(slots.length)) await this.#claimFor(slots);
    const tried = new Set<TaskId>();
    for (let discoveries = 0; slots.length > 0 && discoveries < DISCOVERIES_MAX; discoveries += 1) {
      // Stale ids of a lagging replica fill the head of the list, so each further look reaches beyond them.
      const limit = tried.size + Math.max(DISCOVER_LIMIT, slots.length);
      const wasWhole = this.#horizon === undefined;
      const found = await this.#look(limit);
      const isCut = found.some((each) => each.isCut);
      this.#hints = untried(found, tried);
      this.#hintedAt = this.#deps.clock.monotonic();
      for (const { candidates } of this.#hints) for (const { id } of candidates) tried.add(id);
      await this.#claimFor(slots);
      // A look from the horizon on that found too little is followed by a whole one.
      if (!isCut && wasWhole) break;
    }
  }

  /** Whether the hints at hand say who is next for this many slots, or that there is no more to find. */
  #isEnough(slots: number): boolean {
    const { candidates, isCut } = this.#deps.order.sequence(this.#hints, slots);
    return candidates.length > 0 && !isCut;
  }

  // While there is more work than a look takes, the next one begins where this one did: the head of the index may
  // be long (see discover.ts). With less work than that, and once a second, the look is a whole one.
  async #look(limit: number): Promise<QueueHints[]> {
    const now = this.#deps.clock.monotonic();
    if (now - this.#lookedWhollyAt > HORIZON_MS_MAX) this.#horizon = undefined;
    if (this.#horizon === undefined) this.#lookedWhollyAt = now;
    const found = await this.#deps.statements.discover(limit, this.#horizon);
    this.#deps.observe({ kind: 'discovered', candidates: found.length });
    const hints = this.#byQueue(found, limit);
    this.#horizon = hints.some(({ isCut }) => isCut) ? this.#horizonOf(hints) : undefined;
    return hints;
  }

  #byQueue(found: readonly Candidate[], limit: number): QueueHints[] {
    const byQueue = new Map<string, Candidate[]>();
    for (const candidate of found) {
      const candidates = byQueue.get(candidate.queue);
      if (candidates === undefined) byQueue.set(candidate.queue, [candidate]);
      else candidates.push(candidate);
    }
    const isEachCut = found.length >= candidatesMax(limit);
    return [...byQueue].map(([queue, candidates]) => ({
      queue,
      weight: this.#deps.order.weightOf(queue, candidates[0]?.weight),
      candidates,
      isCut: isEachCut || candidates.length >= limit,
    }));
  }

  /** Each queue's oldest candidate. Queues met before are looked at too, for what is new in them. */
  #horizonOf(hints: readonly QueueHints[]): Horizon {
    const horizon = new Map<string, DbInstant | undefined>();
    for (const queue of this.#queues) horizon.set(queue, undefined);
    for (const { queue, candidates } of hints) {
      horizon.set(queue, candidates[0]?.runAt);
      if (this.#queues.size < QUEUES_REMEMBERED_MAX) this.#queues.add(queue);
    }
    return horizon;
  }

  async #claimFor(slots: WaitingSlot[]): Promise<void> {
    const hints = this.#hints;
    const { candidates } = this.#deps.order.sequence(hints, Math.max(DISCOVER_LIMIT, slots.length));
    // A stop may come while the discovery is under way. A claim sent after it would burn an attempt for nothing,
    // and the final one would make a dead letter of a task that was never run.
    if (candidates.length === 0 || this.#deps.stopping.aborted) return;
    const ids = candidates.map(({ id }) => id);
    const { tasks, sentAt } = await this.#deps.statements.claim(ids, slots.length);
    const tookMs = this.#deps.clock.monotonic() - sentAt.monotonic;
    this.#deps.observe({ kind: 'claim_answered', claimed: tasks.length, tookMs });
    if (tasks.length === 0) this.#deps.observe({ kind: 'claim_empty', candidates: ids.length });
    for (const { queue } of tasks) this.#deps.order.charge(queue, hints);
    // Fewer rows than slots: whatever else the hints named is taken, settled or not due any more.
    this.#hints = tasks.length < slots.length ? [] : without(hints, ids.slice(0, lastPlace(ids, tasks) + 1));
    for (const task of tasks) slots.shift()?.serve(new HeldTask(task, sentAt));
  }
}

/** A queue whose hints have all been tried is given up for this round, or it would stand in the way of the others. */
function untried(found: readonly QueueHints[], tried: ReadonlySet<TaskId>): QueueHints[] {
  return found
    .map((of) => ({ ...of, candidates: of.candidates.filter(({ id }) => !tried.has(id)) }))
    .filter(({ candidates }) => candidates.length > 0);
}

/** What a claim has gone past is claimed, or was not to be had. */
function lastPlace(ids: readonly TaskId[], tasks: readonly ClaimedTask[]): number {
  const claimed = new Set(tasks.map(({ id }) => id));
  return ids.findLastIndex((id) => claimed.has(id));
}

/** A queue whose hints were cut stays, empty: it has to be looked at again. */
function without(hints: readonly QueueHints[], ids: readonly TaskId[]): QueueHints[] {
  const gone = new Set(ids);
  return hints
    .map((of) => ({ ...of, candidates: of.candidates.filter(({ id }) => !gone.has(id)) }))
    .filter(({ candidates, isCut }) => isCut || candidates.length > 0);
}
