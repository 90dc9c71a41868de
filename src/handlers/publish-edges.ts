import { sql, type Transaction } from 'kysely';
import type { FinishedRun } from './finished-run.ts';
import type { PlatformTables } from './tables.ts';

/**
 * Publishes the edges that a stack's run has found; drops them when a newer generation is published.
 * Right in any order, on any number of replicas, and when the same generation is published again.
 */
export async function publishEdges(tx: Transaction<PlatformTables>, run: FinishedRun): Promise<void> {
  if (await takePublication(tx, run)) await replaceEdges(tx, run);
}

/**
 * The guard: compares and writes in one statement, and keeps the stack's row locked until the commit, so that two
 * replicas cannot both find themselves newest. Equal generations pass: a re-run publishes the same edges again.
 * False: a newer generation is published, or the stack's row is gone.
 */
async function takePublication(
  tx: Transaction<PlatformTables>,
  { stackId, generation }: FinishedRun,
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
  { stackId, generation, name, dependsOn }: FinishedRun,
): Promise<void> {
  await tx.deleteFrom('edges').where('from_stack_id', '=', stackId).execute();
  if (dependsOn.length === 0) return;
  await tx
    .insertInto('edges')
    .columns(['from_stack_id', 'to_stack_id', 'from_name', 'generation'])
    .expression((db) =>
      db
        .selectFrom('stacks')
        .select((each) => [
          each.val(stackId).$castTo<string>().as('from_stack_id'),
          'id',
          each.val(name).as('from_name'),
          each.val(generation).as('generation'),
        ])
        .where('id', '=', sql<string>`any(${dependsOn}::uuid[])`)
        .where('deleted_at', 'is', null),
    )
    .execute();
}
