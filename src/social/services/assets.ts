import { sql } from 'kysely';
import { enqueue, enqueueMany } from '../../../generated/social/tasks.ts';
import type { CallerTransaction, Enqueued } from '../../index.ts';
import { type Owner, ownerOf } from './asset-prefixes.ts';
import type { FileStorage, ListedObject } from './file-storage.ts';
import { type RunLimits, type SocialDatabase, transactionWithin } from './run-limits.ts';

/** Where a sweep stands between two slices. */
export interface SweepPosition {
  readonly afterKey: string;
  readonly listed: number;
  readonly orphans: number;
}

export interface SweepSlice extends SweepPosition {
  readonly isEnd: boolean;
}

export interface AssetOptions {
  readonly db: SocialDatabase;
  readonly storage: FileStorage;
  /**
   * An object is no orphan before it is this old: its upload comes first, and the row that owns it is committed later.
   * Default a day.
   */
  readonly orphanAgeMs?: number;
}

/** Pages of one slice; behind them the slot is free for others, and the position is committed. */
const PAGES_PER_SLICE = 10;
const ORPHAN_AGE_MS = 86_400_000;

/** Deletes assets, and finds those that no row owns. */
export class Assets {
  readonly #db: SocialDatabase;
  readonly #storage: FileStorage;
  readonly #orphanAgeMs: number;

  constructor({ db, storage, orphanAgeMs = ORPHAN_AGE_MS }: AssetOptions) {
    this.#db = db;
    this.#storage = storage;
    this.#orphanAgeMs = orphanAgeMs;
  }

  /** Only an S3 store can be swept; the folder of a developer's machine is left alone. */
  get isSwept(): boolean {
    return this.#storage.kind === 's3';
  }

  async delete(key: string, signal: AbortSignal): Promise<void> {
    await this.#storage.delete(key, signal);
  }

  /**
   * Looks through the next pages of a prefix and enqueues one `cleanup:s3_delete` for each object without an owner.
   * Deletes nothing itself, so that each key has retries of its own.
   */
  async sweepSlice(prefix: string, from: SweepPosition | undefined, limits: RunLimits): Promise<SweepSlice> {
    const owner = ownerOf(prefix);
    if (owner === undefined || this.#storage.kind !== 's3') throw new Error(`${prefix} cannot be swept`);
    const { signal } = limits;
    const youngest = Date.now() - this.#orphanAgeMs;
    let { afterKey, listed, orphans } = from ?? { afterKey: '', listed: 0, orphans: 0 };
    let token: string | undefined;
    // The position behind an empty page has no name yet, so that an empty page never ends a slice.
    for (let pages = 0; pages < PAGES_PER_SLICE; ) {
      const page = await this.#storage.listPage({ prefix, afterKey: afterKey || undefined, token, signal });
      const old = page.objects.filter(({ lastModified }) => lastModified.getTime() <= youngest);
      orphans += await this.#enqueueOrphans(owner, old, limits);
      listed += page.objects.length;
      afterKey = page.objects.at(-1)?.key ?? afterKey;
      if (page.next === undefined) return { afterKey, listed, orphans, isEnd: true };
      token = page.next;
      if (page.objects.length > 0) pages += 1;
    }
    return { afterKey, listed, orphans, isEnd: false };
  }

  async #enqueueOrphans(owner: Owner, objects: readonly ListedObject[], limits: RunLimits): Promise<number> {
    if (objects.length === 0) return 0;
    return transactionWithin(this.#db, limits, async (tx) => {
      // Asked after the page was listed, and of every row: one that is only marked as deleted still owns its object.
      const { rows } = await sql<{ key: string }>`
        SELECT key FROM unnest(${objects.map(({ key }) => key)}::text[]) AS listed (key)
        WHERE NOT EXISTS (
          SELECT FROM ${sql.table(owner.table)} WHERE ${sql.ref(owner.column)} = listed.key
        )`.execute(tx);
      await enqueueAssetDeletes(
        tx,
        rows.map(({ key }) => key),
      );
      return rows.length;
    });
  }
}

/** One delete for each key, in the transaction that took away the row that owned it. */
export async function enqueueAssetDeletes(tx: CallerTransaction, keys: readonly string[]): Promise<void> {
  const triggered = new Date();
  await enqueueMany(
    tx,
    'cleanup:s3_delete',
    keys.map((key) => ({ key, triggered })),
  );
}

/** Asks for a sweep of one prefix. Undefined for a prefix that is not swept: curated, unknown, or no whole prefix. */
export async function requestOrphanSweep(
  tx: CallerTransaction,
  prefix: string,
): Promise<Enqueued | undefined> {
  if (ownerOf(prefix) === undefined) return undefined;
  return enqueue(tx, 'cleanup:s3_orphan_sweep', { prefix, triggered: new Date() });
}
