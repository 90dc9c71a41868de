import { expect } from 'vitest';
import { allRows } from '../support/rows.ts';
import { recordStatements } from '../support/statements.ts';
import { enqueueMany } from '../support/tasks.ts';
import { test } from '../support/test.ts';

test('enqueueMany of five thousand tasks answers and stores them in the order given', async ({ db }) => {
  const payloads = Array.from({ length: 5_000 }, (_, n) => ({ n }));

  const enqueued = await db.transaction().execute((tx) => enqueueMany(tx, 'plain', payloads));

  const rows = await allRows(db);
  expect(rows.map((row) => row['payload'])).toEqual(payloads);
  expect(rows.map((row) => String(row['id']))).toEqual(enqueued.map(({ id }) => id));
});

test('enqueueMany of nothing answers nothing and sends no statement', async ({ db }) => {
  const sent = recordStatements();

  expect(await enqueueMany(db, 'plain', [])).toEqual([]);

  expect(sent.all).toEqual([]);
});

test('enqueueMany with one bad payload writes none of them', async ({ db }) => {
  const payloads = Array.from({ length: 2_500 }, (_, n) => ({ n: n === 2_400 ? 0.5 : n }));

  await expect(enqueueMany(db, 'plain', payloads)).rejects.toMatchObject({
    code: 'PAYLOAD_INVALID',
    message: expect.stringContaining('[2400]'),
  });

  expect(await allRows(db)).toEqual([]);
});
