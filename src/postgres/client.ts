import pg from 'pg';
import { statementName } from './statement-name.ts';

// What pg leaves to its users, for every connection that taskq opens:
// an error event without a listener ends the process; a client whose query timed out still waits for the lost
// answer, so that every later query on it times out too; and a server that became read-only in a failover keeps
// answering on the old connection. Such a connection is destroyed, and the pool opens another.

/** SQLSTATEs after which the connection is of no further use, although it still answers. */
const POISONED = new Set([
  '25006', // read-only: a failover has made the old primary a standby
  '57P01', // terminated by an administrator or a shutdown
  '57P02',
  '57P03',
]);

// pg's own types do not say what of a client a subclass may touch.
interface ClientInternals {
  readonly connection: {
    readonly stream: {
      readonly destroyed: boolean;
      destroy(error: Error): void;
      once(event: 'close', fn: () => void): void;
    };
  };
}

/**
 * Executions of prepared statements on a connection, after which the server plans them anew. A plan made while
 * the queue was empty walks the whole table, and it would be kept through a burst, until the first autovacuum.
 */
const PLANS_KEPT_FOR = 200;

type Query = (text: string, values?: unknown[]) => Promise<pg.QueryResult>;
type NamedQuery = (query: string | pg.QueryConfig) => Promise<pg.QueryResult>;

/** A client that survives its server; with `named`, one whose statements the server plans once. */
function clientClass(named: boolean): typeof pg.Client {
  return class LaneClient extends pg.Client {
    #executions = 0;

    constructor(config?: string | pg.ClientConfig) {
      super(config);
      this.on('error', () => {
        // The pool hears of it too, and the query that was under way rejects.
      });
    }

    // The callback and submittable forms of pg pass through; Kysely uses the promise form alone.
    override query(...args: unknown[]): never {
      const [text, values, callback] = args;
      const run = super.query as (...args: unknown[]) => unknown;
      if (typeof text !== 'string' || callback !== undefined || typeof values === 'function') {
        return run.apply(this, args) as never;
      }
      const parameters = (values ?? []) as unknown[];
      const promise =
        named && parameters.length > 0
          ? this.#runNamed(run as NamedQuery, { name: statementName(text), text, values: parameters })
          : (run.call(this, text, parameters) as ReturnType<Query>);
      return promise.catch((error: unknown) => this.#discardIfPoisoned(error)) as never;
    }

    async #runNamed(run: NamedQuery, query: pg.QueryConfig): Promise<pg.QueryResult> {
      this.#executions += 1;
      if (this.#executions % PLANS_KEPT_FOR === 0) await run.call(this, 'discard plans');
      return run.call(this, query);
    }

    async #discardIfPoisoned(error: unknown): Promise<never> {
      if (isPoisoned(error)) {
        const { stream } = (this as unknown as ClientInternals).connection;
        // The pool looks at the client when it is given back, so it must have closed by then.
        await new Promise<void>((resolve) => {
          if (stream.destroyed) {
            resolve();
            return;
          }
          stream.once('close', resolve);
          stream.destroy(error as Error);
        });
      }
      throw error;
    }
  } as typeof pg.Client;
}

export const PreparedClient = clientClass(true);
export const PlainClient = clientClass(false);

function isPoisoned(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error.message === 'Query read timeout') return true;
  return 'code' in error && POISONED.has(String(error.code));
}
