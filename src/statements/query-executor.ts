import { TaskqError } from '../domain/errors.ts';
import type { QueryExecutor } from './lanes.ts';

/** The values of the statements that run in a caller's transaction: what every driver sends alike. */
export type QueryValue = string | number | null;

/**
 * Lets `enqueue`, `enqueueMany` and `dequeueUnleased` run in the transaction of any PostgreSQL library.
 * @param run sends one statement in that transaction, `text` with `$1`, `$2` … for the values, and answers its rows.
 *   What it throws passes through unchanged.
 * @throws TaskqError `CONFIG_INVALID`, from those functions, when `run` answers something else than rows
 */
export function queryExecutor(
  run: (text: string, values: readonly QueryValue[]) => PromiseLike<readonly object[]>,
): QueryExecutor {
  const executor: QueryExecutor = {
    async executeQuery<Row>({ sql: text, parameters }: { sql: string; parameters: readonly unknown[] }) {
      const rows: unknown = await run(text, parameters as readonly QueryValue[]);
      checkRows(rows);
      return { rows: rows as Row[] };
    },
    withoutPlugins: () => executor,
  };
  return executor;
}

// Libraries answer a statement in their own ways: TypeORM with `[rows, count]` for a DELETE, pg and Knex with an object
// that holds the rows. Taken for rows, such an answer would tell a task that a worker holds as dequeued.
function checkRows(rows: unknown): void {
  if (Array.isArray(rows) && rows.every(isRow)) return;
  throw new TaskqError(
    'CONFIG_INVALID',
    'queryExecutor: the function given must answer the rows of the statement, an array of objects (with pg: result.rows)',
  );
}

function isRow(row: unknown): boolean {
  return typeof row === 'object' && row !== null && !Array.isArray(row);
}
