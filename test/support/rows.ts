import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../../src/domain/ids.ts';
import { LEASE_MARGIN_MS } from '../../src/domain/limits.ts';
import type { ClaimedTask } from '../../src/domain/task.ts';
import { claim } from '../../src/statements/claim.ts';
import { type ReadLane, readLane, type WriteLane, writeLane } from '../../src/statements/lanes.ts';
import type { KnownRevisions } from '../../src/statements/predicates.ts';
import { wakeChannel } from '../../src/statements/wake-channel.ts';
import { TEST_SCHEMA } from './schema.ts';
import { knownRevisions, LEASE_MS } from './tasks.ts';

// Rows as tests need them, written behind the product's back. A test ages the row, not the clock: a lease is
// made to lapse by moving it into the past, so that nobody waits for one.

export const writeLaneOf = (db: Kysely<DB>): WriteLane => writeLane(db, TEST_SCHEMA);
export const readLaneOf = (db: Kysely<DB>): ReadLane => readLane(db, TEST_SCHEMA);

/** Columns of an inserted row that differ from those of a `plain` task that became due a minute ago. */
export interface RowOptions {
  readonly type?: string;
  readonly queue?: string;
  readonly payload?: unknown;
  readonly revision?: number;
  readonly attemptCount?: number;
  readonly maxAttempts?: number;
  /** Seconds from now; negative for the past. */
  readonly runAtSeconds?: number;
  /** A live lease under a token that nobody knows, for this many seconds. */
  readonly leasedSeconds?: number;
  readonly attemptedSecondsAgo?: number;
  /** A record is kept for so long. */
  readonly retentionMs?: number;
}

/** Inserts rows without a wake. Ids ascend in the order of `run_at`: each row is a microsecond younger. */
export async function insertRows(db: Kysely<DB>, count: number, options: RowOptions = {}): Promise<TaskId[]> {
  const { type = 'plain', queue = 'default', payload = {}, runAtSeconds = -60 } = options;
  const seconds = (value: number | undefined) =>
    value === undefined ? sql`null` : sql`(now() + ${value}::float8 * interval '1 second')`;
  const attempted = options.attemptedSecondsAgo;
  const { rows } = await sql<{ id: string }>`
    insert into ${sql.table(`${TEST_SCHEMA}.async_tasks`)}
      (task_type, queue, payload, payload_revision, attempt_count, max_attempts, run_at,
       lease_token, lease_expires_at, last_attempted_at, retention_ms)
    select ${type}, ${queue}, ${JSON.stringify(payload)}::jsonb, ${options.revision ?? 1}::int,
           ${options.attemptCount ?? 0}::int, ${options.maxAttempts ?? 20}::int,
           ${seconds(runAtSeconds)} + n * interval '1 microsecond',
           ${options.leasedSeconds === undefined ? sql`null::uuid` : sql`gen_random_uuid()`},
           ${seconds(options.leasedSeconds)}::timestamptz,
           ${seconds(attempted === undefined ? undefined : -attempted)}::timestamptz,
           ${options.retentionMs ?? null}::bigint
    from generate_series(1, ${count}::int) n order by n returning id::text`.execute(db);
  return rows.map((row) => row.id as TaskId);
}

/** One due row. */
export async function insertRow(db: Kysely<DB>, options: RowOptions = {}): Promise<TaskId> {
  const [id] = await insertRows(db, 1, options);
  return id as TaskId;
}

/** A whole row as JSON, exact to the microsecond: for "nothing has changed". */
export type RowImage = Readonly<Record<string, unknown>> & {
  readonly attempt_count: number;
  readonly max_attempts: number;
  readonly last_error: string | null;
  readonly lease_token: string | null;
  readonly lease_expires_at: string | null;
  readonly retired: boolean;
  readonly exhausted: boolean;
  readonly errors: readonly { attempt: number; outcome: string; message: string; at: string }[];
};

/** Every row there is, in id order. */
export async function allRows(db: Kysely<DB>): Promise<RowImage[]> {
  const table = sql.table(`${TEST_SCHEMA}.async_tasks`);
  const { rows } = await sql<{
    row: RowImage;
  }>`select to_jsonb(t) as row from ${table} t order by id`.execute(db);
  return rows.map(({ row }) => row);
}

/** A record of a finished task as JSON. */
export type RecordImage = Readonly<Record<string, unknown>> & {
  readonly id: number;
  readonly result: unknown;
  readonly completed_at: string;
  readonly keep_until: string;
};

/** Every record of a finished task, in id order. */
export async function allRecords(db: Kysely<DB>): Promise<RecordImage[]> {
  const table = sql.table(`${TEST_SCHEMA}.async_completed_tasks`);
  const { rows } = await sql<{
    row: RecordImage;
  }>`select to_jsonb(t) as row from ${table} t order by id`.execute(db);
  return rows.map(({ row }) => row);
}

/** The row, or undefined when it is gone. */
export async function findRow(db: Kysely<DB>, id: TaskId): Promise<RowImage | undefined> {
  const table = sql.table(`${TEST_SCHEMA}.async_tasks`);
  const { rows } = await sql<{ row: RowImage }>`
    select to_jsonb(t) as row from ${table} t where id = ${id}`.execute(db);
  return rows[0]?.row;
}

/** The row, which must be there. */
export async function rowOf(db: Kysely<DB>, id: TaskId): Promise<RowImage> {
  const row = await findRow(db, id);
  if (row === undefined) throw new Error(`task ${id} is gone`);
  return row;
}

/** Makes the lease lapse: it ended a second ago. The token stays on the row, as after a crash. */
export async function lapseLease(db: Kysely<DB>, id: TaskId): Promise<void> {
  const table = sql.table(`${TEST_SCHEMA}.async_tasks`);
  await sql`update ${table} set lease_expires_at = now() - interval '1 second'
            where id = ${id} and lease_token is not null`.execute(db);
}

/** Ends the backoff, or the delay: due for a second. */
export async function makeDue(db: Kysely<DB>, id: TaskId): Promise<void> {
  const table = sql.table(`${TEST_SCHEMA}.async_tasks`);
  await sql`update ${table} set run_at = now() - interval '1 second' where id = ${id}`.execute(db);
}

/**
 * Milliseconds from the newest recorded failure to `run_at`: the backoff exactly as the statement wrote it,
 * since both come from one now(). The recorded moment is cut to the millisecond, hence the floor.
 */
export async function backoffOf(db: Kysely<DB>, id: TaskId): Promise<number> {
  const table = sql.table(`${TEST_SCHEMA}.async_tasks`);
  const { rows } = await sql<{ ms: string }>`
    select floor(extract(epoch from run_at - (errors -> -1 ->> 'at')::timestamptz) * 1000)::text as ms
    from ${table} where id = ${id}`.execute(db);
  return Number(rows[0]?.ms);
}

/** Wakes the replicas as an enqueue would. */
export async function wakeReplicas(db: Kysely<DB>): Promise<void> {
  await sql`select pg_notify(${wakeChannel(TEST_SCHEMA)}, '')`.execute(db);
}

/** The product's own claim, of every type there is in the tests. */
export async function claimRows(
  db: Kysely<DB>,
  ids: readonly TaskId[],
  options: {
    readonly slots?: number;
    readonly known?: KnownRevisions;
    readonly leaseMs?: Readonly<Record<string, number>>;
  } = {},
): Promise<ClaimedTask[]> {
  const { slots = 1, known = knownRevisions, leaseMs = LEASE_MS } = options;
  return claim(writeLaneOf(db), { ids, known, leaseMs, marginMs: LEASE_MARGIN_MS, slots });
}

/** Claims one row, which must be claimable. */
export async function claimRow(db: Kysely<DB>, id: TaskId): Promise<ClaimedTask> {
  const [task] = await claimRows(db, [id]);
  if (task === undefined) throw new Error(`task ${id} was not claimable`);
  return task;
}
