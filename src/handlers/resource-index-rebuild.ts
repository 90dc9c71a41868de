import { sql } from 'kysely';
import type { Handlers } from '../../generated/tasks.ts';
import { deadlineTransaction } from './deadline-transaction.ts';
import { analysed } from './finished-run.ts';
import { publishResources } from './publish-resources.ts';
import { type RebuildContext, rebuildInSlices } from './rebuild-in-slices.ts';
import type { HandlerServices } from './services.ts';

/**
 * Publishes the resources of every live stack of an organisation anew, and removes those of stacks that are not
 * live. Each stack passes the guard that single reindexes pass, so that both may run at once.
 */
export function resourceIndexRebuild(
  services: Pick<HandlerServices, 'primary' | 'explore' | 'objects' | 'logger' | 'slice'>,
): Handlers['resource_index_rebuild'] {
  return ({ organisationId }, context) =>
    rebuildInSlices(
      services,
      {
        organisationId,
        async visit(stack) {
          const run = await analysed(services, stack, context);
          if (run === undefined) return;
          await deadlineTransaction(services.explore, context, (tx) => publishResources(tx, run));
        },
        reap: () => reapResources(services, organisationId, context),
      },
      context,
    );
}

// The index is looked at first and the owners after it: a stack that comes in between is in neither list, and one
// that comes back has a newer generation than the one seen. The projections stay, as those of deleted stacks do.
async function reapResources(
  { primary, explore }: Pick<HandlerServices, 'primary' | 'explore'>,
  organisationId: string,
  context: RebuildContext,
): Promise<void> {
  const indexed = await deadlineTransaction(explore, context, (tx) =>
    tx
      .selectFrom('projections')
      .select(['stack_id', 'generation'])
      .where('organisation_id', '=', organisationId)
      .execute(),
  );
  const live = await deadlineTransaction(primary, context, (tx) =>
    tx
      .selectFrom('stacks')
      .select('id')
      .where('organisation_id', '=', organisationId)
      .where('deleted_at', 'is', null)
      .execute(),
  );
  const liveIds = new Set(live.map(({ id }) => id));
  const gone = indexed.filter(({ stack_id }) => !liveIds.has(stack_id));
  const stackIds = gone.map(({ stack_id }) => stack_id);
  const generations = gone.map(({ generation }) => generation);
  await deadlineTransaction(explore, context, (tx) =>
    sql`
      delete from resources using projections
        join unnest(${stackIds}::uuid[], ${generations}::int[]) as gone (stack_id, generation)
          using (stack_id, generation)
      where resources.stack_id = projections.stack_id`.execute(tx),
  );
}
