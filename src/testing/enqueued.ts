import { sql } from 'kysely';
import type { TaskId } from '../domain/ids.ts';
import { decodePayload } from '../domain/payload-codec.ts';
import { checkSchemaName } from '../domain/schema-name.ts';
import type { CallerTransaction } from '../enqueue.ts';
import { callerLane } from '../statements/lanes.ts';
import { dbInstant, epochText } from '../statements/predicates.ts';
import { parameter, statement } from '../statements/statement.ts';

/** A task as it waits in the table. */
export interface EnqueuedTask {
  readonly id: TaskId;
  readonly type: string;
  readonly queue: string;
  /** As it was enqueued: what the handler's parse adds, such as defaults, is not in it. */
  readonly payload: unknown;
  readonly runAt: Date;
  readonly maxAttempts: number;
  readonly headers: Readonly<Record<string, string>>;
}

export interface EnqueuedInOptions {
  /** Default `'taskq'`. */
  readonly schema?: string;
  /**
   * `'transaction'`: what the transaction given has enqueued itself. `'visible'`: every task that it can see.
   * Default: `'visible'` for a Kysely that is no transaction, else `'transaction'`.
   */
  readonly scope?: 'transaction' | 'visible';
}

/**
 * The tasks enqueued in this transaction, in the order in which they were enqueued. Reads only.
 * A task that a worker has claimed since (`drain` in the same transaction) is no longer among them.
 */
export async function enqueuedIn(
  tx: CallerTransaction,
  options: EnqueuedInOptions = {},
): Promise<EnqueuedTask[]> {
  const lane = callerLane(tx, checkSchemaName(options.schema ?? 'taskq'));
  const rows = await enqueuedStatement.run(lane, { ownOnly: scopeOf(tx, options) === 'transaction' ? 1 : 0 });
  return rows.map((row) => ({
    id: row.id as TaskId,
    type: row.task_type,
    queue: row.queue,
    payload: decodePayload(row.payload),
    runAt: new Date(dbInstant(row.run_at).dbMs),
    maxAttempts: row.max_attempts,
    headers: JSON.parse(row.headers) as Record<string, string>,
  }));
}

export function scopeOf(tx: CallerTransaction, { scope }: EnqueuedInOptions): 'transaction' | 'visible' {
  if (scope !== undefined) return scope;
  return 'isTransaction' in tx && !tx.isTransaction ? 'visible' : 'transaction';
}

// Whose a row is: a version that is visible here and was written by a transaction still in progress can only have
// been written here, since nobody sees another's uncommitted rows. Savepoints have ids of their own, above that of
// the transaction, so comparing with one id would miss them. A row carries the low half of its id: the difference,
// modulo 2^32, gives the rest. A transaction without an id has written nothing.
const sinceOwn = sql`mod(async_tasks.xmin::text::bigint - mod(own.id, 4294967296) + 4294967296, 4294967296)`;
const isWrittenHere = sql<boolean>`case when own.id is null or ${sinceOwn} >= 2147483648 then false
  else pg_xact_status((own.id + ${sinceOwn})::text::xid8) = 'in progress' end`;

const enqueuedStatement = statement((db) =>
  db
    .with('own', (cte) =>
      cte.selectNoFrom(sql<string | null>`pg_current_xact_id_if_assigned()::text::bigint`.as('id')),
    )
    .selectFrom('async_tasks')
    .innerJoin('own', (join) => join.onTrue())
    .where((t) =>
      t.or([
        t(parameter<number>('ownOnly'), '=', sql<number>`0::int`),
        t.and([isWrittenHere, t('async_tasks.last_attempted_at', 'is', null)]),
      ]),
    )
    .orderBy('async_tasks.id')
    .select((t) => [
      sql<string>`async_tasks.id::text`.as('id'),
      'async_tasks.task_type',
      'async_tasks.queue',
      sql<string>`async_tasks.payload::text`.as('payload'),
      'async_tasks.max_attempts',
      sql<string>`async_tasks.headers::text`.as('headers'),
      epochText(t.ref('async_tasks.run_at')).as('run_at'),
    ]),
);
