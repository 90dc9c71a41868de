import { expect } from 'vitest';
import { z } from 'zod';
import {
  createRegistry,
  defineTask,
  type HandlerRegistry,
  type Logger,
  type WalkOptions,
  walkPages,
} from '../../src/index.ts';
import { replayDead } from '../../src/statements/dead.ts';
import { gate, test } from '../support/replica.ts';
import { backoffOf, findRow, insertRow, makeDue, rowOf, wakeReplicas, writeLaneOf } from '../support/rows.ts';
import { enqueue, testTasks } from '../support/tasks.ts';

// Walks over the numbers from 1 to 20, in pages of five: a position is the last number that is done.

const COUNT = 20;
const PAGE = 5;
const MAX_ATTEMPTS = 3;

interface Place {
  readonly after: number;
}
type Walk = WalkOptions<Place, Place, number, number>;

const walking = defineTask({
  type: 'walking',
  payload: z.object({}),
  cursor: z.object({ after: z.number().int() }),
  ceiling: '5m',
  maxAttempts: MAX_ATTEMPTS,
});

const numbers = {
  from: (cursor: Place | undefined) => cursor?.after ?? 0,
  cursorOf: (after: number) => ({ after }),
  async readPage(after: number) {
    const last = Math.min(COUNT, after + PAGE);
    const items = Array.from({ length: last - after }, (_, index) => after + index + 1);
    return { items, next: last < COUNT ? last : undefined, total: COUNT };
  },
  after: (item: number) => item,
};

function registry(walk: Walk): HandlerRegistry {
  return createRegistry(
    {
      walking: { definition: walking, revision: 1 },
      plain: testTasks.plain,
    },
    { walking: (_payload, context) => walkPages(context, walk), plain: async () => 'done' },
  );
}

test('a poisonous item dead-letters on schedule: what comes before it is saved, and only it burns attempts', async ({
  db,
  startReplica,
}) => {
  const seen: number[] = [];
  let isPoisonous = true;
  const each = async (item: number) => {
    if (item === 13 && isPoisonous) throw new Error('item 13 is poison');
    seen.push(item);
  };
  const { events } = await startReplica({ slots: 1, registry: registry({ ...numbers, each }) });
  const id = await insertRow(db, { type: 'walking', maxAttempts: MAX_ATTEMPTS });
  await wakeReplicas(db);

  // The slice that meets it goes on from the item before; the next one is due at once, and fails.
  expect(await events.first('slice_stopped_early')).toMatchObject({
    task: { id, attempt: 1 },
    on: 'page_work',
    error: { message: 'item 13 is poison' },
    fields: { cursor: { after: 12 }, pages_read: 3 },
  });
  for (const [index, backoffMs] of [15_000, 30_000].entries()) {
    await events.atLeast(index + 1, 'settled', ({ outcome }) => outcome === 'failure');
    expect(await backoffOf(db, id)).toBe(backoffMs);
    await makeDue(db, id);
    await wakeReplicas(db);
  }
  await events.first('settled', ({ dead }) => dead);

  const settled = events.of('settled').map(({ outcome, task, dead }) => [outcome, task.attempt, dead]);
  expect(settled).toEqual([
    ['continued', 1, false],
    ['failure', 1, false],
    ['failure', 2, false],
    ['failure', 3, true],
  ]);
  expect(await rowOf(db, id)).toMatchObject({
    cursor: { after: 12 },
    progress: { done: 12, total: COUNT },
    last_error: 'item 13 is poison',
  });
  expect(seen).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);

  isPoisonous = false;
  await replayDead(writeLaneOf(db), id);
  await events.first('settled', ({ outcome }) => outcome === 'success');
  expect(seen).toEqual(Array.from({ length: COUNT }, (_, index) => index + 1));
  expect(await findRow(db, id)).toBeUndefined();
});

test('a page that cannot be read after progress leaves its one trace in the log: organisation, cursor, pages', async ({
  db,
  startReplica,
}) => {
  const lines: (readonly [string, object])[] = [];
  const say = (fields: object, message: string) => void lines.push([message, fields]);
  const logger: Logger = { debug() {}, info() {}, warn: say, error: say };
  let isAway = true;
  const readPage: Walk['readPage'] = async (position) => {
    if (position === 10 && isAway) {
      isAway = false;
      throw new Error('the store is away');
    }
    return numbers.readPage(position);
  };
  const walk = {
    ...numbers,
    readPage,
    each: async () => undefined,
    fields: { org_id: 'acme', event: 'mine' },
  };
  const { events } = await startReplica({ slots: 1, logger, registry: registry(walk) });
  const id = await insertRow(db, { type: 'walking', maxAttempts: MAX_ATTEMPTS });
  await wakeReplicas(db);
  await events.first('settled', ({ outcome }) => outcome === 'success');

  expect(events.of('settled').map(({ outcome, task }) => [outcome, task.attempt])).toEqual([
    ['continued', 1],
    ['success', 1],
  ]);
  expect(lines).toEqual([
    [
      'slice stopped early on a page read',
      {
        event: 'slice_stopped_early',
        taskId: id,
        taskType: 'walking',
        queue: 'default',
        attempt: 1,
        maxAttempts: MAX_ATTEMPTS,
        on: 'page_read',
        error: 'the store is away',
        org_id: 'acme',
        cursor: { after: 10 },
        pages_read: 2,
      },
    ],
  ]);
});

test('a first page that cannot be read is an ordinary failure: backoff, error, attempt kept', async ({
  db,
  startReplica,
}) => {
  const readPage = async () => Promise.reject(new Error('the store is away'));
  const { events } = await startReplica({
    slots: 1,
    registry: registry({ ...numbers, readPage, each: async () => undefined }),
  });
  const id = await insertRow(db, { type: 'walking', maxAttempts: MAX_ATTEMPTS });
  await wakeReplicas(db);

  expect(await events.first('settled')).toMatchObject({ outcome: 'failure', error: 'the store is away' });
  expect(await rowOf(db, id)).toMatchObject({
    attempt_count: 1,
    cursor: null,
    progress: null,
    last_error: 'the store is away',
  });
  expect(await backoffOf(db, id)).toBe(15_000);
  expect(events.of('slice_stopped_early')).toEqual([]);
});

test('the slot is free between slices: a task that came meanwhile runs before the next slice', async ({
  db,
  startReplica,
}) => {
  const [started, enqueued] = [gate(), gate()];
  const eachPage = async () => {
    started.open();
    await enqueued.promise;
  };
  const { events } = await startReplica({
    slots: 1,
    registry: registry({ ...numbers, eachPage, pagesPerSlice: 1 }),
  });
  await insertRow(db, { type: 'walking', maxAttempts: MAX_ATTEMPTS });
  await wakeReplicas(db);
  await started.promise;
  await db.transaction().execute((transaction) => enqueue(transaction, 'plain', {}));
  enqueued.open();
  await events.first('settled', ({ task, outcome }) => task.type === 'walking' && outcome === 'success');

  expect(events.of('claimed').map(({ task }) => task.type)).toEqual([
    'walking',
    'plain',
    'walking',
    'walking',
    'walking',
  ]);
});

test('a replica that stops saves what its slice has done, and another goes on from there', async ({
  db,
  startReplica,
}) => {
  const seen: number[] = [];
  const midway = gate();
  const each = async (item: number, signal: AbortSignal) => {
    if (item === 8 && !signal.aborted) {
      midway.open();
      await new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason));
      });
    }
    seen.push(item);
  };
  const first = await startReplica({ slots: 1, registry: registry({ ...numbers, each }) });
  const id = await insertRow(db, { type: 'walking', maxAttempts: MAX_ATTEMPTS });
  await wakeReplicas(db);
  await midway.promise;
  await first.app.stop();

  expect(first.events.of('settled')).toMatchObject([{ outcome: 'continued', error: undefined }]);
  expect(await rowOf(db, id)).toMatchObject({ cursor: { after: 7 }, attempt_count: 0, lease_token: null });

  const seenBySecond: number[] = [];
  const second = await startReplica({
    slots: 1,
    registry: registry({ ...numbers, each: async (item) => seenBySecond.push(item) }),
  });
  expect(await second.events.first('settled')).toMatchObject({ outcome: 'success', task: { attempt: 1 } });
  expect([...seen, ...seenBySecond]).toEqual(Array.from({ length: COUNT }, (_, index) => index + 1));
});
