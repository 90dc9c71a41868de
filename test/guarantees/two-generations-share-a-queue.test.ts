import { allRows, lapseLease } from '../support/rows.ts';
import { expect, type TestDatabase, test } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';
import { startWorkerProcess, type WorkerProcess } from '../support/worker-process.ts';
import { type Generation, payloadsOf } from './fixtures/generations.ts';

// A rollout as it is: old and new code in processes of their own over one queue, both enqueuing and both working.

interface Said {
  readonly id: string;
  readonly type: 'order' | 'report' | 'ping';
  readonly attempt: number;
  readonly payload: object;
}

const TYPES = 3;
const LIMIT_MS = 60_000;

async function start(
  { url }: TestDatabase,
  role: 'worker' | 'enqueuer',
  generation: Generation,
  more: object = {},
): Promise<WorkerProcess> {
  const script = '../../guarantees/fixtures/generation-process.ts';
  const started = startWorkerProcess(script, { url, role, generation, ...more });
  await started.heard('started');
  return started;
}

/** What a worker ran, or an enqueuer enqueued. */
const tasksOf = (...processes: readonly WorkerProcess[]): Said[] =>
  processes.flatMap(({ said }) =>
    said.filter((line) => line.startsWith('{')).map((line): Said => JSON.parse(line)),
  );

const idsOf = (...processes: readonly WorkerProcess[]): string[] =>
  tasksOf(...processes)
    .map(({ id }) => id)
    .sort((left, right) => Number(left) - Number(right));

/** The enqueuer enqueues `count` tasks of each type. */
async function enqueue(enqueuer: WorkerProcess, name: string, count: number): Promise<void> {
  enqueuer.send(`${name} ${count}`);
  await enqueuer.heard(name);
}

async function stop({ child, ended }: WorkerProcess): Promise<void> {
  child.kill('SIGTERM');
  expect((await ended).exitCode).toBe(0);
}

/** As the new code's handlers get it, whoever enqueued it. */
const upgraded = { order: { currency: 'EUR' }, report: {}, ping: {} };

test('during a rollout each task runs once, in code that knows its revision, and nothing is dead-lettered', {
  timeout: LIMIT_MS,
}, async ({ database, db }) => {
  const oldEnqueuer = await start(database, 'enqueuer', 'old');
  const oldWorkers = [await start(database, 'worker', 'old'), await start(database, 'worker', 'old')];
  await enqueue(oldEnqueuer, 'before', 10);
  await waitFor(() => tasksOf(...oldWorkers).length > 0, { what: 'the old code to run something' });
  const newEnqueuer = await start(database, 'enqueuer', 'new');
  const newWorkers = [await start(database, 'worker', 'new'), await start(database, 'worker', 'new')];
  await Promise.all([enqueue(oldEnqueuer, 'during', 20), enqueue(newEnqueuer, 'during', 20)]);
  for (const worker of oldWorkers) await stop(worker);
  // Old enqueuers go last here, as web servers may: there is nobody left but the new code to run what they send.
  await Promise.all([enqueue(oldEnqueuer, 'after', 10), enqueue(newEnqueuer, 'after', 10)]);
  await waitFor(async () => (await allRows(db)).length === 0, { what: 'an empty queue' });
  for (const worker of newWorkers) await stop(worker);

  const workers = [...oldWorkers, ...newWorkers];
  expect(idsOf(...workers)).toEqual(idsOf(oldEnqueuer, newEnqueuer));
  expect(idsOf(oldEnqueuer, newEnqueuer)).toHaveLength(70 * TYPES);
  const settled = workers.flatMap(({ events }) => events.of('settled'));
  expect(settled.filter(({ dead }) => dead)).toEqual([]);
  // A stop may give a task back before its handler has begun; any other end than these is a failure.
  expect(settled.filter(({ outcome }) => outcome !== 'success' && outcome !== 'cancelled')).toEqual([]);
  const newer = new Set(idsOf(newEnqueuer));
  expect(idsOf(...oldWorkers).filter((id) => newer.has(id))).toEqual([]);
  expect(idsOf(...newWorkers).filter((id) => newer.has(id))).toHaveLength(30 * TYPES);
  for (const { id, type, payload } of tasksOf(...newWorkers)) {
    const { n } = payload as { n: number };
    expect(payload).toEqual(newer.has(id) ? payloadsOf.new(n)[type] : { n, ...upgraded[type] });
  }
  for (const { type, payload } of tasksOf(...oldWorkers)) {
    const { n } = payload as { n: number };
    expect(payload).toEqual(payloadsOf.old(n)[type]);
  }
});

test('after a rollback newer rows wait untouched for newer workers, and old ones pass them', {
  timeout: LIMIT_MS,
}, async ({ database, db }) => {
  const newEnqueuer = await start(database, 'enqueuer', 'new');
  await enqueue(newEnqueuer, 'before', 10);
  const waiting = await allRows(db);
  const oldWorker = await start(database, 'worker', 'old');
  const oldEnqueuer = await start(database, 'enqueuer', 'old');

  await enqueue(oldEnqueuer, 'while', 10);
  await oldWorker.events.atLeast(10 * TYPES, 'settled');
  await oldWorker.events.next('discovered');

  expect(idsOf(oldWorker)).toEqual(idsOf(oldEnqueuer));
  expect(await allRows(db)).toEqual(waiting);
  // The rollout is tried again, beside the old worker.
  const newWorker = await start(database, 'worker', 'new');
  await newWorker.events.atLeast(10 * TYPES, 'settled');
  expect(await allRows(db)).toEqual([]);
  expect(idsOf(newWorker)).toEqual(idsOf(newEnqueuer));
  expect(idsOf(oldWorker)).toEqual(idsOf(oldEnqueuer));
  const outcomes = [oldWorker, newWorker].flatMap(({ events }) =>
    events.of('settled').map(({ outcome }) => outcome),
  );
  expect(new Set(outcomes)).toEqual(new Set(['success']));
});

test.for([
  ['old', 'new', { n: 1, currency: 'EUR' }],
  ['new', 'old', { n: 1 }],
] as const)(
  'a task of the old revision that a dead %s worker held runs in %s code: an upgrade is not stored',
  { timeout: LIMIT_MS },
  async ([first, second, payload], { database, db }) => {
    const enqueuer = await start(database, 'enqueuer', 'old');
    const holder = await start(database, 'worker', first, { hangs: true });
    await enqueue(enqueuer, 'one', 1);
    // Two slots hold two of the three tasks; the order is one of them, being the first.
    const held = await waitFor(() => tasksOf(holder).find(({ type }) => type === 'order'));
    expect(held.attempt).toBe(1);
    holder.child.kill('SIGKILL');
    await holder.ended;
    for (const { id } of tasksOf(enqueuer)) await lapseLease(db, id as Parameters<typeof lapseLease>[1]);
    const heir = await start(database, 'worker', second);

    const settled = await heir.events.atLeast(TYPES, 'settled');

    const order = tasksOf(heir).find(({ type }) => type === 'order');
    expect(order).toEqual({ id: held.id, type: 'order', attempt: 2, payload });
    expect(settled.map(({ outcome }) => outcome)).toEqual(['success', 'success', 'success']);
    expect(await allRows(db)).toEqual([]);
  },
);
