import { z } from 'zod';
import { defineTask } from '../index.ts';

/** Removes a deleted stack's rows from the Explore database. */
export const explorePurge = defineTask({
  type: 'explore_purge',
  payload: z.strictObject({ stackId: z.uuid() }),
  ceiling: '5m',
});
