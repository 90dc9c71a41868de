import { sql } from 'kysely';
import type { TaskId } from '../../src/domain/ids.ts';
import { replayMany } from '../../src/maintenance/dead-letters.ts';
import { dropDead, listDead } from '../../src/statements/dead.ts';
import { dequeue, recordFailure } from '../../src/statements/settle.ts';
import { test as cronTest, eventsOf, lookAgain, takenTicks } from '../support/cron.ts';
import { gate, test } from '../support/replica.ts';
import { allRows, claimRow, findRow, makeDue, readLaneOf, writeLaneOf } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { expect } from '../support/test.ts';

// Hazard 31: a task that has used up its retries stays archived under its id, and every later enqueue with that id is
// refused as a duplicate until somebody deletes it.

const FAILURE = { attempt: 20, outcome: 'failure', message: 'failed for good' } as const;

for (const mode of ['live', 'waiting', { window: '30d' }] as const) {
  const unique = { key: 'account 7', while: mode };
  const name = typeof mode === 'string' ? mode : 'window';

  test(`a dead letter never blocks its key (${name}): each enqueue makes a task that runs, and the dead stay listed`, async ({
    db,
    startReplica,
  }) => {
    const runs: number[] = [];
    const ranAgain = gate();
    const first = await killedTask();
    const second = await killedTask();
    const third = await enqueue(db, 'plain', { n: 3 }, { unique });

    expect(third.status).toBe('enqueued');
    expect(await findRow(db, third.id)).toMatchObject({ attempt_count: 0, exhausted: false });
    expect((await listDead(readLaneOf(db), { limit: 10 })).map(({ id }) => id)).toEqual([second, first]);
    const { events } = await startReplica({
      handlers: {
        plain: async ({ n }) => {
          runs.push(n ?? 0);
          ranAgain.open();
        },
      },
    });
    await ranAgain.promise;
    await events.first('settled', ({ task }) => task.id === third.id);
    expect(runs).toEqual([3]);
    expect((await allRows(db)).map(({ id }) => String(id))).toEqual([first, second]);

    async function killedTask(): Promise<TaskId> {
      const { id, status } = await enqueue(db, 'plain', {}, { unique });
      expect(status).toBe('enqueued');
      await sql`update taskq.async_tasks set attempt_count = 19 where id = ${id}`.execute(db);
      const { lease, attempt } = await claimRow(db, id);
      expect(attempt).toBe(20);
      await recordFailure(writeLaneOf(db), lease, FAILURE, 600_000);
      return id;
    }
  });

  test(`nor does one that was dropped (${name})`, async ({ db }) => {
    const { id } = await enqueue(db, 'plain', {}, { unique, maxAttempts: 1 });
    const { lease } = await claimRow(db, id);
    await recordFailure(writeLaneOf(db), lease, FAILURE, 600_000);
    expect(await dropDead(writeLaneOf(db), id)).toBe('written');

    expect(await enqueue(db, 'plain', {}, { unique })).toMatchObject({ status: 'enqueued' });
  });
}

test('a bulk replay leaves the live task of a key alone, and the key with it', async ({ db }) => {
  const unique = { key: 'account 7', while: 'live' } as const;
  const dead: TaskId[] = [];
  for (let n = 0; n < 2; n += 1) {
    const { id } = await enqueue(db, 'plain', { n }, { unique, maxAttempts: 1 });
    const { lease } = await claimRow(db, id);
    await recordFailure(writeLaneOf(db), lease, FAILURE, 600_000);
    dead.push(id);
  }
  const { id: live } = await enqueue(db, 'plain', { n: 2 }, { unique });
  const { lease } = await claimRow(db, live);

  const counts = { looked: 2, matched: 2, changed: 0 };
  expect(await replayMany(writeLaneOf(db), 'test', {})).toEqual({ ...counts, replayed: 0, keyTaken: 2 });
  expect(await enqueue(db, 'plain', {}, { unique })).toEqual({ id: live, status: 'existing' });

  await dequeue(writeLaneOf(db), [lease]);
  expect(await replayMany(writeLaneOf(db), 'test', {})).toEqual({ ...counts, replayed: 1, keyTaken: 1 });
  expect(await enqueue(db, 'plain', {}, { unique })).toEqual({ id: dead[0], status: 'existing' });
});

test('a task whose worker died on the final attempt blocks its key until the lease lapses, and no longer', async ({
  db,
}) => {
  const unique = { key: 'account 7', while: 'live' } as const;
  const { id } = await enqueue(db, 'plain', {}, { unique, maxAttempts: 1 });
  await claimRow(db, id);
  expect(await enqueue(db, 'plain', {}, { unique })).toEqual({ id, status: 'existing' });

  await sql`update taskq.async_tasks set lease_expires_at = now() - interval '1 second'`.execute(db);

  expect(await enqueue(db, 'plain', {}, { unique })).toMatchObject({ status: 'enqueued' });
});

test('a transaction that began before a dead letter was one is not blocked by it', async ({ db }) => {
  const unique = { key: 'account 7', while: 'live' } as const;
  const { id } = await enqueue(db, 'plain', {}, { unique, maxAttempts: 1 });
  await claimRow(db, id);

  await db.transaction().execute(async (tx) => {
    // What a later moment is to a clock that stands still: the lease ends after this transaction has begun.
    await sql`select now()`.execute(tx);
    await sql`update taskq.async_tasks set lease_expires_at = clock_timestamp()`.execute(db);
    expect(await enqueue(tx, 'plain', {}, { unique })).toMatchObject({ status: 'enqueued' });
  });
});

test('a task that is done blocks its key only within its window', async ({ db }) => {
  for (const mode of ['live', 'waiting', { window: '1h' }] as const) {
    const unique = { key: JSON.stringify(mode), while: mode };
    const { id } = await enqueue(db, 'plain', {}, { unique });
    const { lease } = await claimRow(db, id);
    expect(await dequeue(writeLaneOf(db), [lease])).toEqual(new Set([id]));

    const { status } = await enqueue(db, 'plain', {}, { unique });
    expect(status).toBe(typeof mode === 'string' ? 'enqueued' : 'existing');
  }
});

cronTest(
  "a dead letter of a cron entry, with overlap: 'skip' too, does not stop the entry",
  async ({ db, time, startScheduler }) => {
    const fields = { task: 'plain', schedule: '@every 1m', maxAttempts: 1 } as const;
    const scheduler = await startScheduler([
      { ...fields, name: 'beside', overlap: 'allow' },
      { ...fields, name: 'alone', overlap: 'skip' },
    ]);
    for (const minute of ['01', '02', '03']) {
      await time.set(`2027-01-15T12:${minute}:00Z`);
      await lookAgain(scheduler);
      const live = await db.selectFrom('async_tasks').select('id').where('exhausted', '=', false).execute();
      expect(live).toHaveLength(2);
      for (const { id } of live) {
        await makeDue(db, id as TaskId);
        const { lease } = await claimRow(db, id as TaskId);
        await recordFailure(writeLaneOf(db), lease, { ...FAILURE, attempt: 1 }, 600_000);
      }
    }

    expect(await takenTicks(db, 'alone')).toHaveLength(3);
    expect(eventsOf('cron_skipped', scheduler)).toEqual([]);
    expect(await listDead(readLaneOf(db), { limit: 10 })).toHaveLength(6);
  },
);
