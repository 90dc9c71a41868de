import type { Kysely } from 'kysely';
import { sql } from 'kysely';
import { expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { discover } from '../../src/statements/discover.ts';
import { gate, type TestReplica, test } from '../support/replica.ts';
import { insertRow, insertRows, readLaneOf, wakeReplicas } from '../support/rows.ts';
import { knownRevisions } from '../support/tasks.ts';

const QUEUES = { critical: 6, default: 3, low: 1 };
const CLAIMS = 10_000;

/** Fills all of them at once. `runAtSeconds` 0: as an enqueue does. */
async function fillQueues(db: Kysely<DB>, rows: Record<string, number>, runAtSeconds = -60): Promise<void> {
  await db.transaction().execute(async (tx) => {
    for (const [queue, count] of Object.entries(rows)) await insertRows(tx, count, { queue, runAtSeconds });
  });
}

const claimedQueues = (...replicas: TestReplica[]) =>
  replicas.flatMap(({ events }) => events.of('claimed').map(({ task }) => task.queue));

const sharesOf = (queues: readonly string[], claims = queues.length) =>
  Object.keys(QUEUES).map((queue) => (100 * queues.filter((each) => each === queue).length) / claims);

test('over 10,000 claims with every queue full the shares of two replicas are within 3 points of 6:3:1', async ({
  db,
  startReplica,
}) => {
  await fillQueues(db, { critical: 8_000, default: 5_000, low: 2_500 });
  const replicas = await Promise.all([0, 1].map(() => startReplica({ queues: QUEUES, slots: 6 })));
  await Promise.all(replicas.map(({ events }) => events.atLeast(CLAIMS / 2, 'claimed')));

  const claims = replicas.flatMap(({ events }) => events.of('claimed').slice(0, CLAIMS / 2));
  const [critical, middle, low] = sharesOf(claims.map(({ task }) => task.queue));
  expect(Math.abs((critical ?? 0) - 60)).toBeLessThan(3);
  expect(Math.abs((middle ?? 0) - 30)).toBeLessThan(3);
  expect(Math.abs((low ?? 0) - 10)).toBeLessThan(3);
});

test('the share of an empty queue flows to the others, and it has its own back when it fills', async ({
  db,
  startReplica,
}) => {
  await fillQueues(db, { default: 400, low: 400 });
  const replica = await startReplica({ queues: QUEUES, slots: 1 });
  await replica.events.atLeast(400, 'claimed');
  const [, middle, low] = sharesOf(claimedQueues(replica).slice(0, 400));
  expect(middle).toBeCloseTo(75, 0);
  expect(low).toBeCloseTo(25, 0);

  await fillQueues(db, { critical: 300, default: 300, low: 300 }, 0);
  const before = replica.events.of('claimed').length;
  await wakeReplicas(db);
  await replica.events.until(
    () => claimedQueues(replica).slice(before).includes('critical'),
    'a critical task',
  );
  const first = claimedQueues(replica).indexOf('critical');
  await replica.events.atLeast(first + 200, 'claimed');
  expect(sharesOf(claimedQueues(replica).slice(first, first + 200)).map(Math.round)).toEqual([60, 30, 10]);
});

test('a low queue is never starved: one task of it waits for a round of the others at the most', async ({
  db,
  startReplica,
}) => {
  await fillQueues(db, { critical: 1_000, default: 1_000 });
  const id = await insertRow(db, { queue: 'low' });
  const replica = await startReplica({ queues: QUEUES, slots: 1 });
  await replica.events.first('claimed', ({ task }) => task.id === id);
  expect(claimedQueues(replica).indexOf('low')).toBeLessThan(10);
});

test('inside a queue the oldest due task comes first, whatever the other queues hold', async ({
  db,
  startReplica,
}) => {
  await fillQueues(db, { low: 300, critical: 300, default: 300 });
  const replica = await startReplica({ queues: QUEUES, slots: 1 });
  await replica.events.atLeast(900, 'settled');
  for (const queue of Object.keys(QUEUES)) {
    const ids = replica.events
      .of('claimed', ({ task }) => task.queue === queue)
      .map(({ task }) => Number(task.id));
    expect(ids).toEqual([...ids].sort((left, right) => left - right));
    expect(ids).toHaveLength(300);
  }
});

test('a weight that is changed at run time holds on every replica within a second, without a restart', async ({
  db,
  startReplica,
}) => {
  await fillQueues(db, { critical: 3_000, low: 3_000 });
  const replica = await startReplica({ queues: { critical: 9, low: 1 }, slots: 2 });
  await replica.events.atLeast(200, 'claimed');
  expect(sharesOf(claimedQueues(replica).slice(0, 200))[2]).toBeLessThan(15);

  await sql`insert into taskq.async_queues (name, weight) values ('low', 81)`.execute(db);
  const before = replica.events.of('claimed').length;
  await replica.events.until(() => {
    const last = claimedQueues(replica).slice(before).slice(-200);
    return last.length === 200 && (sharesOf(last)[2] ?? 0) > 85;
  }, 'nine tenths of the claims from the low queue');
});

test('strict: a lower queue is served only once those above it are empty', async ({ db, startReplica }) => {
  await fillQueues(db, { low: 50, default: 100, critical: 100 });
  const replica = await startReplica({ queues: QUEUES, strictQueues: true, slots: 1 });
  await replica.events.atLeast(250, 'claimed');
  const queues = claimedQueues(replica);
  expect(new Set(queues.slice(0, 100))).toEqual(new Set(['critical']));
  expect(new Set(queues.slice(100, 200))).toEqual(new Set(['default']));
  expect(new Set(queues.slice(200))).toEqual(new Set(['low']));
});

test('a replica serves the queues that it was given, and no other', async ({ db, startReplica }) => {
  await fillQueues(db, { critical: 20, default: 20, low: 20 });
  const lowOnly = await startReplica({ queues: ['low'], slots: 2 });
  await lowOnly.events.atLeast(20, 'settled');
  await wakeReplicas(db);
  await lowOnly.events.next('discovered');
  expect(new Set(claimedQueues(lowOnly))).toEqual(new Set(['low']));

  const rest = await startReplica({ queues: { critical: 2, default: 1 }, slots: 2 });
  await rest.events.atLeast(40, 'settled');
  expect(new Set(claimedQueues(rest))).toEqual(new Set(['critical', 'default']));
});

test('a look that begins at the horizon of a backlog sees what is new in a queue that was empty', async ({
  db,
}) => {
  await fillQueues(db, { low: 50 });
  const lane = readLaneOf(db);
  const wanted = { known: knownRevisions, queues: undefined, limit: 20 };
  const [oldest] = await discover(lane, wanted);
  const id = await insertRow(db, { queue: 'critical', runAtSeconds: 0 });
  const from = new Map([
    ['low', oldest?.runAt],
    ['critical', undefined],
  ]);
  const found = await discover(lane, { ...wanted, from });
  expect(found.filter(({ queue }) => queue === 'critical').map((each) => each.id)).toEqual([id]);
  expect(found.filter(({ queue }) => queue === 'low')).toHaveLength(20);
});

test('weights that are none are refused, and name the queue', async ({ startReplica }) => {
  for (const weight of [0, -1, 1.5, 1_001, Number.NaN]) {
    await expect(startReplica({ queues: { low: weight } })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringContaining("weight of 'low'"),
    });
  }
  await expect(startReplica({ queues: {} })).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
});

test('a slot of a busy queue that is paused runs its task on', async ({ db, startReplica }) => {
  const held = gate();
  const replica = await startReplica({
    queues: QUEUES,
    slots: 1,
    handlers: {
      plain: async () => {
        await held.promise;
        return 'done';
      },
    },
  });
  const id = await insertRow(db, { queue: 'low' });
  await wakeReplicas(db);
  await replica.events.first('claimed');
  await sql`insert into taskq.async_queues (name, paused_at) values ('low', now())`.execute(db);
  held.open();
  await expect(replica.events.first('settled', ({ task }) => task.id === id)).resolves.toMatchObject({
    outcome: 'success',
  });
});
