import { PRUNE_BATCH, PRUNE_INTERVAL_MS } from '../domain/limits.ts';
import type { Observer } from '../domain/observer.ts';
import { toError } from '../domain/thrown.ts';
import { sleep, type Timers } from '../domain/time.ts';
import { pruneAudit } from '../statements/audit.ts';
import { pruneCompleted } from '../statements/completed.ts';
import { pruneTicks } from '../statements/cron.ts';
import { pruneKeys } from '../statements/keys.ts';
import type { WriteLane } from '../statements/lanes.ts';
import { pruneDead } from '../statements/prune.ts';

export interface PrunerDeps {
  readonly write: WriteLane;
  readonly retentionMs: number;
  readonly timers: Timers;
  readonly observe: Observer;
  /** From 0 to 1; spreads the replicas over the hour. */
  readonly random: () => number;
}

/**
 * Deletes dead letters past their retention, records of finished tasks past theirs, and the unused keys of unique
 * enqueues, hourly, in batches. Every replica does it and none leads:
 * rows that another has locked are skipped, and an hour in which all fail costs nothing but space.
 */
export class Pruner {
  readonly #deps: PrunerDeps;
  readonly #stopping = new AbortController();
  #running: Promise<void> | undefined;

  constructor(deps: PrunerDeps) {
    this.#deps = deps;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  /** Lets the batch under way finish. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { timers, observe, random } = this.#deps;
    const stopping = this.#stopping.signal;
    await sleep(timers, random() * FIRST_WAIT_MS_MAX, stopping);
    while (!stopping.aborted) {
      try {
        await pruneUnusedKeys(this.#deps.write, stopping);
        await pruneOldAudit(this.#deps.write, stopping);
        await pruneOldTicks(this.#deps.write, stopping);
        const deleted = await pruneAll(this.#deps, stopping);
        const completed = await pruneAllCompleted(this.#deps.write, stopping);
        if (deleted > 0 || completed > 0) observe({ kind: 'pruned', deleted, completed });
      } catch (error) {
        observe({
          kind: 'database_failed',
          during: 'prune',
          error: toError(error),
          retryMs: PRUNE_INTERVAL_MS,
        });
      }
      await sleep(timers, PRUNE_INTERVAL_MS * (0.9 + 0.2 * random()), stopping);
    }
  }
}

/** The first prune comes soon after the start, but not in every replica of a rollout at once. */
const FIRST_WAIT_MS_MAX = 300_000;

/** Deletes every dead letter past `retentionMs` and answers how many there were. */
export async function pruneAll(
  { write, retentionMs }: Pick<PrunerDeps, 'write' | 'retentionMs'>,
  stopping?: AbortSignal,
  onProgress?: (deleted: number) => void,
): Promise<number> {
  let total = 0;
  for (let afterId: string | undefined = '0'; afterId !== undefined && stopping?.aborted !== true; ) {
    const batch = await pruneDead(write, retentionMs, afterId);
    total += batch.deleted;
    afterId = batch.nextAfterId;
    onProgress?.(total);
  }
  return total;
}

/** Deletes every record that was to be kept until a moment that has passed, and answers how many there were. */
export async function pruneAllCompleted(
  write: WriteLane,
  stopping?: AbortSignal,
  onProgress?: (deleted: number) => void,
): Promise<number> {
  let total = 0;
  for (let after: string | undefined = '0'; after !== undefined && stopping?.aborted !== true; ) {
    const batch = await pruneCompleted(write, after);
    total += batch.deleted;
    after = batch.nextAfterMicros;
    if (batch.deleted > 0) onProgress?.(total);
  }
  return total;
}

/** Deletes the ticks of cron entries that are past their time; see `pruneTicks`. */
export async function pruneOldTicks(write: WriteLane, stopping?: AbortSignal): Promise<void> {
  for (let hasMore = true; hasMore && stopping?.aborted !== true; ) ({ hasMore } = await pruneTicks(write));
}

/**
 * Deletes the keys that no enqueue needs any more and answers how many there were. A look at every key there is:
 * about ten seconds of one connection for a million of them, in statements of some 40 ms.
 */
export async function pruneUnusedKeys(write: WriteLane, stopping?: AbortSignal): Promise<number> {
  let total = 0;
  for (let after: string | undefined = ''; after !== undefined && stopping?.aborted !== true; ) {
    const batch = await pruneKeys(write, after);
    total += batch.deleted;
    after = batch.nextAfterKey;
  }
  return total;
}

/** Deletes what operators did more than a year ago from the audit. */
export async function pruneOldAudit(write: WriteLane, stopping?: AbortSignal): Promise<void> {
  for (let deleted = PRUNE_BATCH; deleted === PRUNE_BATCH && stopping?.aborted !== true; ) {
    deleted = await pruneAudit(write);
  }
}
