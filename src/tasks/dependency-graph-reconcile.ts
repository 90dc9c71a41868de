import { z } from 'zod';
import { defineTask } from '../index.ts';

/** Publishes a stack's edges in the dependency graph, as its finished run of `generation` found them. */
export const dependencyGraphReconcile = defineTask({
  type: 'dependency_graph_reconcile',
  payload: z.strictObject({
    stackId: z.uuid(),
    // Tasks of one stack run in any order, on any replica: the generation tells the older from the newer.
    generation: z.int().positive(),
  }),
  ceiling: '5m',
});
