import { describe, expect, onTestFinished } from 'vitest';
import type { HandlerResult } from '../../src/index.ts';
import { ManualClock } from '../support/clock.ts';
import { FaultProxy } from '../support/fault-proxy.ts';
import { test } from '../support/replica.ts';
import { findRow, insertRow, lapseLease, rowOf, wakeReplicas } from '../support/rows.ts';
import { betweenAnswerAndUse } from '../support/statements.ts';

const LEASE_MS = 330_000;

const ENDINGS: Readonly<Record<string, { end: () => HandlerResult; outcome: string; row: unknown }>> = {
  'a dequeue': { end: () => 'done', outcome: 'success', row: undefined },
  'a failure': {
    end: () => {
      throw new Error('of its own');
    },
    outcome: 'failure',
    row: { attempt_count: 1, lease_token: null, last_error: 'of its own' },
  },
};

describe('a settlement that cannot reach the database is retried while the lease lives', () => {
  for (const [title, { end, outcome, row }] of Object.entries(ENDINGS)) {
    test(title, async ({ database, db, startReplica }) => {
      const proxy = await startProxy(database);
      const { events } = await startReplica({
        database: proxy.connection,
        handlers: { plain: async () => cut(proxy, end) },
      });
      const id = await insertRow(db);
      await wakeReplicas(db);

      await events.atLeast(2, 'settlement_retried', ({ task }) => task.id === id);
      expect(events.of('settled')).toEqual([]);
      proxy.mode = 'pass';

      expect(await events.first('settled')).toMatchObject({ outcome, task: { id } });
      const after = await findRow(db, id);
      if (row === undefined) expect(after).toBeUndefined();
      else expect(after).toMatchObject(row as object);
    });
  }

  test('a release', async ({ database, db, startReplica }) => {
    const proxy = await startProxy(database);
    const { events } = await startReplica({
      database: proxy.connection,
      slots: 1,
      handlers: {
        sliced: async (_payload, { attempt }) => (attempt === 1 ? cut(proxy, () => 'continue') : 'done'),
      },
    });
    const id = await insertRow(db, { type: 'sliced', payload: { pages: 1 } });
    await wakeReplicas(db);

    await events.first('settlement_retried', ({ task }) => task.id === id);
    proxy.mode = 'pass';

    expect(await events.atLeast(2, 'settled')).toMatchObject([
      { outcome: 'continued', task: { attempt: 1 } },
      { outcome: 'success', task: { attempt: 2 } },
    ]);
  });
});

test('a settlement whose answer was lost is recognised as written when it is tried again', async ({
  db,
  startReplica,
}) => {
  const { events } = await startReplica();
  betweenAnswerAndUse(
    (text) => text.startsWith('delete'),
    () => Promise.reject(new Error('the connection was lost before the answer was read')),
  );
  const id = await insertRow(db);
  await wakeReplicas(db);

  expect(await events.first('settled')).toMatchObject({ outcome: 'success', task: { id } });
  expect(events.of('settlement_retried')).toHaveLength(1);
});

test('a settlement that could not be written until the lease ended is counted lost, and the task runs again', async ({
  database,
  db,
  startReplica,
}) => {
  const proxy = await startProxy(database);
  const clock = new ManualClock({ wall: Date.now() });
  const late = await startReplica({
    database: proxy.connection,
    clock,
    timers: clock,
    handlers: { plain: async () => cut(proxy, () => 'done') },
  });
  const id = await insertRow(db);
  await wakeReplicas(db);
  await late.events.first('settlement_retried');

  clock.advance(LEASE_MS - 10_000);
  await late.events.atLeast(2, 'settlement_retried');
  expect(late.events.of('settled')).toEqual([]);
  clock.advance(11_000);

  expect(await late.events.first('settled')).toMatchObject({ outcome: 'lost', dead: false });
  expect(await rowOf(db, id)).toMatchObject({ attempt_count: 1, lease_token: expect.any(String) });
  const other = await startReplica();
  await lapseLease(db, id);
  await wakeReplicas(db);
  expect(await other.events.first('settled')).toMatchObject({ outcome: 'success', task: { attempt: 2 } });
});

async function startProxy(database: {
  connection: Parameters<typeof FaultProxy.start>[0];
}): Promise<FaultProxy> {
  const proxy = await FaultProxy.start(database.connection);
  onTestFinished(() => proxy.stop());
  return proxy;
}

/** The handler's last act: the network goes before its settlement. */
function cut(proxy: FaultProxy, end: () => HandlerResult): HandlerResult {
  proxy.mode = 'refuse';
  proxy.resetAll();
  return end();
}
