import { type Kysely, sql, type Transaction } from 'kysely';
import type { HandlerContext } from '../index.ts';

/**
 * Runs `work` in a transaction that ends with its handler: the server gives up a statement that has waited as long
 * as the run had left when the transaction began, and nothing commits once the signal has fired. Rethrows the
 * signal's reason then, so that the run counts as a timeout or a cancellation and not as the database's failure.
 */
export async function deadlineTransaction<Tables, const Result>(
  db: Kysely<Tables>,
  { signal, remainingMs }: Pick<HandlerContext, 'signal' | 'remainingMs'>,
  work: (tx: Transaction<Tables>) => Promise<Result>,
): Promise<Result> {
  signal.throwIfAborted();
  try {
    return await db.transaction().execute(async (tx) => {
      // PostgreSQL does not hear the signal: a statement that waits for a lock would go on waiting. 0 would mean
      // no limit at all.
      const timeoutMs = String(Math.max(1, Math.ceil(remainingMs())));
      await sql`select set_config('statement_timeout', ${timeoutMs}, true)`.execute(tx);
      const result = await work(tx);
      // The last look before the commit: by now another worker may be about to run the same task.
      signal.throwIfAborted();
      return result;
    });
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  }
}
