import { type Kysely, sql } from 'kysely';
import type pg from 'pg';
import type { DB } from '../../generated/db.ts';
import { PreparedClient } from '../../src/postgres/client.ts';
import { discoverStatement, REACHES } from '../../src/statements/discover.ts';
import { writeLane } from '../../src/statements/lanes.ts';
import { knownRevisionsValue } from '../../src/statements/predicates.ts';
import { dequeue } from '../../src/statements/settle.ts';
import { openApplicationPool } from '../support/application-pool.ts';
import { explain } from '../support/plans.ts';
import { claimRow, insertRow, insertRows } from '../support/rows.ts';
import { knownRevisions } from '../support/tasks.ts';
import { expect, TEST_SCHEMA, test } from '../support/test.ts';

const BURST = 20_000;

/** Autovacuum would bring statistics, and with them another plan, at a moment of its own. */
async function withoutAutovacuum(db: Kysely<DB>): Promise<void> {
  await sql`alter table taskq.async_tasks set (autovacuum_enabled = false)`.execute(db);
}

test('a discovery reads a few pages of a burst although the table was never analysed', async ({ db }) => {
  await withoutAutovacuum(db);
  await insertRows(db, BURST);
  const known = knownRevisionsValue(knownRevisions);
  for (const reach of REACHES) {
    const queues = reach === 'every' ? undefined : ['default', 'critical'];
    const plan = await explain(db, discoverStatement(20, reach), { known, queues, from: [0, 0] });
    expect(plan.buffers).toBeLessThan(50);
    expect(plan.nodeTypes).not.toContain('Bitmap Heap Scan');
  }
});

test('a plan that was cached for an empty queue is replaced soon after a burst', async ({ db, database }) => {
  await withoutAutovacuum(db);
  // An empty table that vacuum has seen: whatever is planned now walks the whole table.
  await sql`vacuum taskq.async_tasks`.execute(db);
  const pool = openApplicationPool({
    ...database.connection,
    max: 1,
    Client: PreparedClient as typeof pg.Client,
  });
  const lane = writeLane(pool, TEST_SCHEMA);
  const dequeueOne = async () => {
    const id = await insertRow(db);
    const { lease } = await claimRow(db, id);
    expect(await dequeue(lane, [lease])).toEqual(new Set([id]));
  };
  for (let run = 0; run < 6; run += 1) await dequeueOne();
  await insertRows(db, BURST);
  const held = await claimRow(db, await insertRow(db));
  const wrong = { ...held.lease, token: '00000000-0000-4000-8000-000000000000' as typeof held.lease.token };

  for (let run = 0; run < 200; run += 1) await dequeue(lane, [wrong]);

  // The plan that this connection would use now, as the server keeps it under the statement's name.
  const { rows } = await sql<{ name: string }>`
    select name from pg_prepared_statements where statement like 'delete from%'`.execute(pool);
  const values = `('{${wrong.id}}', '{${wrong.token}}')`;
  const plan = await sql`explain execute ${sql.id(rows[0]?.name ?? '')} ${sql.raw(values)}`.execute(pool);
  expect(JSON.stringify(plan.rows)).toContain('async_tasks_pkey');
  expect(JSON.stringify(plan.rows)).not.toContain('Seq Scan');
});
