import type { Handlers } from '../../generated/tasks.ts';
import { deadlineTransaction } from './deadline-transaction.ts';
import type { HandlerServices } from './services.ts';

/**
 * Removes a deleted stack's Explore rows; done without deleting when the stack is live again.
 * Running it twice, or after the rows are gone, changes nothing.
 */
export function explorePurge({ primary }: HandlerServices): Handlers['explore_purge'] {
  return ({ stackId }, context) =>
    deadlineTransaction(primary, context, async (tx) => {
      // On the primary: a replica that has not replayed the delete yet would show the stack as live, and the
      // purge would be over without having been done. Locked: a deployment that makes the stack live again
      // must come either before this look or after the rows are gone, never in between.
      const owner = await tx
        .selectFrom('stacks')
        .select('deleted_at')
        .where('id', '=', stackId)
        .forNoKeyUpdate()
        .executeTakeFirst();
      const isLiveAgain = owner !== undefined && owner.deleted_at === null;
      if (isLiveAgain) return 'done';

      await tx.deleteFrom('explore_rows').where('stack_id', '=', stackId).execute();
      return 'done';
    });
}
