import { type IsolationLevel, type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { Enqueued } from '../../src/enqueue.ts';
import { dequeue } from '../../src/statements/settle.ts';
import { holdTransaction } from '../support/held-transaction.ts';
import { waitUntilBlocked } from '../support/locks.ts';
import { allRows, claimRow, writeLaneOf } from '../support/rows.ts';
import { enqueue, enqueueMany } from '../support/tasks.ts';
import { expect, test } from '../support/test.ts';

const LEVELS = ['read committed', 'repeatable read'] as const satisfies IsolationLevel[];
const MODES = ['live', 'waiting', { window: '1h' }] as const;

/** A key that is new, and one whose row is there from a task that is done. */
const KEYS = ['new', 'past'] as const;

async function makePast(db: Kysely<DB>, key: string): Promise<void> {
  const { id } = await enqueue(db, 'plain', {}, { unique: { key, while: 'live' } });
  const { lease } = await claimRow(db, id);
  await dequeue(writeLaneOf(db), [lease]);
}

const enqueueUnique = (tx: Kysely<DB>, n: number, mode: (typeof MODES)[number] = 'live') =>
  enqueue(tx, 'plain', { n }, { unique: { key: 'k', while: mode } });

test('when the first of two enqueuers commits, the second answers its task, in every mode', async ({
  database,
  db,
}) => {
  for (const mode of MODES) {
    for (const age of KEYS) {
      const unique = { key: `${age} ${JSON.stringify(mode)}`, while: mode };
      if (age === 'past') await makePast(db, unique.key);
      await using first = await holdTransaction(db);
      const won = await enqueue(first.tx, 'plain', { n: 1 }, { unique });
      const second = enqueue(db, 'plain', { n: 2 }, { unique });
      await waitUntilBlocked(database.url);

      await first.tx.commit().execute();

      expect(await second, unique.key).toEqual({ id: won.id, status: 'existing' });
    }
  }
  expect(await allRows(db)).toHaveLength(MODES.length * KEYS.length);
});

test('when the first of two enqueuers rolls back, the task of the second exists, at either isolation level', async ({
  database,
  db,
}) => {
  for (const level of LEVELS) {
    await using first = await holdTransaction(db);
    await using second = await holdTransaction(db, level);
    const undone = await enqueueUnique(first.tx, 1);
    const waiting = enqueueUnique(second.tx, 2);
    await waitUntilBlocked(database.url);

    await first.release();

    const { id, status } = await waiting;
    expect(status).toBe('enqueued');
    expect(id).not.toBe(undone.id);
    expect(await allRows(second.tx)).toMatchObject([{ id: Number(id), payload: { n: 2 } }]);
  }
});

test('above READ COMMITTED the second of two enqueuers fails with 40001 and no second task exists', async ({
  database,
  db,
}) => {
  for (const level of ['repeatable read', 'serializable'] as const) {
    for (const age of KEYS) {
      const unique = { key: `${level} ${age}`, while: 'live' } as const;
      if (age === 'past') await makePast(db, unique.key);
      const before = (await allRows(db)).length;
      await using first = await holdTransaction(db);
      await using second = await holdTransaction(db, level);
      await allRows(second.tx);
      await enqueue(first.tx, 'plain', { n: 1 }, { unique });
      const waiting = enqueue(second.tx, 'plain', { n: 2 }, { unique }).catch((error: unknown) => error);
      await waitUntilBlocked(database.url);

      await first.tx.commit().execute();

      expect(await waiting, unique.key).toMatchObject({ code: '40001' });
      expect(await allRows(db), unique.key).toHaveLength(before + 1);
    }
  }
});

test('a snapshot from before the first enqueuer committed does not hide its task from the second', async ({
  db,
}) => {
  await using late = await holdTransaction(db, 'repeatable read');
  await allRows(late.tx);
  await enqueueUnique(db, 1);

  await expect(enqueueUnique(late.tx, 2)).rejects.toMatchObject({ code: '40001' });

  await late.release();
  expect(await allRows(db)).toHaveLength(1);
});

test('what is in the way is judged once the key is locked, not before', async ({ database, db }) => {
  await makePast(db, 'k');
  await using holding = await holdTransaction(db);
  await holding.tx.selectFrom('async_task_keys').select('key').forUpdate().execute();
  const waiting = enqueueUnique(db, 1);
  await waitUntilBlocked(database.url);

  await sql`insert into taskq.async_tasks (task_type, payload, unique_key)
    select 'plain', '{}', key from taskq.async_task_keys`.execute(holding.tx);
  await holding.tx.commit().execute();

  expect(await waiting).toMatchObject({ status: 'existing' });
});

test('of eight enqueuers at once, at either isolation level, one makes the one task', async ({ db }) => {
  for (const level of LEVELS) {
    for (const age of KEYS) {
      const unique = { key: `${level} ${age}`, while: 'live' } as const;
      if (age === 'past') await makePast(db, unique.key);
      const enqueueAt = (n: number): Promise<Enqueued> =>
        db
          .transaction()
          .setIsolationLevel(level)
          .execute((tx) => enqueue(tx, 'plain', { n }, { unique }))
          .catch((error: { code?: string }) => {
            if (error.code !== '40001') throw error;
            return enqueueAt(n);
          });

      const answers = await Promise.all(Array.from({ length: 8 }, (_, n) => enqueueAt(n)));

      expect(answers.filter(({ status }) => status === 'enqueued')).toHaveLength(1);
      expect(answers.filter(({ status }) => status === 'existing')).toHaveLength(7);
      expect(new Set(answers.map(({ id }) => id)).size).toBe(1);
    }
  }
  expect(await allRows(db)).toHaveLength(LEVELS.length * KEYS.length);
});

test('lists of the same keys in opposite orders do not wait for each other in a circle', async ({ db }) => {
  const payloads = Array.from({ length: 1_200 }, (_, n) => ({ n }));
  const enqueueList = (list: { n: number }[]) =>
    db
      .transaction()
      .execute((tx) => enqueueMany(tx, 'plain', list, { unique: { by: ['n'], while: 'live' } }));

  const lists = await Promise.all(
    [payloads, payloads.toReversed(), payloads, payloads.toReversed()].map(enqueueList),
  );

  const answers = lists.flat();
  expect(answers.filter(({ status }) => status === 'enqueued')).toHaveLength(1_200);
  expect(await allRows(db)).toHaveLength(1_200);
  // Each list answers in its own order.
  expect(lists[1]?.map(({ id }) => id)).toEqual(lists[0]?.map(({ id }) => id).toReversed());
});
