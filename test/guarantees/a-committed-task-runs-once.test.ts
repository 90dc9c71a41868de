import { expect } from 'vitest';
import { test } from '../support/replica.ts';
import { allRows } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';

test('a task enqueued in a committed transaction runs, succeeds and leaves the table', async ({
  db,
  startReplica,
}) => {
  const ran: number[] = [];
  const { events } = await startReplica({ handlers: { plain: async ({ n }) => void ran.push(n) } });

  const { id } = await db.transaction().execute((tx) => enqueue(tx, 'plain', { n: 7 }));

  const settled = await events.first('settled');
  expect(settled).toMatchObject({ task: { id, attempt: 1 }, outcome: 'success', dead: false });
  expect(ran).toEqual([7]);
  expect(await allRows(db)).toEqual([]);
});
