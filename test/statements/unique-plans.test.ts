import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { insertRows } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { expect, test } from '../support/test.ts';

test('a unique enqueue reads by an index, however the table has grown since its plans were made', async ({
  db,
}) => {
  const modes = ['live', 'waiting', { window: '1h' }] as const;
  await db.connection().execute(async (session) => {
    // On small tables whose statistics say so, and often enough for the plans to be cached as generic ones.
    await uniqueEnqueue(session, 0, 'live');
    await sql`analyze taskq.async_tasks, taskq.async_task_keys`.execute(session);
    for (let n = 0; n < 12; n += 1) for (const mode of modes) await uniqueEnqueue(session, n, mode);
    await insertRows(session, 20_000);

    const reads = await session.transaction().execute(async (tx) => {
      const before = await readsOf(tx);
      for (const mode of modes) {
        for (const n of [1, 100])
          for (const conflict of ['skip', 'replace'] as const) await uniqueEnqueue(tx, n, mode, conflict);
      }
      const after = await readsOf(tx);
      return { sequential: after.sequential - before.sequential, rows: after.rows - before.rows };
    });

    expect(reads.sequential).toBe(0);
    expect(reads.rows, 'of 20,000').toBeLessThan(200);
  });
});

function uniqueEnqueue(
  tx: Kysely<DB>,
  n: number,
  mode: 'live' | 'waiting' | { window: '1h' },
  onConflict: 'skip' | 'replace' = 'skip',
) {
  return enqueue(
    tx,
    'plain',
    { n },
    { unique: { key: `${JSON.stringify(mode)} ${n}`, while: mode, onConflict } },
  );
}

/** By this session, in both tables of the queue. */
async function readsOf(tx: Kysely<DB>): Promise<{ sequential: number; rows: number }> {
  const { rows } = await sql<{ sequential: number; rows: number }>`
    select sum(seq_scan)::int as sequential, sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int as rows
    from pg_stat_xact_user_tables where schemaname = 'taskq'`.execute(tx);
  return rows[0] ?? { sequential: 0, rows: 0 };
}
