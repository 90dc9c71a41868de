import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../../src/domain/ids.ts';
import { KEY_PRUNE_SCAN } from '../../src/domain/limits.ts';
import { pruneAll, pruneUnusedKeys } from '../../src/maintenance/pruner.ts';
import { dequeue } from '../../src/statements/settle.ts';
import { ManualClock } from '../support/clock.ts';
import { holdTransaction } from '../support/held-transaction.ts';
import { waitUntilBlocked } from '../support/locks.ts';
import { test } from '../support/replica.ts';
import { claimRow, writeLaneOf } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { expect } from '../support/test.ts';
import { makeExisting } from '../support/unique.ts';
import { MODES, STATES, type State } from '../support/unique-truth-table.ts';
import { waitFor } from '../support/wait.ts';

/** In which the key must be kept, so that a transaction with an older snapshot meets it. */
const KEPT: ReadonlySet<State> = new Set([
  'waitingDue',
  'waitingLater',
  'backingOff',
  'abandoned',
  'running',
  'runningFinally',
]);

test('a key goes when its task is done, dead or dropped and no window stands, and an hour has passed', async ({
  db,
}) => {
  const states = (Object.keys(STATES) as State[]).filter((state) => state !== 'none');
  for (const state of states) {
    for (const [name, mode] of Object.entries(MODES)) await makeExisting(db, `${state} ${name}`, state, mode);
  }
  expect(await pruneUnusedKeys(writeLaneOf(db)), 'within the hour').toBe(0);

  await age(db);
  // Six states keep all four keys; of the others a key stays for the window of a task that is done, or is dead.
  expect(await pruneUnusedKeys(writeLaneOf(db))).toBe(10);

  const left = await keyCount(db);
  expect(left).toBe(KEPT.size * 4 + 2);
  expect(await pruneUnusedKeys(writeLaneOf(db))).toBe(0);
});

test('a key that an enqueuer holds is left alone, and its task found afterwards', async ({ db }) => {
  const unique = { key: 'k', while: 'live' } as const;
  const done = await enqueue(db, 'plain', {}, { unique });
  const { lease } = await claimRow(db, done.id);
  await dequeue(writeLaneOf(db), [lease]);
  await age(db);
  await using held = await holdTransaction(db);
  const { id } = await enqueue(held.tx, 'plain', {}, { unique });

  expect(await pruneUnusedKeys(writeLaneOf(db))).toBe(0);

  await held.tx.commit().execute();
  expect(await enqueue(db, 'plain', {}, { unique })).toEqual({ id, status: 'existing' });
});

test('an enqueue that begins while its key is deleted makes the key anew', async ({ database, db }) => {
  const unique = { key: 'k', while: 'live' } as const;
  const { id } = await enqueue(db, 'plain', {}, { unique });
  await deleteTask(db, id);
  await age(db);

  await using pruning = await holdTransaction(db);
  expect(await pruneUnusedKeys(writeLaneOf(pruning.tx))).toBe(1);
  const second = enqueue(db, 'plain', {}, { unique });
  await waitUntilBlocked(database.url);

  await pruning.tx.commit().execute();

  expect(await second).toMatchObject({ status: 'enqueued' });
  expect(await keyCount(db)).toBe(1);
});

test('more keys than one statement looks through are pruned in several', async ({ db }) => {
  await sql`insert into taskq.async_task_keys (key, task_id, enqueued_at)
    select sha256(n::text::bytea), n, now() - interval '2 hours'
    from generate_series(1, ${KEY_PRUNE_SCAN * 2 + 1}::int) n`.execute(db);

  expect(await pruneUnusedKeys(writeLaneOf(db))).toBe(KEY_PRUNE_SCAN * 2 + 1);
});

test('a dead letter that is pruned ends its window, as one that is dropped does', async ({ db }) => {
  const unique = { key: 'k', while: { window: '30d' } } as const;
  const { id } = await enqueue(db, 'plain', {}, { unique });
  await sql`update taskq.async_tasks set retired = true, last_attempted_at = now() - interval '8 days'`.execute(
    db,
  );
  expect(await pruneAll({ write: writeLaneOf(db), retentionMs: 7 * 86_400_000 })).toBe(1);

  const second = await enqueue(db, 'plain', {}, { unique });

  expect(second.status).toBe('enqueued');
  expect(second.id).not.toBe(id);
});

test('a replica prunes keys with its dead letters', async ({ db, startReplica }) => {
  const { id } = await enqueue(db, 'plain', {}, { unique: { key: 'k', while: 'live' } });
  await deleteTask(db, id);
  await age(db);
  const clock = new ManualClock();
  await startReplica({ roles: ['prune'], clock, timers: clock });

  clock.advance(300_000);

  await waitFor(async () => (await keyCount(db)) === 0, { what: 'the key to be pruned' });
});

async function age(db: Kysely<DB>): Promise<void> {
  await sql`update taskq.async_task_keys set enqueued_at = enqueued_at - interval '2 hours'`.execute(db);
}

async function deleteTask(db: Kysely<DB>, id: TaskId): Promise<void> {
  await sql`delete from taskq.async_tasks where id = ${id}`.execute(db);
}

async function keyCount(db: Kysely<DB>): Promise<number> {
  const { rows } = await sql<{ n: number }>`select count(*)::int as n from taskq.async_task_keys`.execute(db);
  return rows[0]?.n ?? 0;
}
