import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { startEmbeddedPostgres } from '../../src/embedded/index.ts';
import type { QueueEvent } from '../../src/index.ts';
import { openLanes } from '../../src/postgres/lanes.ts';
import { countTasks } from '../../src/statements/counts.ts';
import { migrateUp } from '../../src/statements/migrate.ts';
import { openApplicationPool } from '../support/application-pool.ts';
import { backendsOf, terminate } from '../support/backends.ts';
import { waitUntilBlocked } from '../support/locks.ts';
import { gate, test } from '../support/replica.ts';
import { insertRow, rowOf, wakeReplicas } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { expect, onTestFinished, TEST_SCHEMA } from '../support/test.ts';

// Hazard 47: the server ends a connection between two statements, and the error event that nobody listens to ends
// the whole process.

/** What would have ended a process without a test runner around it. */
function watchProcess(): unknown[] {
  const fatal: unknown[] = [];
  const onFatal = (error: unknown) => fatal.push(error);
  process.on('uncaughtExceptionMonitor', onFatal);
  process.on('unhandledRejection', onFatal);
  onTestFinished(() => {
    process.off('uncaughtExceptionMonitor', onFatal);
    process.off('unhandledRejection', onFatal);
  });
  return fatal;
}

const QUEUE = 'taskq';
const LISTENER = 'taskq listener';

test('idle connections and the LISTEN connection that are killed are replaced, and the next task runs', async ({
  db,
  startReplica,
}) => {
  const fatal = watchProcess();
  const { events } = await startReplica({ pollInterval: '1h' });
  const idle = await backendsOf(db, QUEUE);
  expect(idle.length).toBeGreaterThan(0);

  const listensAgain = events.next('listener_connected');
  await terminate(db, [...idle, ...(await backendsOf(db, LISTENER))]);
  await listensAgain;
  const { id } = await enqueue(db, 'plain', {});

  expect(await events.first('settled')).toMatchObject({ task: { id, attempt: 1 }, outcome: 'success' });
  const before = new Set(idle.map(({ pid }) => pid));
  expect((await backendsOf(db, QUEUE)).filter(({ pid }) => before.has(pid))).toEqual([]);
  expect(fatal).toEqual([]);
});

test('a settlement and a claim whose connection is killed under them are sent again', async ({
  database,
  db,
  startReplica,
}) => {
  const fatal = watchProcess();
  const mayEnd = gate();
  const { events } = await startReplica({ pollInterval: '1h', handlers: { plain: () => mayEnd.promise } });
  /** Locks the table, waits for what `start` sends to wait for it, and kills the connection it was sent on. */
  const killUnder = (start: () => unknown, heard: () => Promise<unknown>) =>
    db.transaction().execute(async (locking) => {
      await sql`lock table taskq.async_tasks in exclusive mode`.execute(locking);
      start();
      await waitUntilBlocked(database.url);
      const active = (await backendsOf(db, QUEUE)).filter(({ state }) => state === 'active');
      expect(active).toHaveLength(1);
      const failed = heard();
      await terminate(db, active);
      await failed;
    });

  const { id: held } = await enqueue(db, 'plain', {});
  await events.first('claimed');
  await killUnder(mayEnd.open, () => events.next('settlement_retried'));
  expect(await events.first('settled')).toMatchObject({ task: { id: held, attempt: 1 }, outcome: 'success' });

  // The slot has looked again and waits: a row inserted before that would be claimed before the lock.
  const last = (kind: QueueEvent['kind']) => events.all.findLastIndex((event) => event.kind === kind);
  await events.until(() => last('discovered') > last('settled'), 'a look after the settlement');
  const waiting = await insertRow(db);
  await killUnder(
    () => wakeReplicas(db),
    () => events.next('database_failed', ({ during }) => during === 'claim'),
  );
  await events.first('database_recovered');
  const settled = await events.first('settled', ({ task }) => task.id === waiting);
  expect(settled).toMatchObject({ task: { attempt: 1 }, outcome: 'success' });
  expect(fatal).toEqual([]);
});

test('a handler whose transaction is killed between two statements fails in the ordinary way', async ({
  database,
  db,
  startReplica,
}) => {
  const fatal = watchProcess();
  const application = openApplicationPool({ ...database.connection, application_name: 'business' });
  const between = gate();
  const goOn = gate();
  const { events } = await startReplica({
    handlers: {
      plain: () =>
        application.transaction().execute(async (tx) => {
          await sql`select 1`.execute(tx);
          between.open();
          await goOn.promise;
          await sql`select 2`.execute(tx);
        }),
    },
  });
  const { id } = await enqueue(db, 'plain', {});
  await between.promise;

  await terminate(db, await backendsOf(db, 'business'));
  goOn.open();

  expect(await events.first('settled')).toMatchObject({
    task: { id, attempt: 1 },
    outcome: 'failure',
    dead: false,
  });
  expect(await rowOf(db, id)).toMatchObject({
    lease_token: null,
    last_error: expect.stringMatching(/connection/),
  });
  const { id: next } = await enqueue(db, 'fragile', {});
  await events.first('settled', ({ task, outcome }) => task.id === next && outcome === 'success');
  expect(fatal).toEqual([]);
});

test('a read of the counts whose connection is killed rejects, and the next one answers', async ({
  database,
  db,
}) => {
  const fatal = watchProcess();
  const lanes = openLanes({
    database: database.url,
    readDatabase: undefined,
    schema: TEST_SCHEMA,
    poolMax: 2,
    preparedStatements: true,
    applicationName: QUEUE,
  });
  onTestFinished(() => lanes.close());

  await db.transaction().execute(async (locking) => {
    await sql`lock table taskq.async_tasks in access exclusive mode`.execute(locking);
    const counts = expect(countTasks(lanes.read)).rejects.toMatchObject({ code: '57P01' });
    await waitUntilBlocked(database.url);
    await terminate(db, await backendsOf(db, QUEUE));
    await counts;
  });

  expect(await countTasks(lanes.read)).toEqual([]);
  expect(fatal).toEqual([]);
});

test('a restart of the server with everything open: the handler fails, all else resumes by itself', async ({
  startReplica,
}) => {
  const fatal = watchProcess();
  const server = await startEmbeddedPostgres({ durable: false });
  onTestFinished(() => server.stop());
  await migrateUp(server.url(), { schema: TEST_SCHEMA });
  const application = openApplicationPool(server.connection());
  const db = application as unknown as Kysely<DB>;
  const between = gate();
  const goOn = gate();
  const { app, events } = await startReplica({
    database: server.url(),
    pollInterval: '1h',
    handlers: {
      plain: ({ n }) =>
        application.transaction().execute(async (tx) => {
          await sql`select 1`.execute(tx);
          if (n > 0) return;
          between.open();
          await goOn.promise;
          await sql`select 2`.execute(tx);
        }),
    },
  });
  const { id: broken } = await enqueue(db, 'plain', { n: 0 });
  await between.promise;

  const listensAgain = events.next('listener_connected');
  await server.restart();
  await listensAgain;
  goOn.open();
  const settled = await events.first('settled', ({ task }) => task.id === broken);
  expect(settled).toMatchObject({ task: { attempt: 1 }, outcome: 'failure' });
  expect(await rowOf(db, broken)).toMatchObject({ attempt_count: 1, lease_token: null });

  const { id: next } = await enqueue(db, 'plain', { n: 1 });
  await events.first('settled', ({ task, outcome }) => task.id === next && outcome === 'success');
  expect(app.status()).toMatchObject({ slots: 4, busy: 0, overrun: 0 });
  expect(events.of('slot_failed')).toEqual([]);
  await app.stop();
  expect(fatal).toEqual([]);
});
