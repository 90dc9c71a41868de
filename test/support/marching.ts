import { z } from 'zod';
import { defineTask } from '../../src/index.ts';

/** A walk over the numbers from 1 to `items`, `page` of them at a time. */
export const marching = defineTask({
  type: 'marching',
  payload: z.object({ items: z.number().int(), page: z.number().int() }),
  cursor: z.object({ after: z.number().int() }),
  ceiling: '5m',
});
