import { randomBytes } from 'node:crypto';
import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { waitUntilBlocked } from '../support/locks.ts';
import { allRows } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { expect, test } from '../support/test.ts';

// Hazard 30: two enqueues with one key race, the loser's unique violation aborts the caller's whole transaction, and
// with it the business change; a long key is too large for an index.

const KEYS = {
  'of one byte': 'k',
  empty: '',
  'of 2,700 bytes': randomBytes(1_350).toString('hex'),
  'of 9,000 bytes': randomBytes(4_500).toString('hex'),
};

for (const [name, key] of Object.entries(KEYS)) {
  test(`a duplicate enqueue, with a key ${name}, leaves the business transaction whole`, async ({ db }) => {
    await createOrders(db);
    const unique = { key, while: 'live' } as const;
    const first = await enqueue(db, 'plain', { n: 1 }, { unique });

    const second = await db.transaction().execute(async (tx) => {
      await insertOrder(tx, 1);
      const enqueued = await enqueue(tx, 'plain', { n: 2 }, { unique });
      await insertOrder(tx, 2);
      return enqueued;
    });

    expect(first.status).toBe('enqueued');
    expect(second).toEqual({ id: first.id, status: 'existing' });
    expect(await orders(db)).toEqual([1, 2]);
    expect(await allRows(db)).toMatchObject([{ payload: { n: 1 } }]);
  });

  for (const isolation of ['read committed', 'repeatable read'] as const) {
    for (const place of ['first', 'between the business writes'] as const) {
      test(`two callers race with a new key ${name}, under ${isolation}, enqueuing ${place}: one live task, and no unique violation`, async ({
        database,
        db,
      }) => {
        await createOrders(db);
        const unique = { key, while: 'live' } as const;
        const business = (order: number, held: () => Promise<unknown>) =>
          db
            .transaction()
            .setIsolationLevel(isolation)
            .execute(async (tx) => {
              if (place !== 'first') await insertOrder(tx, order);
              const enqueued = await enqueue(tx, 'plain', { n: order }, { unique });
              await held();
              if (place === 'first') await insertOrder(tx, order);
              await insertOrder(tx, order + 10);
              return enqueued;
            });
        let other: Promise<unknown> | undefined;

        const winner = await business(1, async () => {
          other = business(2, async () => {}).catch((error: unknown) => error);
          await waitUntilBlocked(database.url);
        });

        const answer = await other;
        if (isolation === 'read committed') {
          expect(answer).toEqual({ id: winner.id, status: 'existing' });
          expect(await orders(db)).toEqual([1, 2, 11, 12]);
        } else {
          // The contract of the level: what it cannot see it must not judge, and the caller tries again.
          expect(answer).toMatchObject({ code: '40001' });
          expect(await orders(db)).toEqual([1, 11]);
          expect(await business(2, async () => {})).toEqual({ id: winner.id, status: 'existing' });
        }
        expect(await allRows(db)).toMatchObject([{ id: Number(winner.id), payload: { n: 1 } }]);
        expect(await uniqueIndexes(db), 'that a task could violate').toEqual(['async_tasks_pkey']);
      });
    }
  }
}

test('a key that PostgreSQL could not store is refused before any statement', async ({ db }) => {
  for (const key of ['nul \0', 'lone \ud800']) {
    await expect(enqueue(db, 'plain', {}, { unique: { key, while: 'live' } })).rejects.toMatchObject({
      code: 'OPTION_INVALID',
      message: 'enqueue option unique: key: expected text without NUL and lone surrogates',
    });
  }
  expect(await allRows(db)).toEqual([]);
});

async function createOrders(db: Kysely<DB>): Promise<void> {
  await sql`create table public.orders (n int primary key)`.execute(db);
}

async function insertOrder(db: Kysely<DB>, n: number): Promise<void> {
  await sql`insert into public.orders values (${n})`.execute(db);
}

async function orders(db: Kysely<DB>): Promise<number[]> {
  const { rows } = await sql<{ n: number }>`select n from public.orders order by n`.execute(db);
  return rows.map(({ n }) => n);
}

async function uniqueIndexes(db: Kysely<DB>): Promise<string[]> {
  const { rows } = await sql<{ name: string }>`
    select indexrelid::regclass::text as name from pg_index
    where indrelid = 'taskq.async_tasks'::regclass and indisunique`.execute(db);
  return rows.map(({ name }) => name.replace(/^taskq\./, ''));
}
