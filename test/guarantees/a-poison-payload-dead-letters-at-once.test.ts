import { expect } from 'vitest';
import { findDead } from '../../src/statements/dead.ts';
import { test } from '../support/replica.ts';
import { insertRow, readLaneOf, wakeReplicas } from '../support/rows.ts';

test('a poison payload becomes a dead letter at once, with the path of the field, and never runs', async ({
  db,
  startReplica,
}) => {
  const ran: unknown[] = [];
  const { events } = await startReplica({ handlers: { plain: async (payload) => void ran.push(payload) } });
  const id = await insertRow(db, { payload: { n: 'seven' } });
  const healthy = await insertRow(db, { payload: { n: 7 } });
  await wakeReplicas(db);

  const settled = await events.first('settled', ({ task }) => task.id === id);
  await events.first('settled', ({ task }) => task.id === healthy);

  expect(settled).toMatchObject({ outcome: 'failure', dead: true, ranMs: undefined, task: { attempt: 1 } });
  const dead = await findDead(readLaneOf(db), id);
  expect(dead).toMatchObject({ attemptCount: 1, errors: [{ attempt: 1, outcome: 'failure' }] });
  expect(dead?.lastError).toMatch(/plain.*\bn\b.*number/s);
  expect(ran).toEqual([{ n: 7 }]);
});

test('a cursor that does not parse is poison too', async ({ db, startReplica }) => {
  const ran: unknown[] = [];
  const { events } = await startReplica({ handlers: { sliced: async () => void ran.push('sliced') } });
  const id = await insertRow(db, { type: 'sliced', payload: { pages: 3 } });
  await db.updateTable('async_tasks').set({ cursor: '{"page":"two"}' }).where('id', '=', id).execute();
  await wakeReplicas(db);

  expect(await events.first('settled')).toMatchObject({ outcome: 'failure', dead: true, ranMs: undefined });
  expect((await findDead(readLaneOf(db), id))?.lastError).toMatch(/cursor.*page/s);
  expect(ran).toEqual([]);
});
