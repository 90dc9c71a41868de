import { type Kysely, sql } from 'kysely';
import { expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { release } from '../../src/statements/settle.ts';
import { claimRows, insertRows, writeLaneOf } from '../support/rows.ts';
import { enqueueMany } from '../support/tasks.ts';
import { test } from '../support/test.ts';

test('a claim and a release touch no index: the row stays where the indexes point', async ({ db }) => {
  const plain = await insertRows(db, 5);
  // A unique key has an index of its own, and no claim changes it.
  const payloads = [{ n: 1 }, { n: 2 }, { n: 3 }, { n: 4 }, { n: 5 }];
  const unique = await enqueueMany(db, 'plain', payloads, { unique: { by: ['n'], while: 'live' } });
  const ids = [...plain, ...unique.map(({ id }) => id)];

  await db.transaction().execute(async (tx) => {
    const tasks = await claimRows(tx, ids, { slots: 10 });
    expect(await updates(tx)).toEqual({ all: 10, heapOnly: 10 });
    for (const { lease } of tasks) {
      await release(writeLaneOf(tx), lease, { attempt: 1, outcome: 'cancelled', message: 'stopped' });
    }
    expect(await updates(tx)).toEqual({ all: 20, heapOnly: 20 });
  });
});

test('only the claim of the final attempt moves the row, out of the index of discovery', async ({ db }) => {
  const ids = await insertRows(db, 10, { attemptCount: 19 });

  await db.transaction().execute(async (tx) => {
    await claimRows(tx, ids, { slots: 10 });
    expect(await updates(tx)).toEqual({ all: 10, heapOnly: 0 });
  });
});

/** Of the transaction under way: the statistics of the whole table are behind by an unknown while. */
async function updates(tx: Kysely<DB>): Promise<{ all: number; heapOnly: number }> {
  const { rows } = await sql<{ all: number; heapOnly: number }>`
    select n_tup_upd::int as "all", n_tup_hot_upd::int as "heapOnly"
    from pg_stat_xact_user_tables where schemaname = 'taskq' and relname = 'async_tasks'`.execute(tx);
  return rows[0] ?? { all: 0, heapOnly: 0 };
}
