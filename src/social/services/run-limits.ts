import { type Kysely, sql, type Transaction } from 'kysely';
import type { HandlerContext } from '../../index.ts';
import type { SocialTables } from './tables.ts';

/** When the work must stop. The context of a handler is one. */
export type RunLimits = Pick<HandlerContext, 'signal' | 'remainingMs'>;

export type SocialDatabase = Kysely<SocialTables>;
export type SocialTransaction = Transaction<SocialTables>;

/**
 * Runs `work` in a transaction that ends with its run: no statement outlasts the deadline, and nothing commits once
 * the signal has fired. Rethrows the signal's reason then, so that the run counts as interrupted, not as failed.
 */
export async function transactionWithin<const Result>(
  db: SocialDatabase,
  { signal, remainingMs }: RunLimits,
  work: (tx: SocialTransaction) => Promise<Result>,
): Promise<Result> {
  signal.throwIfAborted();
  try {
    return await db.transaction().execute(async (tx) => {
      // PostgreSQL does not hear the signal: a statement that waits for a lock would go on waiting. 0 is no limit.
      const timeoutMs = String(Math.max(1, Math.ceil(remainingMs())));
      await sql`select set_config('statement_timeout', ${timeoutMs}, true)`.execute(tx);
      const result = await work(tx);
      // By now another worker may be about to run the same task.
      signal.throwIfAborted();
      return result;
    });
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  }
}
