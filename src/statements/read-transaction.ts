import { sql } from 'kysely';
import { ADMIN_READ_MS_MAX } from '../domain/limits.ts';
import { type ReadLane, readLane } from './lanes.ts';
import { statement } from './statement.ts';

/** Exported for the test of the plans. */
export const READ_SETTINGS = {
  statement_timeout: String(ADMIN_READ_MS_MAX),
  enable_seqscan: 'off',
  // The rows of a page are looked up by id. Of a LIMIT that it is not told the planner expects a tenth of the table, and
  // would merge that with all of it.
  enable_mergejoin: 'off',
  enable_hashjoin: 'off',
  max_parallel_workers_per_gather: '0',
  jit: 'off',
};

// Until the end of the transaction. A plan that reads a table whole is never what is wanted for a page of it, whatever
// the planner has heard of the table last.
const settingsStatement = statement((db) =>
  db.selectNoFrom(
    Object.entries(READ_SETTINGS).map(([name, value]) =>
      sql<string>`set_config(${sql.lit(name)}, ${sql.lit(value)}, true)`.as(name),
    ),
  ),
);

/** Several reads of pages, which the server gives up after some seconds each. */
export async function inReadTransaction<Answer>(
  lane: ReadLane,
  work: (within: ReadLane) => Promise<Answer>,
): Promise<Answer> {
  return lane.executor
    .transaction()
    .setAccessMode('read only')
    .execute(async (transaction) => {
      const within = readLane(transaction, lane.schema);
      await settingsStatement.run(within, {});
      return work(within);
    });
}
