import { type Kysely, sql } from 'kysely';
import { expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { test, whenIdle } from '../support/replica.ts';
import { insertRow } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { waitFor } from '../support/wait.ts';

test('a lost LISTEN connection recovers, looks once when it is back, and wakes again', async ({
  db,
  startReplica,
}) => {
  const replica = await startReplica({ slots: 2 });
  await whenIdle(replica);
  const { events } = replica;

  for (let round = 1; round <= 2; round += 1) {
    const [lost, back] = [events.next('listener_lost'), events.next('listener_connected')];
    const [pid] = await listenerPids(db);
    await sql`select pg_terminate_backend(${pid})`.execute(db);
    await lost;
    // Nobody is told of this one, so that only the look upon the reconnect explains its run.
    const unannounced = await insertRow(db);
    expect(await back).toEqual({ kind: 'listener_connected', again: true });
    await events.first('settled', ({ task }) => task.id === unannounced);

    const { id } = await enqueue(db, 'plain', {});
    await events.first('settled', ({ task }) => task.id === id);
  }

  await waitFor(async () => (await listenerPids(db)).length === 1, { what: 'one LISTEN session' });
  expect(events.of('listener_lost')).toHaveLength(2);
});

async function listenerPids(db: Kysely<DB>): Promise<number[]> {
  const { rows } = await sql<{ pid: number }>`
    select pid from pg_stat_activity
    where datname = current_database() and application_name = 'taskq listener'`.execute(db);
  return rows.map(({ pid }) => pid);
}
