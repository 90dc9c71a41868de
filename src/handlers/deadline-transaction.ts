import { type Kysely, sql, type Transaction } from 'kysely';
import type { HandlerContext } from '../index.ts';

/**
 * Runs `work` in a transaction that ends with its handler: nothing commits once the signal has fired, a statement
 * that waits is cancelled then, and gives up by itself when the run's time is over. Rethrows the signal's reason, so
 * that the run counts as a timeout or a cancellation and not as the database's failure.
 */
export async function deadlineTransaction<Tables, const Result>(
  db: Kysely<Tables>,
  { signal, remainingMs }: Pick<HandlerContext, 'signal' | 'remainingMs'>,
  work: (tx: Transaction<Tables>) => Promise<Result>,
): Promise<Result> {
  signal.throwIfAborted();
  try {
    return await db.transaction().execute(async (tx) => {
      // A bound that the server keeps even when nobody can reach it to cancel. Set for this transaction alone, so
      // that it holds behind a transaction pooler too. 0 would mean no limit at all.
      const timeoutMs = String(Math.max(1, Math.ceil(remainingMs())));
      const { rows } = await sql<{ pid: number }>`
        select pg_backend_pid() as pid, set_config('statement_timeout', ${timeoutMs}, true)`.execute(tx);
      const result = await cancelledBy(signal, db, rows[0]?.pid, () => work(tx));
      // The last look before the commit: by now another worker may be about to run the same task.
      signal.throwIfAborted();
      return result;
    });
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  }
}

/** PostgreSQL does not hear the signal. It is told over another connection, or would go on waiting for a lock. */
async function cancelledBy<Tables, Result>(
  signal: AbortSignal,
  db: Kysely<Tables>,
  pid: number | undefined,
  work: () => Promise<Result>,
): Promise<Result> {
  let cancelling: Promise<unknown> | undefined;
  const cancel = () => {
    cancelling = sql`select pg_cancel_backend(${pid})`.execute(db).catch(() => {});
  };
  signal.addEventListener('abort', cancel, { once: true });
  try {
    return await work();
  } finally {
    signal.removeEventListener('abort', cancel);
    // The connection goes back to the pool after this: a late cancellation would hit its next user.
    await cancelling;
  }
}
