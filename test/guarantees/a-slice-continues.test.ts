import { type Kysely, sql } from 'kysely';
import { describe, expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import type { HandlersFor } from '../../src/index.ts';
import { advanceCursor } from '../../src/statements/settle.ts';
import { runTask } from '../../src/testing/index.ts';
import { gate, type StartReplica, test } from '../support/replica.ts';
import {
  claimRow,
  findRow,
  insertRow,
  lapseLease,
  rowOf,
  wakeReplicas,
  writeLaneOf,
} from '../support/rows.ts';
import { handlersFor, type TestTasks } from '../support/tasks.ts';

type Sliced = HandlersFor<TestTasks>['sliced'];

test('advancing a cursor saves it, makes the row due, resets the attempts and the error, and ends the lease', async ({
  db,
}) => {
  const id = await insertRow(db, { type: 'sliced', attemptCount: 7 });
  await sql`update taskq.async_tasks set last_error = 'an earlier slice', errors = '[{"attempt":7}]'`.execute(
    db,
  );
  const before = await rowOf(db, id);
  const task = await claimRow(db, id);

  expect(await advanceCursor(writeLaneOf(db), task.lease, '{"page":2}')).toBe('written');

  const after = await rowOf(db, id);
  expect(after).toEqual({
    ...before,
    cursor: { page: 2 },
    attempt_count: 0,
    last_error: null,
    run_at: after['run_at'],
    last_attempted_at: after['last_attempted_at'],
  });
  expect(await claimRow(db, id)).toMatchObject({ attempt: 1, cursorText: '{"page": 2}' });
});

test('a sliced task goes on where its cursor says, each slice on attempt 1, until it is done', async ({
  db,
  startReplica,
}) => {
  const slices: unknown[] = [];
  const { events, id } = await runSliced(
    db,
    startReplica,
    async ({ pages }, { cursor, attempt, advanceCursor }) => {
      const page = cursor?.page ?? 0;
      slices.push([page, attempt]);
      if (page === pages) return 'done';
      await advanceCursor({ page: page + 1 });
      return 'continue';
    },
  );

  await events.first('settled', ({ outcome }) => outcome === 'success');
  expect(slices).toEqual([
    [0, 1],
    [1, 1],
    [2, 1],
  ]);
  expect(events.of('settled').map(({ outcome }) => outcome)).toEqual(['continued', 'continued', 'success']);
  expect(events.of('slice_advanced_nothing')).toEqual([]);
  expect(await findRow(db, id)).toBeUndefined();
});

test('a continue that advanced nothing is released, warned about, and keeps its attempt', async ({
  db,
  startReplica,
}) => {
  const { events, id } = await runSliced(db, startReplica, async (_payload, { attempt }) =>
    attempt === 1 ? 'continue' : 'done',
  );

  expect(await events.first('slice_advanced_nothing')).toMatchObject({ task: { id, attempt: 1 } });
  // Released and not failed: due at once, so the next attempt follows without a wake.
  expect(await events.atLeast(2, 'settled')).toMatchObject([
    { outcome: 'continued', dead: false, task: { attempt: 1 } },
    { outcome: 'success', task: { attempt: 2 } },
  ]);
});

test('a refused advance throws LEASE_LOST, writes nothing, and the run is lost', async ({
  db,
  startReplica,
}) => {
  const [started, takenOver] = [gate(), gate()];
  const thrown = gate<unknown>();
  const { events, id } = await runSliced(db, startReplica, async (_payload, { advanceCursor }) => {
    started.open();
    await takenOver.promise;
    await advanceCursor({ page: 1 }).catch((error) => {
      thrown.open(error);
      throw error;
    });
    return 'continue' as const;
  });
  await started.promise;
  await lapseLease(db, id);
  await claimRow(db, id);
  const before = await rowOf(db, id);

  takenOver.open();

  expect(await thrown.promise).toMatchObject({ name: 'TaskqError', code: 'LEASE_LOST' });
  expect(await events.first('settled')).toMatchObject({ outcome: 'lost' });
  expect(await rowOf(db, id)).toEqual(before);
});

test('a refused tryAdvanceCursor answers false, and a continue after it is lost, whatever it says', async ({
  db,
  startReplica,
}) => {
  const [started, takenOver] = [gate(), gate()];
  const answered = gate<boolean>();
  const { events, id } = await runSliced(db, startReplica, async (_payload, { tryAdvanceCursor }) => {
    started.open();
    await takenOver.promise;
    answered.open(await tryAdvanceCursor({ page: 1 }));
    return 'continue' as const;
  });
  await started.promise;
  await lapseLease(db, id);
  await claimRow(db, id);
  const before = await rowOf(db, id);

  takenOver.open();

  expect(await answered.promise).toBe(false);
  expect(await events.first('settled')).toMatchObject({
    outcome: 'lost',
    error: expect.stringContaining('another worker holds the task'),
  });
  expect(await rowOf(db, id)).toEqual(before);
});

test('a written tryAdvanceCursor answers true, and the next slice begins there', async ({
  db,
  startReplica,
}) => {
  const answers: boolean[] = [];
  const { events } = await runSliced(db, startReplica, async (_payload, { cursor, tryAdvanceCursor }) => {
    if (cursor !== undefined) return 'done';
    answers.push(await tryAdvanceCursor({ page: 1 }));
    return 'continue';
  });

  await events.first('settled', ({ outcome }) => outcome === 'success');
  expect(answers).toEqual([true]);
});

test('progress is saved with the cursor, handed to the next slice, and gone when an advance says none', async ({
  db,
  startReplica,
}) => {
  const received: unknown[] = [];
  const rows: unknown[] = [];
  const { events } = await runSliced(db, startReplica, async (_payload, context) => {
    const { cursor, progress, advanceCursor, id } = context;
    received.push(progress);
    rows.push((await rowOf(db, id))['progress']);
    const page = cursor?.page ?? 0;
    if (page === 3) return 'done';
    await advanceCursor({ page: page + 1 }, PROGRESS[page]);
    return 'continue';
  });

  await events.first('settled', ({ outcome }) => outcome === 'success');
  expect(received).toEqual([undefined, { done: 40 }, { done: 80, total: 120 }, undefined]);
  expect(rows).toEqual([null, { done: 40 }, { done: 80, total: 120 }, null]);
});

const PROGRESS = [{ done: 40 }, { done: 80, total: 120 }];

test.each([{ done: -1 }, { done: 0.5 }, { done: 1, total: Number.NaN }, { done: '7' as never }])(
  'progress of %o is refused before anything is written',
  async (progress) => {
    expect(
      await runTask(
        handlersFor({
          sliced: async (_payload, { advanceCursor }) => advanceCursor({ page: 1 }, progress),
        }),
        'sliced',
        { pages: 1 },
      ),
    ).toMatchObject({ error: { code: 'OPTION_INVALID' }, cursor: undefined, outcome: 'failure' });
  },
);

test('a cursor that does not fit its schema is refused before anything is written', async ({
  db,
  startReplica,
}) => {
  const { events, id } = await runSliced(db, startReplica, async (_payload, { advanceCursor }) => {
    await advanceCursor({ page: 'two' } as never);
  });

  expect(await events.first('settled')).toMatchObject({
    outcome: 'failure',
    error: expect.stringMatching(/cursor.*page/s),
  });
  expect(await rowOf(db, id)).toMatchObject({ cursor: null, attempt_count: 1 });
});

describe('a slice that is shut down', () => {
  test('is continued when its progress was saved', async ({ db, startReplica }) => {
    const saved = gate();
    const { app, events, id } = await runSliced(
      db,
      startReplica,
      async (_payload, { advanceCursor, signal }) => {
        await advanceCursor({ page: 1 });
        saved.open();
        await aborted(signal);
      },
    );
    await saved.promise;
    // The row is free again while the slice still ends: nobody may take it here, or it would be the other's.
    await sql`update taskq.async_tasks set run_at = now() + interval '1 hour'`.execute(db);

    await app.stop();

    expect(events.of('settled')).toMatchObject([{ outcome: 'continued', error: undefined }]);
    expect(await rowOf(db, id)).toMatchObject({ cursor: { page: 1 }, attempt_count: 0, last_error: null });
  });

  test('is cancelled when nothing was saved', async ({ db, startReplica }) => {
    const started = gate();
    const { app, events, id } = await runSliced(db, startReplica, async (_payload, { signal }) => {
      started.open();
      await aborted(signal);
    });
    await started.promise;

    await app.stop();

    expect(events.of('settled')).toMatchObject([{ outcome: 'cancelled' }]);
    expect(await rowOf(db, id)).toMatchObject({ cursor: null, attempt_count: 1, lease_token: null });
  });
});

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort);
  });
}

async function runSliced(db: Kysely<DB>, startReplica: StartReplica, sliced: Sliced) {
  const replica = await startReplica({ slots: 1, handlers: { sliced } });
  const id = await insertRow(db, { type: 'sliced', payload: { pages: 2 } });
  await wakeReplicas(db);
  return { ...replica, id };
}
