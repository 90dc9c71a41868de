import { createEnqueuer, createRegistry } from '../../src/index.ts';
import { test } from '../support/replica.ts';
import { allRows } from '../support/rows.ts';
import { expect } from '../support/test.ts';
import { startWorkerProcess } from '../support/worker-process.ts';
import { blockingOptions, blockingTasks } from './fixtures/blocking-tasks.ts';

// Hazard 16: a handler blocks its event loop for longer than the lease, and the process believes that all is well.

test('what a blocked process held is run elsewhere, its late settlements are lost, and it goes on without a burst', async ({
  database,
  db,
  startReplica,
}) => {
  const { enqueue } = createEnqueuer(blockingTasks);
  const blocked = startWorkerProcess('blocking-worker.ts', { url: database.url });
  await blocked.events.first('listener_connected');
  const { id: blocks } = await enqueue(db, 'blocks', {});
  const { id: waits } = await enqueue(db, 'waits', {});
  await blocked.heard('blocked');
  expect(
    blocked.events
      .of('claimed')
      .map(({ task }) => task.id)
      .toSorted(),
  ).toEqual([blocks, waits].toSorted());

  const other = await startReplica({
    ...blockingOptions,
    registry: createRegistry(blockingTasks, { blocks: async () => 'done', waits: async () => 'done' }),
  });
  for (const id of [blocks, waits]) {
    const settled = await other.events.first('settled', ({ task }) => task.id === id);
    expect(settled).toMatchObject({ task: { attempt: 2 }, outcome: 'success' });
  }
  await other.app.stop();

  for (const id of [blocks, waits]) {
    const settled = await blocked.events.first('settled', ({ task }) => task.id === id);
    expect(settled).toMatchObject({ task: { attempt: 1 }, outcome: 'lost' });
  }
  expect(await allRows(db)).toEqual([]);
  const { delayMs } = await blocked.events.first('loop_delayed');
  expect(delayMs).toBeGreaterThan(3_000);

  const from = performance.now();
  const looksBefore = blocked.events.of('discovered').length;
  const { id: next } = await enqueue(db, 'waits', {});
  const settled = await blocked.events.first('settled', ({ task }) => task.id === next);
  expect(settled).toMatchObject({ task: { attempt: 1 }, outcome: 'success' });
  const looks = blocked.events.of('discovered').length - looksBefore;
  // A look for each poll, and for the one wake, its claim and its settlement.
  expect(looks).toBeLessThanOrEqual((performance.now() - from) / (200 * 0.9) + 5);
  expect(blocked.events.of('listener_lost')).toEqual([]);
  expect(blocked.events.of('slot_failed')).toEqual([]);
});
