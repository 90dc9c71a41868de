import type { Handlers } from '../../generated/tasks.ts';
import { deadlineTransaction } from './deadline-transaction.ts';
import { readFinishedRun } from './finished-run.ts';
import { publishEdges } from './publish-edges.ts';
import type { HandlerServices } from './services.ts';

/** Publishes the edges that a stack's finished run has found; drops itself when a newer generation is published. */
export function dependencyGraphReconcile(
  services: Pick<HandlerServices, 'primary' | 'objects'>,
): Handlers['dependency_graph_reconcile'] {
  return async (snapshot, context) => {
    // Before the transaction: nobody should wait for a row while an object store answers.
    const run = await readFinishedRun(services, snapshot, context);
    if (run !== undefined) {
      await deadlineTransaction(services.primary, context, (tx) => publishEdges(tx, run));
    }
    return 'done';
  };
}
