import type { Handlers } from '../../generated/tasks.ts';
import { deadlineTransaction } from './deadline-transaction.ts';
import { readFinishedRun } from './finished-run.ts';
import { publishResources } from './publish-resources.ts';
import type { HandlerServices } from './services.ts';

/** Publishes the resources that a stack's finished run has found; drops itself when a newer generation is there. */
export function resourceIndexReindex(
  services: Pick<HandlerServices, 'primary' | 'explore' | 'objects'>,
): Handlers['resource_index_reindex'] {
  return async (snapshot, context) => {
    const run = await readFinishedRun(services, snapshot, context);
    if (run !== undefined) {
      await deadlineTransaction(services.explore, context, (tx) => publishResources(tx, run));
    }
    return 'done';
  };
}
