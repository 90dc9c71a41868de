import { type ExpressionBuilder, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { LeaseToken, TaskId } from '../domain/ids.ts';
import { decodeProgress } from '../domain/slice.ts';
import type { ClaimedTask } from '../domain/task.ts';
import type { WriteLane } from './lanes.ts';
import {
  databaseNow,
  dbInstant,
  epochText,
  isClaimableById,
  isServed,
  type KnownRevisions,
  knownRevisionsValue,
} from './predicates.ts';
import { parameter, type Statement, statement } from './statement.ts';

export interface Claim {
  /** Candidates from a discovery, the first to be taken first: hints. Whether each is claimable is decided here, on the primary. */
  readonly ids: readonly TaskId[];
  readonly known: KnownRevisions;
  /** Task type → ceiling + margin, or less with heartbeats. The database adds it to its own now(). */
  readonly leaseMs: Readonly<Record<string, number>>;
  /** Added to the lower ceiling that an enqueue may have given its task. */
  readonly marginMs: number;
  /** The slots that wait: at most this many rows, each under a token of its own. */
  readonly slots: number;
}

/**
 * Leases up to `slots` of the candidates, in the order given, in one statement: token, expiry, attempt.
 * Rows that another claim has locked are skipped; rows leased, settled, dead or paused meanwhile do not match.
 * No row returned: nothing was written.
 */
export async function claim(
  lane: WriteLane,
  { ids, known, leaseMs, marginMs, slots }: Claim,
): Promise<ClaimedTask[]> {
  if (ids.length === 0 || slots < 1) return [];
  const values = { ids, known: knownRevisionsValue(known), leaseMs: JSON.stringify(leaseMs), marginMs };
  const rows = await claimStatement(slots).run(lane, values);
  return rows.map(toClaimedTask);
}

interface ClaimRow {
  readonly id: string;
  readonly token: string;
  readonly lease_expires_at: string;
  readonly claimed_at: string;
  readonly task_type: string;
  readonly queue: string;
  readonly payload: string;
  readonly payload_revision: number;
  readonly cursor: string | null;
  readonly progress: string | null;
  readonly headers: string;
  readonly attempt_count: number;
  readonly max_attempts: number;
  readonly ceiling_ms: string | null;
  readonly is_kept: boolean;
  readonly run_at: string;
  readonly created_at: string;
}

/** One statement for a number of slots, so that the LIMIT is a literal. */
export function claimStatement(slots: number): Statement<ClaimRow> {
  let made = statements.get(slots);
  if (made === undefined) {
    made = makeClaim(slots);
    statements.set(slots, made);
  }
  return made;
}

const statements = new Map<number, Statement<ClaimRow>>();

// The picking half is a MATERIALIZED CTE. As a sub-select the planner may rescan it once for each outer row
// of a nested loop, and each rescan locks and leases another row that nobody runs.
// Pinned by test/guarantees/a-claim-leases-exactly-one-row.test.ts.
function makeClaim(slots: number): Statement<ClaimRow> {
  return statement((db) =>
    db
      .with(
        (cte) => cte('picked').materialized(),
        (cte) =>
          cte
            .selectFrom('async_tasks')
            .select('async_tasks.id')
            .where('async_tasks.id', '=', sql<string>`any(${parameter<string[]>('ids')}::bigint[])`)
            .where(isClaimableById)
            .where(isServed)
            .orderBy(sql`array_position(${parameter<string[]>('ids')}::bigint[], async_tasks.id)`)
            .limit(sql.lit(slots))
            .forUpdate()
            .skipLocked(),
      )
      .updateTable('async_tasks')
      .from('picked')
      .whereRef('async_tasks.id', '=', 'picked.id')
      .set((t) => ({
        lease_token: sql<string>`gen_random_uuid()`,
        lease_expires_at: leaseExpiry(t),
        attempt_count: t('async_tasks.attempt_count', '+', 1),
        last_attempted_at: databaseNow,
      }))
      .returning((t) => [
        sql<string>`${t.ref('async_tasks.id')}::text`.as('id'),
        sql<string>`${t.ref('async_tasks.lease_token')}::text`.as('token'),
        epochText(t.ref('async_tasks.lease_expires_at')).as('lease_expires_at'),
        epochText(databaseNow).as('claimed_at'),
        'async_tasks.task_type',
        'async_tasks.queue',
        sql<string>`${t.ref('async_tasks.payload')}::text`.as('payload'),
        'async_tasks.payload_revision',
        sql<string | null>`${t.ref('async_tasks.cursor')}::text`.as('cursor'),
        sql<string | null>`${t.ref('async_tasks.progress')}::text`.as('progress'),
        sql<string>`${t.ref('async_tasks.headers')}::text`.as('headers'),
        'async_tasks.attempt_count',
        'async_tasks.max_attempts',
        sql<string | null>`${t.ref('async_tasks.ceiling_ms')}::text`.as('ceiling_ms'),
        t('async_tasks.retention_ms', 'is not', null).$castTo<boolean>().as('is_kept'),
        epochText(t.ref('async_tasks.run_at')).as('run_at'),
        epochText(t.ref('async_tasks.created_at')).as('created_at'),
      ]),
  );
}

// LEAST passes over null: a task without a ceiling of its own has its type's.
function leaseExpiry(t: ExpressionBuilder<DB, 'async_tasks'>) {
  const ofType = sql`(${parameter<string>('leaseMs')}::text::jsonb ->> ${t.ref('async_tasks.task_type')})::float8`;
  const ofTask = sql`${t.ref('async_tasks.ceiling_ms')} + ${parameter<number>('marginMs')}::float8`;
  return sql<Date>`${databaseNow} + least(${ofType}, ${ofTask}) * interval '1 millisecond'`;
}

function toClaimedTask(row: ClaimRow): ClaimedTask {
  const id = row.id as TaskId;
  return {
    id,
    lease: { id, token: row.token as LeaseToken },
    leaseExpiresAt: dbInstant(row.lease_expires_at),
    claimedAt: dbInstant(row.claimed_at),
    type: row.task_type,
    queue: row.queue,
    payloadText: row.payload,
    payloadRevision: row.payload_revision,
    cursorText: row.cursor ?? undefined,
    progress: decodeProgress(row.progress),
    headers: JSON.parse(row.headers) as Record<string, string>,
    attempt: row.attempt_count,
    maxAttempts: row.max_attempts,
    ceilingMs: row.ceiling_ms === null ? undefined : Number(row.ceiling_ms),
    isKept: row.is_kept,
    runAt: dbInstant(row.run_at),
    enqueuedAt: dbInstant(row.created_at),
  };
}
