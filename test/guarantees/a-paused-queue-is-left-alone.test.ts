import { type Kysely, sql } from 'kysely';
import { expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { discover, REACHES } from '../../src/statements/discover.ts';
import { test } from '../support/replica.ts';
import { claimRows, insertRow, insertRows, readLaneOf, rowOf, wakeReplicas } from '../support/rows.ts';
import { knownRevisions } from '../support/tasks.ts';
import { waitFor } from '../support/wait.ts';

const pause = (db: Kysely<DB>, queue: string) =>
  sql`insert into taskq.async_queues (name, paused_at) values (${queue}, now())
      on conflict (name) do update set paused_at = now()`.execute(db);

const resume = (db: Kysely<DB>, queue: string) =>
  sql`update taskq.async_queues set paused_at = null where name = ${queue}`.execute(db);

test('nothing is claimed from a paused queue once the pause has committed, whatever a replica has discovered', async ({
  db,
}) => {
  const paused = await insertRow(db, { queue: 'low' });
  const served = await insertRow(db, { queue: 'default' });
  await pause(db, 'low');
  // As with hints from before the pause, or from a read replica that lags behind.
  const claimed = await claimRows(db, [paused, served], { slots: 2 });
  expect(claimed.map(({ id }) => id)).toEqual([served]);
  expect(await rowOf(db, paused)).toMatchObject({ attempt_count: 0, lease_token: null });
});

test('no look finds a task of a paused queue', async ({ db }) => {
  await insertRow(db, { queue: 'low' });
  await pause(db, 'low');
  const lane = readLaneOf(db);
  const wanted = { known: knownRevisions, limit: 20 };
  const froms = { every: undefined, named: undefined, from: new Map([['low', { dbMs: 0 }]]) };
  for (const reach of REACHES) {
    const queues = reach === 'every' ? undefined : ['low'];
    expect(await discover(lane, { ...wanted, queues, from: froms[reach] })).toEqual([]);
  }
  await resume(db, 'low');
  for (const reach of REACHES) {
    const queues = reach === 'every' ? undefined : ['low'];
    expect(await discover(lane, { ...wanted, queues, from: froms[reach] })).toHaveLength(1);
  }
});

test('every replica leaves a paused queue alone, serves the others, and goes on after the resume', async ({
  db,
  startReplica,
}) => {
  await pause(db, 'low');
  await insertRows(db, 5, { queue: 'low' });
  const replicas = await Promise.all([0, 1, 2].map(() => startReplica({ slots: 2 })));
  await insertRows(db, 5, { queue: 'default' });
  await wakeReplicas(db);
  await waitFor(async () => (await waiting(db, 'default')) === 0);
  expect(await waiting(db, 'low')).toBe(5);
  const queues = replicas.flatMap(({ events }) => events.of('claimed').map(({ task }) => task.queue));
  expect(new Set(queues)).toEqual(new Set(['default']));

  await resume(db, 'low');
  await wakeReplicas(db);
  await waitFor(async () => (await waiting(db, 'low')) === 0);
});

async function waiting(db: Kysely<DB>, queue: string): Promise<number> {
  const { rows } = await sql`select from taskq.async_tasks where queue = ${queue}`.execute(db);
  return rows.length;
}
