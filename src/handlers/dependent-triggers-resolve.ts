import type { Transaction } from 'kysely';
import type { Handlers } from '../../generated/tasks.ts';
import { deadlineTransaction } from './deadline-transaction.ts';
import type { Snapshot } from './finished-run.ts';
import type { HandlerServices } from './services.ts';
import type { PlatformTables } from './tables.ts';

/**
 * Requests a run of every live stack that depends on the one which was deployed; drops itself when a newer
 * deployment's triggers are resolved. All of it is in the queue's own database, so the task is dequeued by the very
 * transaction that does its work: a crash can only come before both or after both.
 */
export function dependentTriggersResolve({
  primary,
}: Pick<HandlerServices, 'primary'>): Handlers['dependent_triggers_resolve'] {
  return (deployment, context) =>
    deadlineTransaction(primary, context, async (tx) => {
      if (await takeResolution(tx, deployment)) await requestRuns(tx, deployment);
      // Throws when another worker holds the task by now, and takes the requests back with it.
      await context.complete(tx);
      return 'done';
    });
}

/** The guard, kept locked until the commit. Equal generations pass: what was requested before is not again. */
async function takeResolution(
  tx: Transaction<PlatformTables>,
  { stackId, generation }: Snapshot,
): Promise<boolean> {
  const { numUpdatedRows } = await tx
    .updateTable('stacks')
    .set({ resolved_generation: generation })
    .where('id', '=', stackId)
    .where('resolved_generation', '<=', generation)
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

async function requestRuns(
  tx: Transaction<PlatformTables>,
  { stackId, generation }: Snapshot,
): Promise<void> {
  await tx
    .insertInto('triggered_runs')
    .columns(['stack_id', 'upstream_stack_id', 'upstream_generation'])
    .expression((db) =>
      db
        .selectFrom('edges')
        .innerJoin('stacks', 'stacks.id', 'edges.from_stack_id')
        .select((each) => ['stacks.id', 'edges.to_stack_id', each.val(generation).as('generation')])
        .where('edges.to_stack_id', '=', stackId)
        .where('stacks.deleted_at', 'is', null)
        .where('stacks.id', '<>', stackId),
    )
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}
