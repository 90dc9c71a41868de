// Tasks that take objects out of the object store.
import { z } from 'zod';
import { defineTask } from '../../index.ts';

/** Deletes one asset's object. */
export const s3Delete = defineTask({
  type: 'cleanup:s3_delete',
  payload: z.strictObject({ key: z.string(), triggered: z.date() }),
  queue: 'low',
  ceiling: '5m',
  maxAttempts: 4,
  // A sweep that is run again, or twice at once, leaves one delete for each key.
  unique: { by: ['key'], while: 'live' },
});

/** Looks through one prefix for objects that no row owns. Asked for by an administrator, never scheduled. */
export const s3OrphanSweep = defineTask({
  type: 'cleanup:s3_orphan_sweep',
  payload: z.strictObject({ prefix: z.string().optional(), triggered: z.date() }),
  queue: 'low',
  ceiling: '30m',
  maxAttempts: 4,
  cursor: z.strictObject({ afterKey: z.string(), listed: z.int(), orphans: z.int() }),
});
