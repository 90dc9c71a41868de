import { randomUUID } from 'node:crypto';
import type { DeadLetterFilter } from '../domain/dead-letter-filter.ts';
import { checkFilter } from '../domain/dead-letter-filter.ts';
import type { Duration } from '../domain/duration.ts';
import {
  ADMIN_OPERATION_WAIT_MS,
  ADMIN_OPERATIONS_KEPT_MAX,
  ADMIN_OPERATIONS_RUNNING_MAX,
} from '../domain/limits.ts';
import { type AppClock, sleep, type Timers } from '../domain/time.ts';
import type { Operator } from '../operator.ts';
import type { Wire } from './contracts.ts';
import { AdminProblem, problemOf } from './problems.ts';

type Shown = Wire<'Operation'>;

export interface OperationRequest {
  readonly kind: 'replay' | 'drop';
  readonly filter: Wire<'DeadFilter'>;
  readonly dryRun: boolean;
  /** Acts under the name of whoever asked. */
  readonly operator: Operator;
  readonly actor: string;
}

interface Kept {
  shown: Shown;
  readonly aborting: AbortController;
  readonly ended: Promise<void>;
}

/**
 * Bulk replays, drops and their dry runs: a million dead letters take minutes, longer than any request should. Each
 * belongs to this process; what it has done when the process ends stays done, and stands in the audit.
 */
export class Operations {
  readonly #clock: AppClock;
  readonly #timers: Timers;
  readonly #onChange: (operation: Shown) => void;
  readonly #all = new Map<string, Kept>();
  readonly #closing = new AbortController();

  constructor(clock: AppClock, timers: Timers, onChange: (operation: Shown) => void) {
    this.#clock = clock;
    this.#timers = timers;
    this.#onChange = onChange;
  }

  /**
   * Begins one, and answers it when it is over, or after a second.
   * @throws AdminProblem `BUSY`; TaskqError `OPTION_INVALID`, `DURATION_INVALID`
   */
  async begin(request: OperationRequest): Promise<Shown> {
    const filter = toFilter(request.filter);
    checkFilter(filter);
    if (this.#running().length >= ADMIN_OPERATIONS_RUNNING_MAX) {
      throw new AdminProblem('BUSY', 'other bulk operations are running: wait for one to end, or cancel it');
    }
    const { kind, dryRun, actor } = request;
    const id = randomUUID();
    const shown: Shown = {
      id,
      kind,
      dryRun,
      filter: request.filter,
      actor,
      state: 'running',
      startedAt: this.#now(),
      endedAt: null,
      counts: NO_COUNTS,
      groups: null,
      others: null,
      error: null,
    };
    const aborting = new AbortController();
    const kept: Kept = {
      shown,
      aborting,
      ended: Promise.resolve().then(() => this.#run(kept, request, filter)),
    };
    this.#all.set(id, kept);
    this.#forgetOld();
    await this.#within(kept.ended);
    return kept.shown;
  }

  find(id: string): Shown | undefined {
    return this.#all.get(id)?.shown;
  }

  /** The newest first. */
  list(): Shown[] {
    return [...this.#all.values()].map(({ shown }) => shown).reverse();
  }

  /**
   * Ends it after the batch under way; answers it when that is done, or after a second.
   * @throws AdminProblem `NOT_FOUND`, `NOT_RUNNING`
   */
  async cancel(id: string): Promise<Shown> {
    const kept = this.#all.get(id);
    if (kept === undefined) throw new AdminProblem('NOT_FOUND');
    if (kept.shown.state !== 'running') throw new AdminProblem('NOT_RUNNING');
    kept.aborting.abort();
    await this.#within(kept.ended);
    return kept.shown;
  }

  /** Cancels them all, and waits for the batches under way. */
  async close(): Promise<void> {
    this.#closing.abort();
    for (const { aborting } of this.#running()) aborting.abort();
    await Promise.all([...this.#all.values()].map(({ ended }) => ended));
  }

  async #run(kept: Kept, request: OperationRequest, filter: DeadLetterFilter): Promise<void> {
    const { signal } = kept.aborting;
    const change = (changed: Partial<Shown>) => {
      kept.shown = { ...kept.shown, ...changed };
      this.#onChange(kept.shown);
    };
    try {
      await work(request, filter, signal, change);
      change({ state: signal.aborted ? 'cancelled' : 'done', endedAt: this.#now() });
    } catch (error) {
      change({ state: 'failed', endedAt: this.#now(), error: problemOf(error).message });
    }
  }

  async #within(ended: Promise<void>): Promise<void> {
    const over = new AbortController();
    await Promise.race([
      ended.then(() => over.abort()),
      sleep(this.#timers, ADMIN_OPERATION_WAIT_MS, over.signal),
    ]);
  }

  #running(): Kept[] {
    return [...this.#all.values()].filter(({ shown }) => shown.state === 'running');
  }

  #forgetOld(): void {
    for (const [id, { shown }] of this.#all) {
      if (this.#all.size <= ADMIN_OPERATIONS_KEPT_MAX) return;
      if (shown.state !== 'running') this.#all.delete(id);
    }
  }

  #now(): string {
    return new Date(this.#clock.wall()).toISOString();
  }
}

const NO_COUNTS = { looked: 0, matched: 0, written: 0, keyTaken: 0, changed: 0 };

async function work(
  { kind, dryRun, operator }: OperationRequest,
  filter: DeadLetterFilter,
  signal: AbortSignal,
  change: (changed: Partial<Shown>) => void,
): Promise<void> {
  if (dryRun) {
    const { looked, matched, keyTaken, groups, others } = await operator.previewMany(filter, {
      signal,
      onProgress: (soFar) => change({ counts: { ...NO_COUNTS, ...soFar } }),
    });
    const shownGroups = groups.map(({ type, error, count, keyTaken: taken }) => ({
      type,
      error: error ?? null,
      count,
      keyTaken: taken,
    }));
    // What is in the way of a replay is in no drop's way.
    const counts = { ...NO_COUNTS, looked, matched, keyTaken: kind === 'replay' ? keyTaken : 0 };
    change({ counts, groups: shownGroups, others });
  } else if (kind === 'replay') {
    const show = ({
      looked,
      matched,
      replayed,
      keyTaken,
      changed,
    }: Awaited<ReturnType<Operator['replayMany']>>) =>
      change({ counts: { looked, matched, written: replayed, keyTaken, changed } });
    show(await operator.replayMany(filter, { signal, onProgress: show }));
  } else {
    const show = ({ looked, matched, dropped, changed }: Awaited<ReturnType<Operator['dropMany']>>) =>
      change({ counts: { looked, matched, written: dropped, keyTaken: 0, changed } });
    show(await operator.dropMany(filter, { signal, onProgress: show }));
  }
}

export function toFilter(given: Wire<'DeadFilter'>): DeadLetterFilter {
  const { type, queue, error, olderThan, newerThan } = given;
  return {
    ...(type === undefined ? {} : { type }),
    ...(queue === undefined ? {} : { queue }),
    ...(error === undefined ? {} : { error }),
    ...(olderThan === undefined ? {} : { olderThan: olderThan as Duration }),
    ...(newerThan === undefined ? {} : { newerThan: newerThan as Duration }),
  };
}
