import { z } from 'zod';
import { defineTask } from '../index.ts';

/** Rebuilds the resource index of an organisation, stack by stack, in slices of two minutes. */
export const resourceIndexRebuild = defineTask({
  type: 'resource_index_rebuild',
  payload: z.strictObject({ organisationId: z.uuid() }),
  // Stacks are walked in the order of their ids; this one and all before it are done.
  cursor: z.strictObject({ afterStackId: z.uuid() }),
  // A slice, and one of the two things that can overrun it (a pathological stack, a slow page); not both.
  ceiling: '10m',
  // A sweep adds nothing while the rebuild of the sweep before is still under way.
  unique: { by: ['organisationId'], while: 'live' },
});
