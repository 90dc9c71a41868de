import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../../src/domain/ids.ts';
import { pruneAll } from '../../src/maintenance/pruner.ts';
import { claimStatement } from '../../src/statements/claim.ts';
import { type Candidate, discover, discoverStatement, type Horizon } from '../../src/statements/discover.ts';
import { knownRevisionsValue } from '../../src/statements/predicates.ts';
import { holdTransaction } from '../support/held-transaction.ts';
import { explain, type Plan } from '../support/plans.ts';
import { insertRow, insertRows, readLaneOf, writeLaneOf } from '../support/rows.ts';
import { knownRevisions, LEASE_MS } from '../support/tasks.ts';
import { expect, test } from '../support/test.ts';

// Hazard 7: the claim gets slow when many dead, future or deleted rows stay in the table.

const BUFFERS_MAX = 50;
const known = knownRevisionsValue(knownRevisions);

const explainDiscovery = (db: Kysely<DB>): Promise<Plan> =>
  explain(db, discoverStatement(20, 'every'), { known, queues: undefined });

async function idsFrom(db: Kysely<DB>, from: Horizon | undefined): Promise<TaskId[]> {
  const found = await discover(readLaneOf(db), { known: knownRevisions, queues: undefined, limit: 20, from });
  return found.map(({ id }) => id);
}

/** Only looked at: the lease it takes is given back. */
async function explainClaim(db: Kysely<DB>, ids: readonly string[]): Promise<Plan> {
  await using held = await holdTransaction(db);
  return await explain(held.tx, claimStatement(4), {
    ids,
    known,
    leaseMs: JSON.stringify(LEASE_MS),
    marginMs: 30_000,
  });
}

test('with 200,000 dead and 200,000 future rows, discovery and claim look at a handful of pages', async ({
  db,
}) => {
  await sql`alter table taskq.async_tasks set (autovacuum_enabled = false)`.execute(db);
  await insertRows(db, 200_000, { attemptCount: 20, runAtSeconds: -3_600 });
  await insertRows(db, 200_000, { runAtSeconds: 3_600 });
  const id = await insertRow(db);

  for (const statistics of ['stale', 'fresh']) {
    if (statistics === 'fresh') await sql`analyze taskq.async_tasks`.execute(db);
    const discovery = await explainDiscovery(db);
    expect(discovery.buffers, statistics).toBeLessThan(BUFFERS_MAX);
    expect([...discovery.indexes], statistics).toEqual(['async_tasks_discovery']);
    expect(discovery.scanned, statistics).not.toContain('async_tasks');
    const claim = await explainClaim(db, [id]);
    expect(claim.buffers, statistics).toBeLessThan(BUFFERS_MAX);
    expect(claim.scanned, statistics).not.toContain('async_tasks');
  }
  expect(await idsFrom(db, undefined)).toEqual([id]);
});

/** Pages of the table and of the index that discovery reads. */
async function pagesOf(db: Kysely<DB>): Promise<number> {
  const { rows } = await sql<{ pages: number }>`
    select ((pg_relation_size('taskq.async_tasks') + pg_relation_size('taskq.async_tasks_discovery')) / 8192)::int
      as pages`.execute(db);
  return rows[0]?.pages ?? 0;
}

test('300,000 deleted rows that an old snapshot still sees cost discovery no more than their own pages, and nothing once they are vacuumed', async ({
  db,
}) => {
  await sql`alter table taskq.async_tasks set (autovacuum_enabled = false)`.execute(db);
  await using snapshot = await holdTransaction(db, 'repeatable read');
  await sql`select count(*) from taskq.async_tasks`.execute(snapshot.tx);
  await insertRows(db, 300_000);
  await sql`delete from taskq.async_tasks`.execute(db);
  const id = await insertRow(db, { runAtSeconds: -1 });

  const held = await explainDiscovery(db);
  // The names of the queues are looked up in the same index, so its dead entries are met twice.
  expect(held.buffers).toBeLessThan(2 * (await pagesOf(db)) + BUFFERS_MAX);
  expect([...held.indexes]).toEqual(['async_tasks_discovery']);
  expect(held.scanned).not.toContain('async_tasks');
  expect((await explainClaim(db, [id])).buffers).toBeLessThan(BUFFERS_MAX);
  expect(await idsFrom(db, undefined)).toEqual([id]);

  // A look from the last one found on, as a busy replica looks, does not meet them at all.
  const [found] = await discover(readLaneOf(db), { known: knownRevisions, queues: undefined, limit: 20 });
  const from = new Map([['default', (found as Candidate).runAt]]);
  expect(await idsFrom(db, from)).toEqual([id]);
  const bounded = await explain(db, discoverStatement(20, 'from'), {
    known,
    queues: ['default'],
    from: [(found as Candidate).runAt.dbMs],
  });
  expect(bounded.buffers).toBeLessThan(BUFFERS_MAX);

  await snapshot.release();
  await sql`vacuum taskq.async_tasks`.execute(db);
  expect((await explainDiscovery(db)).buffers).toBeLessThan(BUFFERS_MAX);
});

test('the table has autovacuum settings of its own, and the prune deletes in bounded batches', async ({
  db,
}) => {
  const { rows } = await sql<{ reloptions: string[] }>`
    select reloptions from pg_class where oid = 'taskq.async_tasks'::regclass`.execute(db);
  expect(rows[0]?.reloptions).toEqual(
    expect.arrayContaining(['autovacuum_vacuum_scale_factor=0.0', 'autovacuum_vacuum_threshold=2000']),
  );

  await insertRows(db, 2_500, { attemptCount: 20, attemptedSecondsAgo: 60 });
  const progress: number[] = [];
  await pruneAll({ write: writeLaneOf(db), retentionMs: 1_000 }, undefined, (deleted) =>
    progress.push(deleted),
  );
  expect(progress).toEqual([1_000, 2_000, 2_500]);
});
