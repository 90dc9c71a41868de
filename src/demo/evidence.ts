import { sql } from 'kysely';
import type { LedgerEntry, PlatformState } from './report.ts';
import type { DemoDatabase } from './schema.ts';

// What is read from the database at the end, to be compared with what the workers reported.

export async function readLedger(db: DemoDatabase): Promise<LedgerEntry[]> {
  const rows = await db.selectFrom('ledger').select(['task_id', 'task_type', 'committed']).execute();
  return rows.map((row) => ({ id: row.task_id, type: row.task_type, committed: row.committed }));
}

/** The rows of the queue's own table: what has not run to its end. */
export async function readRemaining(db: DemoDatabase): Promise<{ id: string; dead: boolean }[]> {
  const { rows } = await sql<{ id: string; dead: boolean }>`
    SELECT id::text AS id, exhausted AND (lease_expires_at IS NULL OR lease_expires_at <= now()) AS dead
    FROM taskq.async_tasks ORDER BY id`.execute(db);
  return rows;
}

/** Compares the platform's derived tables with what they are derived from. */
export async function readPlatformState(db: DemoDatabase): Promise<PlatformState> {
  const { rows } = await sql<{
    published: number;
    declared: number;
    differing: number;
    explore_rows: number;
    audited: number;
    live: number;
    cap: number;
  }>`
    WITH published AS (
      SELECT from_stack_id, to_stack_id, from_name, generation FROM edges
    ), declared AS (
      SELECT stack_id, unnest(depends_on), deployments.name, deployments.generation
      FROM deployments JOIN stacks ON stacks.id = stack_id AND stacks.generation = deployments.generation
    ), differing AS (
      (TABLE published EXCEPT TABLE declared) UNION ALL (TABLE declared EXCEPT TABLE published)
    )
    SELECT
      (SELECT count(*)::int FROM published) AS published,
      (SELECT count(*)::int FROM declared) AS declared,
      (SELECT count(*)::int FROM differing) AS differing,
      (SELECT count(*)::int FROM explore_rows JOIN stacks ON stacks.id = stack_id
        WHERE deleted_at IS NOT NULL) AS explore_rows,
      (SELECT sum(seats_taken)::int FROM seat_audits) AS audited,
      (SELECT count(*)::int FROM stacks WHERE deleted_at IS NULL) AS live,
      (SELECT sum(seat_cap)::int FROM organisations) AS cap`.execute(db);
  const row = rows[0];
  if (row === undefined) throw new Error('unreachable: a select without FROM answers one row');
  return {
    edges: { published: row.published, declared: row.declared, differing: row.differing },
    exploreRowsOfDeletedStacks: row.explore_rows,
    seats: { audited: row.audited, live: row.live, cap: row.cap },
  };
}
