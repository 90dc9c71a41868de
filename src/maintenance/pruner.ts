import { PRUNE_INTERVAL_MS } from '../domain/limits.ts';
import type { Observer } from '../domain/observer.ts';
import { toError } from '../domain/thrown.ts';
import { sleep, type Timers } from '../domain/time.ts';
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
 * Deletes dead letters past their retention, hourly, in batches. Every replica does it and none leads:
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
        const deleted = await pruneAll(this.#deps, stopping);
        if (deleted > 0) observe({ kind: 'pruned', deleted });
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
