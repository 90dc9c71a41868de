import { sql } from 'kysely';
import { expect } from 'vitest';
import { gate, test, whenIdle } from '../support/replica.ts';
import { insertRow, wakeReplicas } from '../support/rows.ts';
import { betweenAnswerAndUse } from '../support/statements.ts';
import { enqueue } from '../support/tasks.ts';

test('a slot survives a discovery that fails, and works on as soon as the database answers', async ({
  db,
  startReplica,
}) => {
  const replica = await startReplica({ slots: 1 });
  await whenIdle(replica);
  const { events } = replica;
  await sql`alter table taskq.async_tasks rename to elsewhere`.execute(db);

  await wakeReplicas(db);
  await events.atLeast(2, 'database_failed', ({ during }) => during === 'claim');
  await sql`alter table taskq.elsewhere rename to async_tasks`.execute(db);

  await events.first('database_recovered');
  const { id } = await enqueue(db, 'plain', {});
  expect(await events.first('settled')).toMatchObject({ outcome: 'success', task: { id } });
  expect(events.of('slot_failed')).toEqual([]);
});

test('a slot survives a claim whose answer is lost: the row waits for its lease, the next one runs', async ({
  db,
  startReplica,
}) => {
  const replica = await startReplica({ slots: 1 });
  await whenIdle(replica);
  const { events } = replica;
  betweenAnswerAndUse(
    (text) => text.startsWith('with "picked"'),
    () => Promise.reject(new Error('the connection was lost before the answer was read')),
  );
  const leasedToNobody = await insertRow(db);

  await wakeReplicas(db);
  await events.first('database_recovered');
  const { id } = await enqueue(db, 'plain', {});

  expect(await events.first('settled')).toMatchObject({ outcome: 'success', task: { id } });
  expect(events.of('claimed', ({ task }) => task.id === leasedToNobody)).toEqual([]);
});

test('every slot survives the end of all its connections, also while a handler runs', async ({
  db,
  startReplica,
}) => {
  const [started, end] = [gate(), gate()];
  const { events } = await startReplica({
    slots: 2,
    handlers: {
      plain: async ({ n }) => {
        if (n !== 1) return;
        started.open();
        await end.promise;
      },
    },
  });
  const running = await enqueue(db, 'plain', { n: 1 });
  await started.promise;

  await sql`select pg_terminate_backend(pid) from pg_stat_activity
            where datname = current_database() and application_name like 'taskq%'`.execute(db);
  end.open();

  await events.first('settled', ({ task, outcome }) => task.id === running.id && outcome === 'success');
  await events.first('listener_connected', ({ again }) => again);
  const { id } = await enqueue(db, 'plain', { n: 2 });
  await events.first('settled', ({ task, outcome }) => task.id === id && outcome === 'success');
  expect(events.of('slot_failed')).toEqual([]);
});
