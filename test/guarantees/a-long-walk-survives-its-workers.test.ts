import { sql } from 'kysely';
import { expect } from 'vitest';
import { insertRow, lapseLease, rowOf } from '../support/rows.ts';
import { test } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';
import { startWorkerProcess, type WorkerProcess } from '../support/worker-process.ts';

const ITEMS = 1_000_000;
const PAGE = 5_000;

test('a million items in slices on three replicas, two of them killed and one overtaken: none is lost', {
  timeout: 180_000,
}, async ({ database, db }) => {
  await sql`create table public.walked (item int not null, worker text not null)`.execute(db);
  await sql`create table public.hold_at (item int not null)`.execute(db);
  const id = await insertRow(db, { type: 'marching', payload: { items: ITEMS, page: PAGE } });
  await sql`insert into public.hold_at select ${ITEMS / 4}::int * n from generate_series(1, 3) n`.execute(db);
  const workers = ['a', 'b', 'c'].map((name) =>
    startWorkerProcess('slicing-worker.ts', { url: database.url, name }),
  );
  const everybody = [...workers];

  // Killed in the middle of a slice: its lease is left, and lapses.
  await killed(await holding(workers), workers);
  await lapseLease(db, id);

  // Overtaken: its lease lapses under it, another goes on, and what it wants to save then is refused.
  const late = await holding(workers);
  const { lease_token: overtaken } = await rowOf(db, id);
  await lapseLease(db, id);
  await waitFor(async () => (await rowOf(db, id)).lease_token !== overtaken, {
    what: 'another worker to take over',
  });
  late.send('go on');
  await late.events.first('settled', ({ outcome }) => outcome === 'lost');

  await killed(await holding(workers), workers);
  await lapseLease(db, id);
  await waitFor(() => workers.some(({ events }) => events.of('settled', isSuccess).length > 0), {
    what: 'the walk to be done',
    timeoutMs: 60_000,
  });

  const { rows } = await sql<{ items: string; least: number; greatest: number }>`
      select count(distinct item)::text as items, min(item) as least, max(item) as greatest from public.walked
    `.execute(db);
  expect(rows).toEqual([{ items: String(ITEMS), least: 1, greatest: ITEMS }]);
  // An attempt is burnt by each of the three that did not end, and given back by the next that advanced.
  const attempts = everybody.flatMap(({ events }) => events.of('claimed').map(({ task }) => task.attempt));
  expect(attempts.filter((attempt) => attempt > 1)).toEqual([2, 2, 2]);
  const outcomes = everybody.flatMap(({ events }) => events.of('settled').map(({ outcome }) => outcome));
  expect(outcomes.filter((outcome) => outcome !== 'continued').toSorted()).toEqual(['lost', 'success']);
  expect(await db.selectFrom('async_tasks').selectAll().execute()).toEqual([]);
});

const isSuccess = ({ outcome }: { outcome: string }) => outcome === 'success';

/** The worker that has come to the next marked item, which one of them does. */
async function holding(workers: readonly WorkerProcess[]): Promise<WorkerProcess> {
  const times = ({ said }: WorkerProcess) => said.filter((word) => word === 'holding').length;
  const next = () => workers.find((worker) => times(worker) > (heard.get(worker) ?? 0));
  const worker = await waitFor(next, { what: 'a worker at a marked item', timeoutMs: 60_000 });
  heard.set(worker, times(worker));
  return worker;
}

const heard = new WeakMap<WorkerProcess, number>();

async function killed(worker: WorkerProcess, workers: WorkerProcess[]): Promise<void> {
  workers.splice(workers.indexOf(worker), 1);
  worker.child.kill('SIGKILL');
  await worker.ended;
}
