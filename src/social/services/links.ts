import { sql } from 'kysely';
import { deleteBatch, inBatches } from './batches.ts';
import { concurrently } from './concurrently.ts';
import { type LinkPreview, type LinkPreviewer, PageUnusable } from './link-preview.ts';
import {
  type RunLimits,
  type SocialDatabase,
  type SocialTransaction,
  transactionWithin,
} from './run-limits.ts';

/** The run that enriches: its task takes from the quota once, however often it runs. */
export interface EnrichmentRun extends RunLimits {
  readonly taskId: string;
}

export type EnrichOutcome =
  | { readonly kind: 'enriched'; readonly links: number }
  | { readonly kind: 'skipped'; readonly why: string };

type Reservation =
  | { readonly kind: 'reserved'; readonly links: readonly { readonly id: string; readonly url: string }[] }
  | { readonly kind: 'skipped'; readonly why: string };

/** Pages fetched at once. */
const FETCHES_AT_ONCE = 4;
/** What a person may spend is counted over so long. */
const QUOTA_HOURS = 24;
/** A link is written before the item that refers to it: younger ones are no garbage yet. */
const UNUSED_MINUTES = 60;

/** The pages that items refer to. */
export class Links {
  readonly #db: SocialDatabase;
  readonly #previewer: LinkPreviewer;

  constructor(db: SocialDatabase, previewer: LinkPreviewer) {
    this.#db = db;
    this.#previewer = previewer;
  }

  /**
   * Fetches what an item's links are about; with `force` also of those that are enriched. The quota is taken, and the
   * item locked against every other task, before the first page is fetched.
   * @throws Error when a page could not be fetched this time, or while another task enriches the item
   */
  async enrich(itemId: string, force: boolean, run: EnrichmentRun): Promise<EnrichOutcome> {
    const reserved = await transactionWithin(this.#db, run, (tx) => reserve(tx, itemId, force, run));
    if (reserved.kind === 'skipped') return reserved;
    await concurrently(reserved.links, FETCHES_AT_ONCE, (link) => this.#enrichLink(link, run));
    await transactionWithin(this.#db, run, (tx) => release(tx, itemId, run));
    return { kind: 'enriched', links: reserved.links.length };
  }

  /** Deletes the links that no item refers to. Deleting an item lets go of its links without a word. */
  async sweepUnused(limits: RunLimits): Promise<number> {
    return inBatches(this.#db, limits, async (tx) => {
      const isOld = sql`created_at < now() - make_interval(mins => ${sql.lit(UNUSED_MINUTES)})`;
      const isUsed = sql`EXISTS (SELECT FROM item_links WHERE link_id = parsed_links.id)`;
      // Should an item take one up in this very moment, the foreign key refuses the batch, and the task is tried again.
      const { deleted } = await deleteBatch(tx, {
        from: 'parsed_links',
        where: sql`${isOld} AND NOT ${isUsed}`,
      });
      return deleted;
    });
  }

  // Each page is written as soon as it is there: a retry fetches only those that are missing.
  async #enrichLink(link: { readonly id: string; readonly url: string }, run: EnrichmentRun): Promise<void> {
    const found = await this.#previewOrProblem(link.url, run.signal);
    await transactionWithin(this.#db, run, (tx) =>
      tx
        .updateTable('parsed_links')
        .set({
          title: found.title ?? null,
          description: found.description ?? null,
          problem: found.problem ?? null,
          enriched_at: sql<Date>`clock_timestamp()`,
        })
        .where('id', '=', link.id)
        .execute(),
    );
  }

  async #previewOrProblem(
    url: string,
    signal: AbortSignal,
  ): Promise<LinkPreview & { readonly problem?: string }> {
    try {
      return await this.#previewer.preview(url, signal);
    } catch (error) {
      if (!(error instanceof PageUnusable)) throw error;
      return { title: undefined, description: undefined, problem: error.message };
    }
  }
}

/** Locks the item for this task, and takes its links from the owner's quota. */
async function reserve(
  tx: SocialTransaction,
  itemId: string,
  force: boolean,
  run: EnrichmentRun,
): Promise<Reservation> {
  const item = await tx
    .selectFrom('items')
    .innerJoin('accounts', 'accounts.id', 'items.account_id')
    .select(({ eb }) => [
      'items.account_id',
      'accounts.enrichment_quota',
      'items.enriching_task_id',
      eb('items.enriching_until', '>', sql<Date>`now()`).as('is_locked'),
    ])
    .where('items.id', '=', itemId)
    // The account too: two items of one account must not both find the same rest of its quota.
    .forNoKeyUpdate()
    .executeTakeFirst();
  if (item === undefined) return { kind: 'skipped', why: 'the item is gone' };
  // A second run of the same task has the lock already: the lease says that the first one is over.
  if (item.is_locked === true && item.enriching_task_id !== run.taskId) {
    // Not done with it: the other one may have begun before this one's links were there. Its retry finds what is left.
    throw new Error(`task ${item.enriching_task_id} enriches this item: this one takes its turn behind it`);
  }
  const links = await linksToFetch(tx, itemId, force, run.taskId);
  if (links.length === 0) return { kind: 'skipped', why: 'every link is enriched' };
  const isPaid = await spend(tx, { taskId: run.taskId, links: links.length, item });
  if (!isPaid) return { kind: 'skipped', why: 'the quota is used up' };
  await tx
    .updateTable('items')
    .set({
      enriching_task_id: run.taskId,
      enriching_until: sql<Date>`now() + make_interval(secs => ${Math.max(0, run.remainingMs()) / 1_000})`,
    })
    .where('id', '=', itemId)
    .execute();
  return { kind: 'reserved', links };
}

/** Those that were never enriched; with `force` also those that were, but not by an earlier run of this very task. */
function linksToFetch(tx: SocialTransaction, itemId: string, force: boolean, taskId: string) {
  return tx
    .selectFrom('item_links')
    .innerJoin('parsed_links', 'parsed_links.id', 'item_links.link_id')
    .leftJoin('enrichment_spends', (join) => join.on('enrichment_spends.task_id', '=', taskId))
    .select(['parsed_links.id', 'parsed_links.url'])
    .where('item_links.item_id', '=', itemId)
    .where(({ eb, or, and, ref }) =>
      or([
        eb('parsed_links.enriched_at', 'is', null),
        and([
          eb.val(force),
          or([
            eb('enrichment_spends.spent_at', 'is', null),
            eb('parsed_links.enriched_at', '<', ref('enrichment_spends.spent_at')),
          ]),
        ]),
      ]),
    )
    .orderBy('parsed_links.url')
    .execute();
}

interface Spend {
  readonly taskId: string;
  readonly links: number;
  readonly item: { readonly account_id: string; readonly enrichment_quota: number };
}

/** Takes from the quota, once for a task. False: there is not enough left, and nothing was taken. */
async function spend(tx: SocialTransaction, { taskId, links, item }: Spend): Promise<boolean> {
  const { rows } = await sql<{ spent: number; is_paid: boolean }>`
    SELECT
      coalesce(sum(links), 0)::int AS spent,
      EXISTS (SELECT FROM enrichment_spends WHERE task_id = ${taskId}) AS is_paid
    FROM enrichment_spends
    WHERE account_id = ${item.account_id}
      AND spent_at > now() - make_interval(hours => ${sql.lit(QUOTA_HOURS)})`.execute(tx);
  const { spent = 0, is_paid = false } = rows[0] ?? {};
  if (is_paid) return true;
  if (spent + links > item.enrichment_quota) return false;
  await tx
    .insertInto('enrichment_spends')
    .values({ task_id: taskId, account_id: item.account_id, links })
    .execute();
  return true;
}

async function release(tx: SocialTransaction, itemId: string, { taskId }: EnrichmentRun): Promise<void> {
  await tx
    .updateTable('items')
    .set({ enriching_task_id: null, enriching_until: null })
    .where('id', '=', itemId)
    .where('enriching_task_id', '=', taskId)
    .execute();
}
