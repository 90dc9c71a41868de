import { expect } from 'vitest';
import { test, whenIdle } from '../support/replica.ts';
import { wakeReplicas } from '../support/rows.ts';
import { betweenAnswerAndUse, isDiscovery } from '../support/statements.ts';
import { enqueue } from '../support/tasks.ts';

test('no wake is lost between an empty discovery and the wait', async ({ db, startReplica }) => {
  // The poll is a minute away, so that only the remembered wake can explain the run.
  const replica = await startReplica({ slots: 1 });
  await whenIdle(replica);
  const { events } = replica;
  let id: string | undefined;
  betweenAnswerAndUse(isDiscovery, async () => {
    // The database has answered that nothing is due; the slot does not know it yet, and is not waiting.
    const woken = events.next('wake_received');
    ({ id } = await enqueue(db, 'plain', {}));
    await woken;
  });

  const looksBefore = events.of('discovered').length;

  await wakeReplicas(db);

  expect(await events.first('settled')).toMatchObject({ outcome: 'success', task: { id } });
  const looks = events.of('discovered').slice(looksBefore);
  expect(looks.slice(0, 2).map(({ candidates }) => candidates)).toEqual([0, 1]);
});

test('wakes that find no idle slot are remembered once, not counted', async ({ db, startReplica }) => {
  const replica = await startReplica({ slots: 1 });
  await whenIdle(replica);
  const { events } = replica;
  betweenAnswerAndUse(isDiscovery, async () => {
    const woken = events.atLeast(events.of('wake_received').length + 5, 'wake_received');
    for (let count = 0; count < 5; count += 1) await wakeReplicas(db);
    await woken;
  });
  const looksBefore = events.of('discovered').length;

  await wakeReplicas(db);

  // The look that was under way, and one more for the five.
  await events.atLeast(looksBefore + 2, 'discovered');
  await enqueue(db, 'plain', {});
  await events.first('settled');
  const looksAfter = events
    .of('discovered')
    .slice(looksBefore)
    .map(({ candidates }) => candidates);
  expect(looksAfter.slice(0, 3)).toEqual([0, 0, 1]);
});
