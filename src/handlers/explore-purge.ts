import type { Transaction } from 'kysely';
import type { Handlers } from '../../generated/tasks.ts';
import type { HandlerContext } from '../index.ts';
import { deadlineTransaction } from './deadline-transaction.ts';
import { publishResources } from './publish-resources.ts';
import type { HandlerServices } from './services.ts';
import type { ExploreTables } from './tables.ts';

type PurgeServices = Pick<HandlerServices, 'primary' | 'explore'>;

/** The task of `purgeExplore`. Running it twice, late, or after the rows are gone, changes nothing. */
export function explorePurge(services: PurgeServices): Handlers['explore_purge'] {
  return async ({ stackId }, context) => {
    await purgeExplore(services, stackId, context);
    return 'done';
  };
}

/** Removes a deleted stack's rows from Explore, unless the stack is live again. */
export async function purgeExplore(
  { primary, explore }: PurgeServices,
  stackId: string,
  context: Pick<HandlerContext, 'signal' | 'remainingMs'>,
): Promise<void> {
  // On the primary: a replica that has not replayed the delete yet would show the stack as live, and the purge would
  // be over without having been done.
  const owner = await deadlineTransaction(primary, context, (tx) =>
    tx
      .selectFrom('stacks')
      .select(['organisation_id', 'generation', 'deleted_at'])
      .where('id', '=', stackId)
      .executeTakeFirst(),
  );
  const isLiveAgain = owner !== undefined && owner.deleted_at === null;
  if (isLiveAgain) return;

  await deadlineTransaction(explore, context, async (tx) => {
    if (owner === undefined) {
      // With its deployments gone no task can publish the stack any more, so nothing has to be remembered.
      await tx.deleteFrom('projections').where('stack_id', '=', stackId).execute();
      await removeFindings(tx, stackId);
      return;
    }
    // Nothing, published under the deletion's generation: whatever is older stays away for good, and a deployment
    // that has made the stack live since that look is newer and keeps its rows.
    const { organisation_id: organisationId, generation } = owner;
    const isNewest = await publishResources(tx, { stackId, organisationId, generation, resources: [] });
    if (isNewest) await removeFindings(tx, stackId);
  });
}

async function removeFindings(tx: Transaction<ExploreTables>, stackId: string): Promise<void> {
  await tx.deleteFrom('findings').where('stack_id', '=', stackId).execute();
}
