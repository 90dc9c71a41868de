import pg from 'pg';
import { isQueueStatement } from '../statements/statement.ts';
import { statementName } from './statement-name.ts';

/**
 * A pg client for the application's own pool: `new pg.Pool({ Client: PreparingClient, … })`. It has the server parse
 * and plan the queue's statements once for a connection, which is most of what an enqueue costs beside the commit.
 * Every other query goes through as it is, and nothing else differs from `pg.Client`.
 * Not behind PgBouncer below 1.21, which cannot carry prepared statements in transaction mode.
 */
class EnqueuePreparingClient extends pg.Client {
  override query(...args: unknown[]): never {
    const run = super.query as (...args: unknown[]) => never;
    const [text, values] = args;
    if (args.length !== 2 || typeof text !== 'string' || !Array.isArray(values) || !isQueueStatement(text)) {
      return run.apply(this, args);
    }
    return run.call(this, { name: statementName(text), text, values });
  }
}

export const PreparingClient: typeof pg.Client = EnqueuePreparingClient as typeof pg.Client;
