import { sql } from 'kysely';
import { pruneAll } from '../../src/maintenance/pruner.ts';
import { countTasks } from '../../src/statements/counts.ts';
import { dropDead, findDead, listDead, replayDead } from '../../src/statements/dead.ts';
import { discover } from '../../src/statements/discover.ts';
import { test } from '../support/replica.ts';
import { insertRows, lapseLease, readLaneOf, rowOf, writeLaneOf } from '../support/rows.ts';
import { knownRevisions } from '../support/tasks.ts';
import { expect } from '../support/test.ts';
import { startWorkerProcess } from '../support/worker-process.ts';

// Hazard 11: a worker dies on the final attempt, and its row stays locked or invisible for ever.

const RETENTION_MS = 7 * 86_400_000;

test('a task whose worker was killed on the final attempt is running until the lease lapses, then a dead letter', async ({
  database,
  db,
  startReplica,
}) => {
  const [read, write] = [readLaneOf(db), writeLaneOf(db)];
  const ids = await insertRows(db, 2, { attemptCount: 19 });
  const [replayed, pruned] = ids as [(typeof ids)[0], (typeof ids)[0]];
  const worker = startWorkerProcess('hanging-worker.ts', { url: database.url });
  for (const { task } of await worker.events.atLeast(2, 'claimed')) expect(task.attempt).toBe(20);
  worker.child.kill('SIGKILL');
  await worker.ended;
  // Long ago, so that only the live lease keeps it from being pruned.
  await sql`update taskq.async_tasks set last_attempted_at = now() - interval '8 days'`.execute(db);

  expect(await countTasks(read)).toMatchObject([{ pending: 2, running: 2, due: 0, dead: 0 }]);
  expect(await listDead(read, { limit: 10 })).toEqual([]);
  for (const id of ids) {
    expect(await replayDead(write, id)).toBe('refused');
    expect(await dropDead(write, id)).toBe('refused');
  }
  expect(await pruneAll({ write, retentionMs: RETENTION_MS })).toBe(0);

  await sql`update taskq.async_tasks set last_attempted_at = now() - interval '6 days'`.execute(db);
  for (const id of ids) await lapseLease(db, id);
  expect(await countTasks(read)).toMatchObject([{ pending: 0, running: 0, due: 0, dead: 2 }]);
  const letters = await listDead(read, { limit: 10 });
  expect(letters.map(({ id }) => id)).toEqual([pruned, replayed]);
  // A crash writes nothing: no error and fewer recorded failures than attempts tell it from a failure.
  expect(await findDead(read, replayed)).toMatchObject({
    attemptCount: 20,
    lastError: undefined,
    errors: [],
  });
  expect(await discover(read, { known: knownRevisions, queues: undefined, limit: 20 })).toEqual([]);
  expect(await pruneAll({ write, retentionMs: RETENTION_MS })).toBe(0);

  expect(await replayDead(write, replayed)).toBe('written');
  await sql`update taskq.async_tasks set last_attempted_at = now() - interval '8 days'`.execute(db);
  expect(await pruneAll({ write, retentionMs: RETENTION_MS })).toBe(1);
  expect(await rowOf(db, replayed)).toMatchObject({ attempt_count: 0, exhausted: false });

  const { events } = await startReplica();
  expect(await events.first('settled')).toMatchObject({
    task: { id: replayed, attempt: 1 },
    outcome: 'success',
  });
});
