import { expect } from 'vitest';
import { TaskqError } from '../../src/index.ts';
import { gate, test, whenIdle } from '../support/replica.ts';
import { findRow, insertRow, rowOf, wakeReplicas } from '../support/rows.ts';
import { betweenAnswerAndUse, isDiscovery } from '../support/statements.ts';

test('a stop aborts the handler, releases its row, and another replica takes over within a poll', async ({
  db,
  startReplica,
}) => {
  const started = gate();
  const reason = gate<unknown>();
  const stopped = await startReplica({
    handlers: {
      plain: (_payload, { signal }) =>
        new Promise((_resolve, reject) => {
          started.open();
          signal.addEventListener('abort', () => {
            reason.open(signal.reason);
            reject(signal.reason);
          });
        }),
    },
  });
  const id = await insertRow(db);
  await wakeReplicas(db);
  await started.promise;
  const other = await startReplica({ pollInterval: 100 });

  await stopped.app.stop();

  expect(await reason.promise).toBeInstanceOf(TaskqError);
  expect(await reason.promise).toMatchObject({ code: 'SHUTDOWN' });
  expect(stopped.events.of('settled')).toMatchObject([{ outcome: 'cancelled', dead: false, task: { id } }]);
  // The lease had minutes to go: only the release explains that somebody else has it now.
  expect(await other.events.first('settled')).toMatchObject({ outcome: 'success', task: { id, attempt: 2 } });
  expect(await findRow(db, id)).toBeUndefined();
});

test('a handler that ends within the grace of a stop is settled as what it said', async ({
  db,
  startReplica,
}) => {
  const [started, end] = [gate(), gate()];
  const aborted: boolean[] = [];
  const { app, events } = await startReplica({
    shutdownGrace: '1m',
    handlers: {
      plain: async (_payload, { signal }) => {
        started.open();
        await end.promise;
        aborted.push(signal.aborted);
      },
    },
  });
  const id = await insertRow(db);
  await wakeReplicas(db);
  await started.promise;

  const stopping = app.stop();
  end.open();
  await stopping;

  expect(aborted).toEqual([false]);
  expect(events.of('settled')).toMatchObject([{ outcome: 'success', task: { id } }]);
});

test('a stopping replica claims nothing more, not even what it has just discovered', async ({
  db,
  startReplica,
}) => {
  const replica = await startReplica({ slots: 2 });
  await whenIdle(replica);
  const { app, events } = replica;
  const stopped = gate();
  betweenAnswerAndUse(isDiscovery, async () => {
    void app.stop().then(() => stopped.open());
    await events.first('stopping');
  });
  // A claim would burn the final attempt, and make it a dead letter that never ran.
  const id = await insertRow(db, { attemptCount: 19 });
  const before = await rowOf(db, id);

  await wakeReplicas(db);
  await stopped.promise;

  expect(events.of('discovered').at(-1)).toMatchObject({ candidates: 1 });
  expect(events.of('claimed')).toEqual([]);
  expect(await rowOf(db, id)).toEqual(before);
});

test('a stop on the final attempt stamps the reason, so that the dead letter explains itself', async ({
  db,
  startReplica,
}) => {
  const started = gate();
  const { app, events } = await startReplica({
    handlers: {
      plain: (_payload, { signal }) => {
        started.open();
        return new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason));
        });
      },
    },
  });
  const id = await insertRow(db, { attemptCount: 19 });
  await wakeReplicas(db);
  await started.promise;

  await app.stop();

  expect(events.of('settled')).toMatchObject([{ outcome: 'cancelled', dead: true }]);
  expect(await rowOf(db, id)).toMatchObject({
    attempt_count: 20,
    exhausted: true,
    lease_token: null,
    last_error: expect.stringContaining('shut down'),
    errors: [{ attempt: 20, outcome: 'cancelled' }],
  });
});
