import { sql, type Transaction } from 'kysely';
import type { Handlers } from '../../generated/tasks.ts';
import { deadlineTransaction } from './deadline-transaction.ts';
import type { HandlerServices, PlatformTables } from './services.ts';

/** One generation of one stack's edges. */
interface Publication {
  readonly stackId: string;
  readonly generation: number;
}

/**
 * Publishes the edges that a stack's deployment declared; drops itself when a newer generation is published.
 * Right in any order, on any number of replicas, and when the same generation is run again.
 */
export function dependencyGraphReconcile({
  primary,
}: HandlerServices): Handlers['dependency_graph_reconcile'] {
  return (publication, context) =>
    deadlineTransaction(primary, context, async (tx) => {
      if (await takePublication(tx, publication)) await replaceEdges(tx, publication);
      return 'done';
    });
}

/**
 * The guard: compares and writes in one statement, and keeps the stack's row locked until the commit, so that two
 * replicas cannot both find themselves newest. Equal generations pass: a re-run publishes the same edges again.
 * False: a newer generation is published, or the stack's row is gone.
 */
async function takePublication(
  tx: Transaction<PlatformTables>,
  { stackId, generation }: Publication,
): Promise<boolean> {
  const { numUpdatedRows } = await tx
    .updateTable('stacks')
    .set({ published_generation: generation })
    .where('id', '=', stackId)
    .where('published_generation', '<=', generation)
    .executeTakeFirst();
  return numUpdatedRows === 1n;
}

// A statement of its own behind the guard, not one with it: a statement that waited for the row would still read
// the edges as they were before its wait, and leave those of the publication it had waited for.
async function replaceEdges(
  tx: Transaction<PlatformTables>,
  { stackId, generation }: Publication,
): Promise<void> {
  await tx.deleteFrom('edges').where('from_stack_id', '=', stackId).execute();
  await tx
    .insertInto('edges')
    .columns(['from_stack_id', 'to_stack_id', 'from_name', 'generation'])
    .expression((db) =>
      db
        .selectFrom('deployments')
        .select(['stack_id', sql<string>`unnest(depends_on)`.as('to_stack_id'), 'name', 'generation'])
        .where('stack_id', '=', stackId)
        .where('generation', '=', generation),
    )
    .execute();
}
