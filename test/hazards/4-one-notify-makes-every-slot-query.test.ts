import type { QueueEvent } from '../../src/index.ts';
import { gate, type StartReplica, type TestReplica, test } from '../support/replica.ts';
import { allRows } from '../support/rows.ts';
import { recordStatements } from '../support/statements.ts';
import { enqueue, enqueueMany, type handlersFor } from '../support/tasks.ts';
import { expect } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

// Hazard 4: one NOTIFY makes every process and every slot query at once. Three replicas of four slots each,
// with a poll of an hour: whatever they send, a wake made them send it.

const REPLICAS = 3;
const SLOTS = 4;

async function startThree(
  startReplica: StartReplica,
  handlers: NonNullable<Parameters<typeof handlersFor>[0]> = {},
): Promise<TestReplica[]> {
  const start = () => startReplica({ slots: SLOTS, pollInterval: '1h', handlers });
  const replicas = await Promise.all(Array.from({ length: REPLICAS }, start));
  // The look that follows the connect of the listener is not what is counted here.
  await Promise.all(replicas.map(({ events }) => events.atLeast(2, 'discovered')));
  return replicas;
}

const countOf = (replicas: readonly TestReplica[], kind: QueueEvent['kind']) =>
  replicas.reduce((sum, { events }) => sum + events.of(kind).length, 0);

test('one task costs at most one claim for each replica, not one for each slot', async ({
  db,
  startReplica,
}) => {
  const replicas = await startThree(startReplica);
  const statements = recordStatements();

  await enqueue(db, 'plain', {});
  await Promise.race(replicas.map(({ events }) => events.first('settled')));
  await Promise.all(replicas.map(({ events }) => events.first('wake_received')));
  await waitFor(() => statements.discoveries().length >= REPLICAS, { what: 'each replica to have looked' });
  await Promise.all(replicas.map(({ app }) => app.stop()));

  expect(countOf(replicas, 'settled')).toBe(1);
  expect(countOf(replicas, 'wake_received')).toBe(REPLICAS);
  expect(statements.claims().length).toBeLessThanOrEqual(REPLICAS);
  // The winner looks again when it has claimed and when it has settled.
  expect(statements.discoveries().length).toBeLessThanOrEqual(REPLICAS * 3);
});

test('a thousand tasks of one transaction send one notification and have all twelve slots busy at once', async ({
  db,
  startReplica,
}) => {
  const { promise: allBusy, open } = gate();
  let running = 0;
  const plain = async () => {
    running += 1;
    if (running === REPLICAS * SLOTS) open();
    await allBusy;
  };
  const replicas = await startThree(startReplica, { plain });

  await db.transaction().execute((tx) =>
    enqueueMany(
      tx,
      'plain',
      Array.from({ length: 1_000 }, () => ({})),
    ),
  );
  await waitFor(() => countOf(replicas, 'settled') === 1_000, { what: 'all thousand to be settled' });

  for (const { events } of replicas) expect(events.of('wake_received')).toHaveLength(1);
  expect(await allRows(db)).toEqual([]);
});

test('of two hundred single enqueues no wake is lost, and no claim is empty for each slot', async ({
  db,
  startReplica,
}) => {
  const replicas = await startThree(startReplica);
  const enqueues = 200;

  await Promise.all(Array.from({ length: enqueues }, () => enqueue(db, 'plain', {})));
  await waitFor(() => countOf(replicas, 'settled') === enqueues, { what: 'all to be settled' });

  expect(countOf(replicas, 'claim_empty')).toBeLessThanOrEqual(REPLICAS * enqueues);
  expect(await allRows(db)).toEqual([]);
});
