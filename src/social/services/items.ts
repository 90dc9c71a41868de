import { sql } from 'kysely';
import { enqueue } from '../../../generated/social/tasks.ts';
import { parseCapture } from './capture-parser.ts';
import { concurrently } from './concurrently.ts';
import {
  type RunLimits,
  type SocialDatabase,
  type SocialTransaction,
  transactionWithin,
} from './run-limits.ts';

/** Links of one capture that are written at once; each takes a connection of the app's pool. */
const LINKS_AT_ONCE = 4;

/** `superseded`: the item was edited meanwhile, and the edit has a task of its own. */
export type ParseOutcome = 'parsed' | 'superseded' | 'gone';

/** What people plan, as they captured it. */
export class Items {
  readonly #db: SocialDatabase;

  constructor(db: SocialDatabase) {
    this.#db = db;
  }

  /** Reads title, tags and links out of a capture. Run again, it writes the same. */
  async parse(itemId: string, limits: RunLimits): Promise<ParseOutcome> {
    const item = await transactionWithin(this.#db, limits, (tx) =>
      tx.selectFrom('items').select(['capture', 'revision']).where('id', '=', itemId).executeTakeFirst(),
    );
    if (item === undefined) return 'gone';
    const { title, tags, urls } = parseCapture(item.capture);
    // Links are shared between items, so each is written by itself; one that nobody refers to is swept.
    const linkIds = await concurrently(urls, LINKS_AT_ONCE, (url) =>
      transactionWithin(this.#db, limits, (tx) => linkId(tx, url)),
    );
    return transactionWithin(this.#db, limits, async (tx) => {
      const { numUpdatedRows } = await tx
        .updateTable('items')
        .set({ title, tags: [...tags], parsed_revision: item.revision })
        .where('id', '=', itemId)
        .where('revision', '=', item.revision)
        .executeTakeFirst();
      if (numUpdatedRows === 0n) return 'superseded';
      await tx.deleteFrom('item_links').where('item_id', '=', itemId).execute();
      if (linkIds.length === 0) return 'parsed';
      const links = linkIds.map((link_id) => ({ item_id: itemId, link_id }));
      await tx.insertInto('item_links').values(links).execute();
      await enqueue(tx, 'link:enrich', { itemId });
      return 'parsed';
    });
  }
}

/** The row of a link, there already or new. */
async function linkId(tx: SocialTransaction, url: string): Promise<string> {
  // The update that changes nothing locks the row, so that the sweep of unused links passes it over.
  const { id } = await tx
    .insertInto('parsed_links')
    .values({ url })
    .onConflict((conflict) => conflict.column('url').doUpdateSet({ url }))
    .returning('id')
    .executeTakeFirstOrThrow();
  return id;
}

/** A new item and the task that parses it, in one transaction. */
export async function createItem(
  tx: SocialTransaction,
  item: { readonly accountId: string; readonly capture: string },
): Promise<string> {
  const { id } = await tx
    .insertInto('items')
    .values({ account_id: item.accountId, capture: item.capture })
    .returning('id')
    .executeTakeFirstOrThrow();
  await enqueue(tx, 'item:parse', { itemId: id });
  return id;
}

/** Edits that come while a task waits share it; one that comes while it runs has another. */
export async function editItem(tx: SocialTransaction, itemId: string, capture: string): Promise<void> {
  await tx
    .updateTable('items')
    .set({ capture, revision: sql`revision + 1` })
    .where('id', '=', itemId)
    .execute();
  await enqueue(tx, 'item:parse', { itemId });
}

/** Has all links of an item fetched again, whatever is enqueued for it already. */
export async function reparseLinks(tx: SocialTransaction, itemId: string): Promise<void> {
  await enqueue(tx, 'link:enrich', { itemId, force: true }, { unique: false });
}
