import { z } from 'zod';
import { defineTask } from '../index.ts';

/** Requests a run of every stack that depends on the one which was deployed. */
export const dependentTriggersResolve = defineTask({
  type: 'dependent_triggers_resolve',
  payload: z.strictObject({ stackId: z.uuid(), generation: z.int().positive() }),
  ceiling: '5m',
});
