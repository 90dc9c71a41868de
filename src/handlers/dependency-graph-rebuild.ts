import type { Transaction } from 'kysely';
import type { Handlers } from '../../generated/tasks.ts';
import { deadlineTransaction } from './deadline-transaction.ts';
import { analysed } from './finished-run.ts';
import { publishEdges } from './publish-edges.ts';
import { rebuildInSlices } from './rebuild-in-slices.ts';
import type { HandlerServices } from './services.ts';
import type { PlatformTables } from './tables.ts';

/**
 * Publishes the edges of every live stack of an organisation anew, and removes those that start from or lead to a
 * stack which is not live. Each stack passes the guard that single reconciles pass, so that both may run at once.
 */
export function dependencyGraphRebuild(
  services: Pick<HandlerServices, 'primary' | 'objects' | 'logger' | 'slice'>,
): Handlers['dependency_graph_rebuild'] {
  return ({ organisationId }, context) =>
    rebuildInSlices(
      services,
      {
        organisationId,
        async visit(stack) {
          const run = await analysed(services, stack, context);
          if (run === undefined) return;
          await deadlineTransaction(services.primary, context, (tx) => publishEdges(tx, run));
        },
        reap: () => deadlineTransaction(services.primary, context, (tx) => reapEdges(tx, organisationId)),
      },
      context,
    );
}

async function reapEdges(tx: Transaction<PlatformTables>, organisationId: string): Promise<void> {
  for (const end of ['from_stack_id', 'to_stack_id'] as const) {
    await tx
      .deleteFrom('edges')
      .where(end, 'in', (db) =>
        db
          .selectFrom('stacks')
          .select('id')
          .where('organisation_id', '=', organisationId)
          .where('deleted_at', 'is not', null),
      )
      .execute();
  }
}
