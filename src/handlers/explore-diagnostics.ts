import { sql, type Transaction } from 'kysely';
import type { Handlers } from '../../generated/tasks.ts';
import { deadlineTransaction } from './deadline-transaction.ts';
import type { HandlerServices } from './services.ts';
import type { ExploreTables } from './tables.ts';

/** A scan that was asked for. */
interface Scan {
  readonly organisationId: string;
  readonly generation: number;
}

/**
 * Scans what Explore knows of an organisation and publishes the findings; drops itself when those of a newer scan
 * are published. The organisation's own tables are not asked: the findings are about what people can see.
 */
export function exploreDiagnostics({
  explore,
}: Pick<HandlerServices, 'explore'>): Handlers['explore_diagnostics'] {
  return (scan, context) =>
    deadlineTransaction(explore, context, async (tx) => {
      if (await takeScan(tx, scan)) await replaceFindings(tx, scan);
      return 'done';
    });
}

/** The guard, kept locked until the commit. Equal generations pass: a re-run publishes what it finds now. */
async function takeScan(
  tx: Transaction<ExploreTables>,
  { organisationId, generation }: Scan,
): Promise<boolean> {
  const { numInsertedOrUpdatedRows } = await tx
    .insertInto('diagnostics')
    .values({ organisation_id: organisationId, generation })
    .onConflict((conflict) =>
      conflict
        .column('organisation_id')
        .doUpdateSet({ generation, scanned_at: sql<Date>`now()` })
        .where('diagnostics.generation', '<=', generation),
    )
    .executeTakeFirst();
  return numInsertedOrUpdatedRows === 1n;
}

// One statement sees one moment: a stack that is reindexed meanwhile is found as it was before or as it is after.
async function replaceFindings(tx: Transaction<ExploreTables>, { organisationId }: Scan): Promise<void> {
  await tx.deleteFrom('findings').where('organisation_id', '=', organisationId).execute();
  await sql`
    with known as materialized (
      select stack_id, path, value from resources join projections using (stack_id)
      where organisation_id = ${organisationId} and path in ('package', 'version', 'license', 'integrity')
    ), stacks as (
      select stack_id,
        max(value) filter (where path = 'package') as package,
        max(value) filter (where path = 'version') as version,
        bool_or(path = 'license') as has_license,
        bool_or(path = 'integrity') as has_integrity
      from known group by stack_id
    ), several as (
      select package, string_agg(distinct version, ', ' order by version) as versions
      from stacks where version is not null group by package having count(distinct version) > 1
    ), found as (
      select stack_id, 'license_missing' as rule, 'no license is named' as detail from stacks where not has_license
      union all
      select stack_id, 'integrity_missing', 'no checksum is pinned' from stacks where not has_integrity
      union all
      select stack_id, 'several_versions', versions from stacks join several using (package)
    )
    insert into findings (organisation_id, stack_id, rule, detail)
    select ${organisationId}::uuid, stack_id, rule, detail from found`.execute(tx);
}
