import { expect } from 'vitest';
import { gate, type StartReplica, test, whenIdle } from '../support/replica.ts';
import { recordStatements } from '../support/statements.ts';
import { enqueue, enqueueMany } from '../support/tasks.ts';

const REPLICAS = 3;
const SLOTS = 4;

test('one enqueue makes at most one claim in each replica, however many slots are idle', async ({
  db,
  startReplica,
}) => {
  const replicas = await startIdle(startReplica, async () => {});
  const sent = recordStatements();

  await enqueue(db, 'plain', {});

  await Promise.all(replicas.map(({ events }) => events.first('wake_received')));
  await Promise.any(replicas.map(({ events }) => events.first('settled')));
  // Every look that the wake can have caused has ended: the last of each replica found nothing.
  await Promise.all(replicas.map(whenQuiet));
  const senders = sent.claims().map(({ client }) => client);
  expect(new Set(senders).size).toBe(senders.length);
  expect(senders.length).toBeLessThanOrEqual(REPLICAS);
  // One look for the wake in each; the winner's next slot looks too, and its own slot again when it is done.
  expect(sent.discoveries().length).toBeLessThanOrEqual(REPLICAS + 2);
});

test('a burst announced by one notification has every slot busy, each woken by the one before', async ({
  db,
  startReplica,
}) => {
  const end = gate();
  const allBusy = gate();
  let running = 0;
  const replicas = await startIdle(startReplica, async () => {
    running += 1;
    if (running === REPLICAS * SLOTS) allBusy.open();
    await end.promise;
  });

  await db.transaction().execute((tx) =>
    enqueueMany(
      tx,
      'plain',
      Array.from({ length: 50 }, () => ({})),
    ),
  );

  await allBusy.promise;
  expect(replicas.map(({ app }) => app.status().busy)).toEqual(replicas.map(() => SLOTS));
  expect(replicas.map(({ events }) => events.of('wake_received').length)).toEqual(replicas.map(() => 1));
  end.open();
});

async function startIdle(startReplica: StartReplica, plain: () => Promise<void>) {
  const replicas = await Promise.all(
    // One connection each, so that whose statement it was can be told.
    Array.from({ length: REPLICAS }, () => startReplica({ slots: SLOTS, poolMax: 1, handlers: { plain } })),
  );
  await Promise.all(replicas.map(whenIdle));
  return replicas;
}

type Replica = Awaited<ReturnType<StartReplica>>;

/** Its last look came after the wake and after whatever it has settled, and came to nothing. */
function whenQuiet({ events }: Replica): Promise<void> {
  const isQuiet = () => {
    const last = events.all.findLastIndex(({ kind }) => kind === 'wake_received' || kind === 'settled');
    return events.all
      .slice(last + 1)
      .some(
        (event) => event.kind === 'claim_empty' || (event.kind === 'discovered' && event.candidates === 0),
      );
  };
  return events.until(isQuiet, 'a last look that finds nothing');
}
