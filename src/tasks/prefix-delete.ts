import { z } from 'zod';
import { type Duration, defineTask } from '../index.ts';

/**
 * How far ahead prefix deletes are enqueued: long enough that nothing can still be writing below the prefix when the
 * clean-up fires, and that a replica has long seen who owns it.
 */
export const PREFIX_DELETE_DELAY: Duration = '30m';

/** Deletes the objects below a prefix that a deleted stack left behind. */
export const prefixDelete = defineTask({
  type: 'prefix_delete',
  payload: z.strictObject({
    // One stack's whole prefix and nothing else. Without the slash `stacks/a` would take `stacks/ab/` along, and
    // an empty prefix, or that of all stacks, everything.
    prefix: z.string().regex(/^stacks\/[A-Za-z0-9_-]+\/$/, "expected one stack's prefix: stacks/KEY/"),
  }),
  ceiling: '1h',
});
