import type { Kysely } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../../src/domain/ids.ts';
import type { Enqueued } from '../../src/enqueue.ts';
import { replayDead } from '../../src/statements/dead.ts';
import { dequeue, recordFailure } from '../../src/statements/settle.ts';
import { holdTransaction } from '../support/held-transaction.ts';
import { waitUntilBlocked } from '../support/locks.ts';
import { claimRow, rowOf, writeLaneOf } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { expect, test } from '../support/test.ts';
import { hearWakes } from '../support/wakes.ts';

const unique = { key: 'account 7', while: 'live' } as const;

test('a dead letter is not replayed while another live task has its key, and says so; afterwards it is', async ({
  database,
  db,
}) => {
  const dead = await makeDead(db);
  const waiting = await enqueue(db, 'plain', { n: 2 }, { unique });
  const before = await rowOf(db, dead);
  const wakes = await hearWakes(database);

  expect(await replayDead(writeLaneOf(db), dead), 'one waits').toBe('key_taken');
  const { lease } = await claimRow(db, waiting.id);
  expect(await replayDead(writeLaneOf(db), dead), 'one runs').toBe('key_taken');
  expect(await rowOf(db, dead)).toEqual(before);
  expect(await wakes.count()).toBe(0);

  await dequeue(writeLaneOf(db), [lease]);
  expect(await replayDead(writeLaneOf(db), dead)).toBe('written');
  expect(await wakes.count()).toBe(1);
  expect(await enqueue(db, 'plain', { n: 3 }, { unique })).toEqual({ id: dead, status: 'existing' });
});

test('of two dead letters of one key, one can be replayed', async ({ db }) => {
  const [older, newer] = [await makeDead(db), await makeDead(db)];

  expect(await replayDead(writeLaneOf(db), older)).toBe('written');
  expect(await replayDead(writeLaneOf(db), newer)).toBe('key_taken');
});

test('a task with a key that is no dead letter is refused as that, whatever else has its key', async ({
  db,
}) => {
  const running = await enqueue(db, 'plain', {}, { unique });
  await claimRow(db, running.id);
  await enqueue(db, 'plain', {}, { unique: { ...unique, while: 'waiting' } });

  expect(await replayDead(writeLaneOf(db), running.id)).toBe('refused');
});

test('a replay waits for an enqueue of its key that is under way, and the enqueue for the replay', async ({
  database,
  db,
}) => {
  const dead = await makeDead(db);
  await using enqueuing = await holdTransaction(db);
  await enqueue(enqueuing.tx, 'plain', { n: 2 }, { unique });
  const replay = replayDead(writeLaneOf(db), dead);
  await waitUntilBlocked(database.url);
  await enqueuing.release();
  expect(await replay, 'the enqueue was rolled back').toBe('written');

  const { lease } = await claimRow(db, dead);
  await recordFailure(writeLaneOf(db), lease, { attempt: 1, outcome: 'failure', message: 'again' }, 0);
  await using replaying = await holdTransaction(db);
  await db.updateTable('async_tasks').set({ retired: true }).execute();
  expect(await replayDead(writeLaneOf(replaying.tx), dead)).toBe('written');
  const waiting = enqueue(db, 'plain', { n: 3 }, { unique });
  await waitUntilBlocked(database.url);
  await replaying.tx.commit().execute();
  expect(await waiting).toEqual<Enqueued>({ id: dead, status: 'existing' });
});

test('an enqueue whose snapshot is older than a replay of its key fails with 40001', async ({ db }) => {
  const dead = await makeDead(db);
  await using late = await holdTransaction(db, 'repeatable read');
  await rowOf(late.tx, dead);
  expect(await replayDead(writeLaneOf(db), dead)).toBe('written');

  await expect(enqueue(late.tx, 'plain', {}, { unique })).rejects.toMatchObject({ code: '40001' });
});

async function makeDead(db: Kysely<DB>): Promise<TaskId> {
  const { id, status } = await enqueue(db, 'plain', { n: 1 }, { unique, maxAttempts: 1 });
  expect(status).toBe('enqueued');
  const { lease } = await claimRow(db, id);
  await recordFailure(writeLaneOf(db), lease, { attempt: 1, outcome: 'failure', message: 'failed' }, 0);
  return id;
}
