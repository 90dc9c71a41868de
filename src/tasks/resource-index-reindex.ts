import { z } from 'zod';
import { defineTask } from '../index.ts';

/** Publishes the resources of one stack in the index, as its run of `generation` found them. */
export const resourceIndexReindex = defineTask({
  type: 'resource_index_reindex',
  payload: z.strictObject({ stackId: z.uuid(), generation: z.int().positive() }),
  ceiling: '5m',
});
