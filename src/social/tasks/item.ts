// Tasks of plan items: what a person captured, and the links in it.
import { z } from 'zod';
import { defineTask } from '../../index.ts';

/** Parses what was captured into title, tags and links. */
export const itemParse = defineTask({
  type: 'item:parse',
  payload: z.strictObject({ itemId: z.uuid() }),
  queue: 'default',
  ceiling: '3m',
  // Only a waiting task stands in the way: an edit made while the handler runs must get a run of its own.
  unique: { by: ['itemId'], while: 'waiting' },
});

/** Fetches what an item's links are about. Spends the owner's enrichment quota. */
export const linkEnrich = defineTask({
  type: 'link:enrich',
  payload: z.strictObject({
    itemId: z.uuid(),
    /** Fetches links again that are enriched already; enqueued with `unique: false`, by `reparseLinks`. */
    force: z.boolean().default(false),
  }),
  queue: 'low',
  ceiling: '3m',
  // Not 'live': links of an edit that comes while the earlier ones are fetched must be fetched, too.
  unique: { by: ['itemId'], while: 'waiting' },
});
