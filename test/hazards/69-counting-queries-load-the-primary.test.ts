import { sql } from 'kysely';
import { GAUGE_READ_MS_MAX } from '../../src/domain/limits.ts';
import { scrape, testMetrics } from '../support/metrics.ts';
import { test } from '../support/replica.ts';
import { recordStatements } from '../support/statements.ts';
import { enqueue } from '../support/tasks.ts';
import { expect, TEST_SCHEMA } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

// Hazard 69: the statements that count for a reporter take a large share of the database, most of all when it is in
// trouble already. What one read costs at a million rows is pinned by test/metrics/gauges-cost.test.ts.

test('six replicas, each scraped by two servers for an interval, read the gauges once each', async ({
  startReplica,
}) => {
  const replicas = Array.from({ length: 6 }, () => testMetrics());
  for (const metrics of replicas) await startReplica({ metrics, slots: 1 });
  const sent = recordStatements();

  // Every five seconds of the fifteen, and two at once.
  for (let round = 0; round < 3; round += 1) {
    await Promise.all(replicas.flatMap((metrics) => [scrape(metrics), scrape(metrics)]));
  }

  const reads = sent.all.filter(({ text }) => text.includes('"exhausted_part"'));
  expect(reads).toHaveLength(6);
  const connections = new Set(reads.map(({ client }) => client));
  const ofReads = sent.all.filter(
    ({ client, text }) => connections.has(client) && !text.includes('candidate'),
  );
  expect(ofReads, 'begin, time limit, read, commit').toHaveLength(4 * 6);
});

test('while a read of the gauges hangs, tasks are claimed and run, and the server gives the read up', async ({
  db,
  startReplica,
}) => {
  const metrics = testMetrics();
  const { events } = await startReplica({ metrics, poolMax: 2 });
  const records = sql.table(`${TEST_SCHEMA}.async_completed_tasks`);
  const waiting = async () => {
    const { rows } = await sql<{ ms: string }>`
      select extract(epoch from clock_timestamp() - query_start) * 1000 as ms from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock' and query like '%live_queue%' and pid <> pg_backend_pid()`.execute(
      db,
    );
    return rows;
  };

  await db.transaction().execute(async (transaction) => {
    await sql`lock table ${records} in access exclusive mode`.execute(transaction);
    const scraped = scrape(metrics);
    await waitFor(async () => (await waiting()).length > 0, { what: 'the read to wait for the lock' });

    await enqueue(db, 'plain', {});
    await events.first('settled');

    expect((await scraped).value('taskq_database_up')).toBe(0);
    await waitFor(async () => (await waiting()).length === 0, { what: 'the server to give the read up' });
  });
  metrics.refresh();
  expect((await scrape(metrics)).value('taskq_database_up'), 'the connection is of use again').toBe(1);
  expect(GAUGE_READ_MS_MAX).toBeLessThan(10_000);
});
