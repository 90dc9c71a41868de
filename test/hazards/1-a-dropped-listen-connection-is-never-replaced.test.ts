import { backendsOf, terminate } from '../support/backends.ts';
import { FaultProxy } from '../support/fault-proxy.ts';
import { test } from '../support/replica.ts';
import { enqueue } from '../support/tasks.ts';
import { expect, onTestFinished } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

// Hazard 1: a dropped LISTEN connection is never replaced, so every later wake is lost until a restart.
// The poll comes once an hour, so that only the LISTEN connection explains a task that starts.

const LISTENER = 'taskq listener';

test('after each loss of the LISTEN connection the tasks of the gap start and wakes arrive again', async ({
  database,
  db,
  startReplica,
}) => {
  const proxy = await FaultProxy.start(database.connection);
  onTestFinished(() => proxy.stop());
  const { events } = await startReplica({ listenDatabase: proxy.url, pollInterval: '1h' });
  const runs = async () => {
    const { id } = await enqueue(db, 'plain', {});
    await events.first('settled', ({ task, outcome }) => task.id === id && outcome === 'success');
  };

  for (const round of [1, 2, 3, 4]) {
    const lost = events.next('listener_lost');
    const connectedAgain = events.next('listener_connected', ({ again }) => again);
    const refusedBefore = proxy.refusedCount;
    if (round === 4) proxy.mode = 'refuse';
    await terminate(db, await backendsOf(db, LISTENER));
    await lost;
    const { id: enqueuedInTheGap } = await enqueue(db, 'plain', {});
    if (round === 4) {
      await waitFor(() => proxy.refusedCount >= refusedBefore + 2, { what: 'two refused re-connects' });
      proxy.mode = 'pass';
    }
    await connectedAgain;
    await events.first('settled', ({ task }) => task.id === enqueuedInTheGap);
    await runs();
    expect(await backendsOf(db, LISTENER), `sessions after round ${round}`).toHaveLength(1);
    expect(events.of('listener_lost'), 'one warning for each loss').toHaveLength(round);
  }
  expect(events.of('slot_failed')).toEqual([]);
});

test('a LISTEN connection that could not be made at the start is made later', async ({
  database,
  db,
  startReplica,
}) => {
  const proxy = await FaultProxy.start(database.connection);
  onTestFinished(() => proxy.stop());
  proxy.mode = 'refuse';

  const starting = startReplica({ listenDatabase: proxy.url, pollInterval: '1h' });
  await waitFor(() => proxy.refusedCount >= 2, { what: 'two refused connects' });
  proxy.mode = 'pass';
  const { events } = await starting;

  expect(events.of('listener_connected')).toEqual([{ kind: 'listener_connected', again: false }]);
  const { id } = await enqueue(db, 'plain', {});
  await events.first('settled', ({ task }) => task.id === id);
});
