import { sql } from 'kysely';
import { dequeueUnleased } from '../../src/index.ts';
import { pruneAll } from '../../src/maintenance/pruner.ts';
import { replayDead } from '../../src/statements/dead.ts';
import { migrateUp } from '../../src/statements/migrate.ts';
import { openApplicationPool } from '../support/application-pool.ts';
import { administer } from '../support/databases.ts';
import { test } from '../support/replica.ts';
import { startReplicaPair } from '../support/replica-pair.ts';
import {
  allRows,
  insertRow,
  insertRows,
  makeDue,
  rowOf,
  wakeReplicas,
  writeLaneOf,
} from '../support/rows.ts';
import { enqueue, enqueueMany } from '../support/tasks.ts';
import { expect, inject, onTestFinished, TEST_SCHEMA, type TestDatabase } from '../support/test.ts';

// Hazard 44: with a stricter default isolation level, polling, claiming and settling fail with serialization errors
// under ordinary competition between workers.

const setIsolation = ({ name }: TestDatabase, level: string) =>
  administer(inject('serverUrl'), `alter database ${name} set default_transaction_isolation = '${level}'`);

const DAY_S = 86_400;
const RETENTION_MS = 7 * DAY_S * 1_000;
const TASKS = 500;

for (const level of ['repeatable read', 'serializable']) {
  test(`under ${level} every task runs once in one attempt, while dead letters are pruned and replayed`, async ({
    database,
    db,
    startReplica,
  }) => {
    await setIsolation(database, level);
    await insertRows(db, 2_000, { attemptCount: 20, attemptedSecondsAgo: 8 * DAY_S });
    const recent = await insertRows(db, 50, { attemptCount: 20, attemptedSecondsAgo: DAY_S });
    const runs = new Map<string, number>();
    const plain = async (_payload: object, { id }: { id: string }) => {
      runs.set(id, (runs.get(id) ?? 0) + 1);
    };
    const replicas = await Promise.all(
      [1, 2, 3, 4].map(() => startReplica({ slots: 4, handlers: { plain } })),
    );

    const write = writeLaneOf(db);
    const [enqueued, replayed, ...pruned] = await Promise.all([
      Promise.all(
        Array.from({ length: 10 }, () =>
          enqueueMany(
            db,
            'plain',
            Array.from({ length: TASKS / 10 }, () => ({})),
          ),
        ),
      ),
      Promise.all(recent.map((id) => replayDead(write, id))),
      pruneAll({ write, retentionMs: RETENTION_MS }),
      pruneAll({ write, retentionMs: RETENTION_MS }),
    ]);
    while (runs.size < TASKS + recent.length) {
      await Promise.race(replicas.map(({ events }) => events.next('settled')));
    }
    await Promise.all(replicas.map(({ app }) => app.stop()));

    expect(enqueued.flat()).toHaveLength(TASKS);
    expect(new Set(replayed)).toEqual(new Set(['written']));
    // What one had locked the other left, and a batch that was smaller for it ended its round.
    expect(pruned.reduce((sum, deleted) => sum + deleted, 0)).toBeLessThanOrEqual(2_000);
    await pruneAll({ write, retentionMs: RETENTION_MS });
    expect(await allRows(db)).toEqual([]);
    expect([...runs.values()].filter((times) => times !== 1)).toEqual([]);
    for (const { events } of replicas) {
      for (const kind of ['database_failed', 'settlement_retried', 'slot_failed'] as const) {
        expect(events.of(kind)).toEqual([]);
      }
      expect(
        events.of('settled', ({ task, outcome }) => outcome !== 'success' || task.attempt !== 1),
      ).toEqual([]);
    }
  });
}

test('a failure and a cursor are written under serializable too', async ({ database, db, startReplica }) => {
  await setIsolation(database, 'serializable');
  const { events } = await startReplica({
    handlers: {
      sliced: async (_payload, { cursor, attempt, advanceCursor }) => {
        if (attempt === 1) throw new Error('at first');
        if (cursor?.page === 2) return 'done';
        await advanceCursor({ page: 2 });
        return 'continue';
      },
    },
  });
  const { id } = await enqueue(db, 'sliced', { pages: 2 });

  for (const settledCount of [1, 3]) {
    await events.atLeast(settledCount, 'settled');
    expect((await rowOf(db, id)).errors.at(-1)).toMatchObject({ attempt: 1, message: 'at first' });
    await makeDue(db, id);
    await wakeReplicas(db);
  }
  await events.atLeast(4, 'settled');
  expect(events.of('settled').map(({ outcome }) => outcome)).toEqual([
    'failure',
    'continued',
    'failure',
    'success',
  ]);
});

test("inside a caller's transaction the error is the caller's, unchanged", async ({ db }) => {
  const id = await insertRow(db);

  const transaction = db.transaction().setIsolationLevel('repeatable read');
  const refused = transaction.execute(async (tx) => {
    await sql`select 1 from taskq.async_tasks`.execute(tx);
    await makeDue(db, id);
    await dequeueUnleased(tx, id);
  });

  await expect(refused).rejects.toMatchObject({ code: '40001', name: 'error' });
  expect(await rowOf(db, id)).toMatchObject({ attempt_count: 0 });
});

test('a standby that inherits serializable, which it cannot do, still serves the read lane', async ({
  startReplica,
}) => {
  const pair = await startReplicaPair();
  onTestFinished(() => pair.stop());
  const [primary, replica] = [pair.primary.url('queue'), pair.replica.url('queue')];
  await administer(pair.primary.url(), 'create database queue');
  await migrateUp(primary, { schema: TEST_SCHEMA });
  await administer(primary, "alter database queue set default_transaction_isolation = 'serializable'");
  await pair.caughtUp();
  await expect(administer(replica, 'select * from taskq.async_tasks')).rejects.toThrow(/serializable/);

  const { events } = await startReplica({ database: primary, readDatabase: replica, pollInterval: '200ms' });
  await enqueue(openApplicationPool(pair.primary.connection('queue')), 'plain', {});

  expect(await events.first('settled')).toMatchObject({ task: { attempt: 1 }, outcome: 'success' });
  expect(events.of('database_failed')).toEqual([]);
});
