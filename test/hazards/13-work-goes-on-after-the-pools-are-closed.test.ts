import { sql } from 'kysely';
import { holdTransaction } from '../support/held-transaction.ts';
import { test } from '../support/replica.ts';
import { allRows, insertRow, insertRows, rowOf, wakeReplicas } from '../support/rows.ts';
import { expect } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';
import { startWorkerProcess } from '../support/worker-process.ts';

// Hazard 13: the prune, a release or a wake still runs after the pools have been closed, or the process never exits.

test('a stop in the middle of everything claims no more, settles what returns, ends the prune, closes last and lets the process exit', async ({
  database,
  db,
}) => {
  const [atOnce, alsoAtOnce, late, tooLate] = [
    await insertRow(db, { payload: { n: 0 } }),
    await insertRow(db, { payload: { n: 0 } }),
    await insertRow(db, { payload: { n: 1 } }),
    await insertRow(db, { payload: { n: 2 } }),
  ];
  await insertRows(db, 3, { attemptCount: 20, attemptedSecondsAgo: 86_400 });
  const worker = startWorkerProcess('stopping-worker.ts', { url: database.url });
  await worker.events.atLeast(4, 'claimed');
  await worker.events.first('listener_connected');
  const waitingForLock = async () => {
    const { rows } = await sql<{ query: string }>`select query from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`.execute(db);
    return rows.map(({ query }) => query);
  };

  await using tableLock = await holdTransaction(db);
  await sql`lock table taskq.async_tasks in exclusive mode`.execute(tableLock.tx);
  worker.send('prune');
  await waitFor(async () => (await waitingForLock()).some((query) => query.startsWith('with "old"')), {
    what: 'the prune to wait for the table',
  });
  const stopSentAt = performance.now();
  worker.send('stop');
  await worker.events.first('stopping');
  for (let n = 0; n < 10; n += 1) await wakeReplicas(db);
  await waitFor(async () => (await waitingForLock()).some((query) => query.startsWith('update')), {
    what: 'a release to wait for the table',
  });
  await tableLock.release();
  const { exitCode, stderr } = await worker.ended;
  const tookMs = performance.now() - stopSentAt;

  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
  expect(worker.said).toEqual(['stopped one that never started', 'stopped twice']);
  expect(tookMs, 'the handler that takes 20 s was left behind').toBeLessThan(20_000);

  const afterStop = worker.events.all.slice(
    worker.events.all.findIndex(({ kind }) => kind === 'stopping') + 1,
  );
  const kinds = afterStop.map(({ kind }) => kind);
  expect(kinds.toSorted()).toEqual(
    ['handler_abandoned', 'pruned', 'settled', 'settled', 'settled', 'stopped'].toSorted(),
  );
  expect(kinds.at(-1)).toBe('stopped');
  for (const id of [atOnce, alsoAtOnce, late]) {
    const [settled] = worker.events.of('settled', ({ task }) => task.id === id);
    expect(settled).toMatchObject({ outcome: 'cancelled', dead: false });
    expect(await rowOf(db, id)).toMatchObject({ attempt_count: 1, lease_token: null, last_error: null });
  }
  expect(worker.events.of('handler_abandoned')).toMatchObject([{ task: { id: tooLate } }]);
  expect((await rowOf(db, tooLate)).lease_token).not.toBeNull();
  expect(await allRows(db), 'the dead letters are pruned').toHaveLength(4);
});
