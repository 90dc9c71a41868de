import { type Kysely, sql } from 'kysely';
import { describe, expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../../src/domain/ids.ts';
import { allRows, claimRows, insertRows } from '../support/rows.ts';
import { test } from '../support/test.ts';

// The planner believes in one row, and so it may put the picking half of the claim on the inside of a nested
// loop. Were it not materialized, each pass of that loop would lock and lease one row more.
const PLANNER_SETTINGS = {
  'default planner settings': [],
  'nested loops only': ['enable_hashjoin = off', 'enable_mergejoin = off', 'enable_material = off'],
  'a forced generic plan': ['plan_cache_mode = force_generic_plan'],
};

describe('a claim for one slot leases exactly one row under stale statistics', () => {
  for (const [title, settings] of Object.entries(PLANNER_SETTINGS)) {
    test(`with ${title}`, async ({ db }) => {
      const ids = await insertUnderStaleStatistics(db, 40);
      const before = await allRows(db);

      const claimed = await db.connection().execute(async (connection) => {
        for (const setting of settings) await sql`set ${sql.raw(setting)}`.execute(connection);
        return claimRows(connection, ids.slice(0, 20));
      });

      expect(claimed).toHaveLength(1);
      const [task] = claimed;
      const after = await allRows(db);
      const leased = after.filter((row) => row.lease_token !== null);
      expect(leased).toMatchObject([
        { id: Number(task?.id), lease_token: task?.lease.token, attempt_count: 1 },
      ]);
      expect(after.filter((row) => row.lease_token === null)).toEqual(
        before.filter((row) => row['id'] !== Number(task?.id)),
      );
    });
  }
});

test('concurrent claimers never lease a row twice, and lease no row that they do not return', async ({
  db,
}) => {
  const ids = await insertRows(db, 100);

  const claimers = Array.from({ length: 8 }, async () => {
    const mine: { id: TaskId; token: string }[] = [];
    for (;;) {
      const [task] = await claimRows(db, ids);
      if (task === undefined) return mine;
      mine.push({ id: task.id, token: task.lease.token });
    }
  });
  const claimed = (await Promise.all(claimers)).flat();

  const rows = await allRows(db);
  expect(rows.map((row) => row.attempt_count)).toEqual(Array.from({ length: 100 }, () => 1));
  const byId = (a: { id: unknown }, b: { id: unknown }) => Number(a.id) - Number(b.id);
  expect(claimed.toSorted(byId)).toEqual(
    rows.map((row) => ({ id: String(row['id']), token: row.lease_token })).toSorted(byId),
  );
});

async function insertUnderStaleStatistics(db: Kysely<DB>, count: number): Promise<TaskId[]> {
  await sql`alter table taskq.async_tasks set (autovacuum_enabled = off)`.execute(db);
  const first = await insertRows(db, 1);
  await sql`vacuum (analyze) taskq.async_tasks`.execute(db);
  return [...first, ...(await insertRows(db, count - 1))];
}
