import { type CheckedFilter, checkFilter, type DeadLetterFilter } from '../domain/dead-letter-filter.ts';
import { TaskqError } from '../domain/errors.ts';
import { DEAD_BATCH_MAX, DEAD_GROUPS_MAX, DEAD_GROUPS_SHOWN } from '../domain/limits.ts';
import {
  beginWalk,
  type DeadPage,
  type Deed,
  dropBatch,
  type Found,
  findMatches,
  groupMatches,
  type MatchGroup,
  nextPage,
  replayBatch,
} from '../statements/dead-bulk.ts';
import { filterValues } from '../statements/dead-filter.ts';
import type { ReadLane, WriteLane } from '../statements/lanes.ts';
import type { Values } from '../statements/statement.ts';

/** How far a walk through the dead letters is. */
export interface Looked {
  /** Dead letters looked at. */
  readonly looked: number;
  /** Of those, how many the filter matches. */
  readonly matched: number;
}

/** `matched` is the sum of the others. */
export interface ReplayedMany extends Looked {
  readonly replayed: number;
  /** Stay dead letters: a live task has their unique key, or another of them got it. */
  readonly keyTaken: number;
  /** Replayed, claimed or deleted by somebody else meanwhile, or locked by somebody: left alone. */
  readonly changed: number;
}

/** `matched` is the sum of the others. */
export interface DroppedMany extends Looked {
  readonly dropped: number;
  readonly changed: number;
}

/** What a replay of all that match would meet. */
export interface DeadLetterPreview extends Looked {
  /** How many have a unique key that a live task has now, or another of them gets. */
  readonly keyTaken: number;
  /** The most frequent kinds, twenty at the most, the most frequent first. */
  readonly groups: readonly MatchGroup[];
  /** Those of other kinds. */
  readonly others: number;
}

export interface WalkOptions<Progress extends Looked> {
  /** Told after each page how far it is. */
  readonly onProgress?: ((soFar: Progress) => void) | undefined;
  /** Ends it after the batch under way. */
  readonly signal?: AbortSignal | undefined;
}

export interface BulkOptions<Progress extends Looked> extends WalkOptions<Progress> {
  /** Dead letters of one transaction, 1 to 200; default 200. */
  readonly batch?: number | undefined;
}

/**
 * Replays every dead letter that the filter matches, in batches, and answers what became of them; aborted, of those
 * so far. One that dies again meanwhile is not replayed again.
 * @throws TaskqError `OPTION_INVALID`, `DURATION_INVALID`; database errors as they are, with what was done before done
 */
export async function replayMany(
  write: WriteLane,
  actor: string,
  filter: DeadLetterFilter,
  options: BulkOptions<ReplayedMany> = {},
): Promise<ReplayedMany> {
  let done: ReplayedMany = { looked: 0, matched: 0, replayed: 0, keyTaken: 0, changed: 0 };
  await inBatches(
    write,
    { actor, filter, ...options },
    {
      looked(count) {
        done = { ...done, looked: done.looked + count };
      },
      async write(found, deed) {
        const { replayed, keyTaken, changed } = await replayBatch(write, found, deed);
        done = {
          looked: done.looked,
          matched: done.matched + found.length,
          replayed: done.replayed + replayed,
          keyTaken: done.keyTaken + keyTaken,
          changed: done.changed + changed,
        };
      },
      pageDone: () => options.onProgress?.(done),
    },
  );
  return done;
}

/** Deletes every dead letter that the filter matches, as `replayMany` replays them. */
export async function dropMany(
  write: WriteLane,
  actor: string,
  filter: DeadLetterFilter,
  options: BulkOptions<DroppedMany> = {},
): Promise<DroppedMany> {
  let done: DroppedMany = { looked: 0, matched: 0, dropped: 0, changed: 0 };
  await inBatches(
    write,
    { actor, filter, ...options },
    {
      looked(count) {
        done = { ...done, looked: done.looked + count };
      },
      async write(found, deed) {
        const { dropped, changed } = await dropBatch(write, found, deed);
        done = {
          looked: done.looked,
          matched: done.matched + found.length,
          dropped: done.dropped + dropped,
          changed: done.changed + changed,
        };
      },
      pageDone: () => options.onProgress?.(done),
    },
  );
  return done;
}

/** What `replayMany` would do now, by type and error. Writes nothing. */
export async function previewMany(
  read: ReadLane,
  filter: DeadLetterFilter,
  { onProgress, signal }: WalkOptions<Looked> = {},
): Promise<DeadLetterPreview> {
  const tally = new Tally();
  let looked = 0;
  await walk(read, checkFilter(filter), signal, async (page, matches) => {
    for (const group of await groupMatches(read, page, matches)) tally.add(group);
    looked += page.looked;
    onProgress?.({ looked, matched: tally.matched });
  });
  return { looked, ...tally.report() };
}

interface Work {
  looked(count: number): void;
  write(found: readonly Found[], deed: Deed): Promise<void>;
  pageDone(): void;
}

async function inBatches(
  write: WriteLane,
  of: {
    readonly actor: string;
    readonly filter: DeadLetterFilter;
    readonly batch?: number | undefined;
    readonly signal?: AbortSignal | undefined;
  },
  work: Work,
): Promise<void> {
  const { actor, filter, signal, batch = DEAD_BATCH_MAX } = of;
  if (!Number.isInteger(batch) || batch < 1 || batch > DEAD_BATCH_MAX) {
    throw new TaskqError('OPTION_INVALID', `batch: expected a whole number from 1 to ${DEAD_BATCH_MAX}`);
  }
  await walk(write, checkFilter(filter), signal, async (page, matches) => {
    const found = await findMatches(write, page, matches);
    work.looked(page.looked);
    for (let from = 0; from < found.length && signal?.aborted !== true; from += batch) {
      await work.write(found.slice(from, from + batch), { actor, filter, matches });
    }
    work.pageDone();
  });
}

async function walk<Lane extends ReadLane | WriteLane>(
  lane: Lane,
  filter: CheckedFilter,
  signal: AbortSignal | undefined,
  visit: (page: DeadPage, matches: Values) => Promise<void>,
): Promise<void> {
  const begun = await beginWalk(lane);
  if (begun === undefined) return;
  const matches = filterValues(filter, begun.asOf);
  for (let afterId = '0'; signal?.aborted !== true; ) {
    const page = await nextPage(lane, begun, afterId);
    if (page === undefined) return;
    await visit(page, matches);
    afterId = page.lastId;
  }
}

/** Groups as they come, so many at the most: errors that all differ must not fill the memory. */
class Tally {
  readonly #groups = new Map<string, MatchGroup>();
  #untold = 0;
  #keyTaken = 0;
  matched = 0;

  add(group: MatchGroup): void {
    this.matched += group.count;
    this.#keyTaken += group.keyTaken;
    const key = JSON.stringify([group.type, group.error]);
    const before = this.#groups.get(key);
    if (before === undefined && this.#groups.size >= DEAD_GROUPS_MAX) this.#untold += group.count;
    else {
      const { count = 0, keyTaken = 0 } = before ?? {};
      this.#groups.set(key, {
        ...group,
        count: count + group.count,
        keyTaken: keyTaken + group.keyTaken,
      });
    }
  }

  report(): Omit<DeadLetterPreview, 'looked'> {
    const byCount = [...this.#groups.values()].sort((left, right) => right.count - left.count);
    const rest = byCount.slice(DEAD_GROUPS_SHOWN).reduce((sum, { count }) => sum + count, 0);
    return {
      matched: this.matched,
      keyTaken: this.#keyTaken,
      groups: byCount.slice(0, DEAD_GROUPS_SHOWN),
      others: rest + this.#untold,
    };
  }
}
