import { sql } from 'kysely';
import { expect } from 'vitest';
import { definePulsed, pulsedRegistry } from '../support/pulsed.ts';
import { test } from '../support/replica.ts';
import { findRow, insertRow, rowOf, wakeReplicas } from '../support/rows.ts';
import { waitFor } from '../support/wait.ts';
import { startWorkerProcess } from '../support/worker-process.ts';

test('a worker that dies is taken over after three heartbeats at the most, however long the ceiling', async ({
  database,
  db,
  startReplica,
}) => {
  const worker = startWorkerProcess('pulsed-worker.ts', { url: database.url });
  await worker.events.first('listener_connected');
  const id = await insertRow(db, { type: 'pulsed' });
  await wakeReplicas(db);
  await worker.events.first('claimed');
  const claimed = await rowOf(db, id);
  await waitFor(async () => (await rowOf(db, id)).lease_expires_at !== claimed.lease_expires_at, {
    what: 'a heartbeat of the worker',
  });

  worker.child.kill('SIGKILL');
  await worker.ended;

  // Nobody extends it any more: what is left is three beats at the most, of a ceiling of an hour.
  const { rows } = await sql<{ left: number }>`
    select extract(epoch from lease_expires_at - now())::float8 as left from taskq.async_tasks`.execute(db);
  expect(rows[0]?.left).toBeLessThanOrEqual(3);
  const { events } = await startReplica({
    pollInterval: '100ms',
    registry: pulsedRegistry(async () => 'done', definePulsed('1s', '1h')),
  });
  expect(await events.first('settled')).toMatchObject({ outcome: 'success', task: { id, attempt: 2 } });
  expect(await findRow(db, id)).toBeUndefined();
});
