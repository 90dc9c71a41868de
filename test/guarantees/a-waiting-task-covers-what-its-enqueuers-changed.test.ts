import { dequeue } from '../../src/statements/settle.ts';
import { holdTransaction } from '../support/held-transaction.ts';
import { waitUntilBlocked } from '../support/locks.ts';
import { allRows, claimRow, claimRows, lapseLease, rowOf, writeLaneOf } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { expect, test } from '../support/test.ts';
import { hearWakes } from '../support/wakes.ts';

const unique = { key: 'stack 7', while: 'waiting' } as const;

test('a change made while the task runs gets a run of its own, and only one', async ({ db }) => {
  const running = await enqueue(db, 'plain', { n: 1 }, { unique });
  await claimRow(db, running.id);

  const later = await enqueue(db, 'plain', { n: 2 }, { unique });
  const latest = await enqueue(db, 'plain', { n: 3 }, { unique });

  expect(later.status).toBe('enqueued');
  expect(latest).toEqual({ id: later.id, status: 'existing' });
});

test('the task that is counted on is not claimed before the transaction that counts on it has committed', async ({
  database,
  db,
}) => {
  const { id } = await enqueue(db, 'plain', {}, { unique });
  await using changing = await holdTransaction(db);
  expect(await enqueue(changing.tx, 'plain', {}, { unique })).toEqual({ id, status: 'existing' });
  const wakes = await hearWakes(database);

  expect(await claimRows(db, [id]), 'while the change cannot be seen yet').toEqual([]);
  await changing.tx.commit().execute();

  expect(await wakes.count(), 'for the workers that have passed it by').toBe(1);
  expect(await claimRows(db, [id])).toMatchObject([{ id }]);
});

test('a task that is claimed while the enqueuer looks at it is not counted on', async ({ database, db }) => {
  const { id } = await enqueue(db, 'plain', {}, { unique });
  await using claiming = await holdTransaction(db);
  await claimRow(claiming.tx, id);
  const waiting = enqueue(db, 'plain', {}, { unique });
  await waitUntilBlocked(database.url);

  await claiming.tx.commit().execute();

  const second = await waiting;
  expect(second.status).toBe('enqueued');
  expect(second.id).not.toBe(id);
});

test('a worker whose lease has lapsed does not finish a task that a later enqueue counts on', async ({
  db,
}) => {
  for (const onConflict of ['skip', 'replace'] as const) {
    const options = { unique: { ...unique, key: onConflict, onConflict } };
    const { id } = await enqueue(db, 'plain', { n: 1 }, options);
    const { lease } = await claimRow(db, id);
    await lapseLease(db, id);

    await enqueue(db, 'plain', { n: 2 }, options);

    expect(await dequeue(writeLaneOf(db), [lease]), onConflict).toEqual(new Set());
    expect(await rowOf(db, id)).toMatchObject({ lease_token: null, attempt_count: 1 });
    expect(await claimRow(db, id)).toMatchObject({ attempt: 2 });
  }
});

test('a task that waits again beside a newer one of its key stands in the way too', async ({ db }) => {
  const first = await enqueue(db, 'plain', { n: 1 }, { unique });
  const { lease } = await claimRow(db, first.id);
  const second = await enqueue(db, 'plain', { n: 2 }, { unique });
  // The first one's worker dies, and the second is done before the first runs again.
  await lapseLease(db, first.id);
  const held = await claimRow(db, second.id);
  expect(await dequeue(writeLaneOf(db), [held.lease])).toEqual(new Set([second.id]));

  expect(await enqueue(db, 'plain', { n: 3 }, { unique })).toEqual({ id: first.id, status: 'existing' });
  expect(await dequeue(writeLaneOf(db), [lease])).toEqual(new Set());
  expect(await allRows(db)).toHaveLength(1);
});
