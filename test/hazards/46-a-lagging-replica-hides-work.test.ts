import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { migrateUp } from '../../src/statements/migrate.ts';
import { openApplicationPool } from '../support/application-pool.ts';
import { administer } from '../support/databases.ts';
import { test } from '../support/replica.ts';
import { type ReplicaPair, startReplicaPair } from '../support/replica-pair.ts';
import { allRows } from '../support/rows.ts';
import { enqueue, enqueueMany } from '../support/tasks.ts';
import { expect, onTestFinished, TEST_SCHEMA } from '../support/test.ts';

// Hazard 46: the wake comes from the primary before the replica has the row, and the last change of a burst is only
// seen at some later poll; or what the replica still shows is finished, and hides what is new.

const POLL_MS = 300;
const POLL_MS_MIN = POLL_MS * 0.9;

async function pairWithQueue(): Promise<{ pair: ReplicaPair; db: Kysely<DB> }> {
  const pair = await startReplicaPair();
  onTestFinished(() => pair.stop());
  await migrateUp(pair.primary.url(), { schema: TEST_SCHEMA });
  await pair.caughtUp();
  const db = openApplicationPool(pair.primary.connection()) as unknown as Kysely<DB>;
  return { pair, db };
}

test('tasks that a replica shows two seconds late run once each, found by the poll and without a loop of looks', async ({
  startReplica,
}) => {
  const { pair, db } = await pairWithQueue();
  await administer(
    pair.replica.url(),
    "alter system set recovery_min_apply_delay = '2s'",
    'select pg_reload_conf()',
  );
  const runs = new Map<string, number>();
  const { events } = await startReplica({
    database: pair.primary.url(),
    readDatabase: pair.replica.url(),
    pollInterval: POLL_MS,
    handlers: { plain: async (_payload, { id }) => void runs.set(id, (runs.get(id) ?? 0) + 1) },
  });

  for (const n of [1, 2]) {
    const from = performance.now();
    const looksBefore = events.of('discovered').length;
    const { id } = await enqueue(db, 'plain', { n });
    const claimed = await events.first('claimed', ({ task }) => task.id === id);
    const looks = events.of('discovered').length - looksBefore;
    expect(claimed.waitedMs, 'the lag was real').toBeGreaterThan(1_000);
    // One for each poll, one for the wake, and one more under way at either end.
    expect(looks).toBeLessThanOrEqual((performance.now() - from) / POLL_MS_MIN + 3);
  }
  await enqueueMany(
    db,
    'plain',
    Array.from({ length: 50 }, () => ({})),
  );
  await events.atLeast(52, 'settled');

  expect(runs.size).toBe(52);
  expect([...runs.values()].filter((times) => times !== 1)).toEqual([]);
  expect(events.of('settled', ({ outcome }) => outcome !== 'success')).toEqual([]);
  expect(events.of('database_failed')).toEqual([]);
  expect(await allRows(db)).toEqual([]);
});

test('stale ids of finished, held and deleted tasks cost empty claims, and neither errors, second runs nor the newer work behind them', async ({
  startReplica,
}) => {
  const { pair, db } = await pairWithQueue();
  const tasks = await enqueueMany(
    db,
    'plain',
    Array.from({ length: 60 }, (_, n) => ({ n })),
  );
  await pair.caughtUp();
  await pair.pauseReplay();
  // Twice as many stale ids at the head of the replica's list as one look reads.
  const stale = tasks.slice(0, 40).map(({ id }) => id);
  const fresh = tasks.slice(40).map(({ id }) => id);
  await sql`delete from taskq.async_tasks where id = any(${stale.slice(0, 20)}::bigint[])`.execute(db);
  await sql`update taskq.async_tasks
    set lease_token = gen_random_uuid(), lease_expires_at = now() + interval '1 hour', attempt_count = 1
    where id = any(${stale.slice(20)}::bigint[])`.execute(db);

  const ran: string[] = [];
  const { events } = await startReplica({
    database: pair.primary.url(),
    readDatabase: pair.replica.url(),
    pollInterval: POLL_MS,
    handlers: { plain: async (_payload, { id }) => void ran.push(id) },
  });
  await events.atLeast(fresh.length, 'settled');
  // Two more polls over nothing but stale ids.
  await events.next('claim_empty');
  await events.next('claim_empty');

  expect(ran.toSorted()).toEqual(fresh.toSorted());
  expect(events.of('settled', ({ outcome }) => outcome !== 'success')).toEqual([]);
  expect(events.of('claim_empty').length).toBeGreaterThan(0);
  expect(events.of('database_failed')).toEqual([]);
  expect((await allRows(db)).map(({ attempt_count }) => attempt_count)).toEqual(stale.slice(20).map(() => 1));
});
