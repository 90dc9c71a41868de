import { sql, type Transaction } from 'kysely';
import type { FinishedRun } from './finished-run.ts';
import type { ExploreTables } from './tables.ts';

/** What the index holds of a stack; nothing, for one that is deleted. */
export type ResourceSnapshot = Pick<FinishedRun, 'stackId' | 'organisationId' | 'generation' | 'resources'>;

/**
 * Publishes a stack's resources in the index; drops them when a newer generation is there. Right in any order, on
 * any number of replicas, and when the same generation is published again. Answers whether it published.
 */
export async function publishResources(
  tx: Transaction<ExploreTables>,
  snapshot: ResourceSnapshot,
): Promise<boolean> {
  const isNewest = await takeProjection(tx, snapshot);
  if (isNewest) await replaceResources(tx, snapshot);
  return isNewest;
}

/**
 * The guard: compares and writes in one statement, and keeps the projection's row locked until the commit. It lies
 * in the database that it guards, so that no clock, lock or connection of the platform's has a part in it.
 */
async function takeProjection(
  tx: Transaction<ExploreTables>,
  { stackId, organisationId, generation }: ResourceSnapshot,
): Promise<boolean> {
  const { numInsertedOrUpdatedRows } = await tx
    .insertInto('projections')
    .values({ stack_id: stackId, organisation_id: organisationId, generation })
    .onConflict((conflict) =>
      conflict
        .column('stack_id')
        .doUpdateSet({ generation, projected_at: sql<Date>`now()` })
        .where('projections.generation', '<=', generation),
    )
    .executeTakeFirst();
  return numInsertedOrUpdatedRows === 1n;
}

async function replaceResources(
  tx: Transaction<ExploreTables>,
  { stackId, resources }: ResourceSnapshot,
): Promise<void> {
  await tx.deleteFrom('resources').where('stack_id', '=', stackId).execute();
  if (resources.length === 0) return;
  const paths = resources.map(({ path }) => path);
  const values = resources.map(({ value }) => value);
  // Two arrays, however many there are: a statement takes 65,535 parameters, and a pathological stack has more.
  // Of a path that was found twice the last one stands.
  await sql`
    insert into resources (stack_id, path, value)
    select distinct on (path) ${stackId}::uuid, path, value
    from unnest(${paths}::text[], ${values}::text[]) with ordinality as found (path, value, place)
    order by path, place desc`.execute(tx);
}
