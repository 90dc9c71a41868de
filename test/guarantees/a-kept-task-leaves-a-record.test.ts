import { type Kysely, sql } from 'kysely';
import { describe, expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { RESULT_BYTES_MAX } from '../../src/domain/limits.ts';
import { decodePayload } from '../../src/domain/payload-codec.ts';
import { dequeueUnleased, type HandlerContext, TaskqError } from '../../src/index.ts';
import { findCompleted } from '../../src/statements/completed.ts';
import { dequeueKeeping, SETTLE_STATEMENTS } from '../../src/statements/settle.ts';
import { type StartReplica, test } from '../support/replica.ts';
import {
  allRecords,
  allRows,
  claimRow,
  claimRows,
  findRow,
  insertRow,
  insertRows,
  lapseLease,
  makeDue,
  readLaneOf,
  wakeReplicas,
  writeLaneOf,
} from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/schema.ts';
import { enqueue } from '../support/tasks.ts';
import { threadedRegistry, threadHandler } from '../support/threaded.ts';

const DAY_MS = 86_400_000;
const KEPT = { retentionMs: DAY_MS };

test('a task with a retention leaves a record when it is done, and one without leaves nothing', async ({
  db,
  startReplica,
}) => {
  const kept = await insertRows(db, 3, KEPT);
  const unkept = await insertRows(db, 3);
  const { events } = await startReplica({ slots: 6 });

  const settled = await events.atLeast(6, 'settled');
  expect(new Set(settled.map(({ outcome }) => outcome))).toEqual(new Set(['success']));
  expect(settled.map(({ task }) => task.id).toSorted()).toEqual([...kept, ...unkept].toSorted());
  expect(await allRows(db)).toEqual([]);
  expect((await allRecords(db)).map(({ id }) => String(id))).toEqual(kept);
});

test('the record says what was enqueued, what it took, and until when it is kept', async ({
  db,
  startReplica,
}) => {
  const id = await insertRow(db, { ...KEPT, queue: 'low', payload: { n: 7 } });
  await sql`update taskq.async_tasks set headers = '{"trace": "00-1"}' where id = ${id}`.execute(db);
  const enqueued = await findRow(db, id);
  const { events } = await startReplica({
    handlers: {
      plain: async (_payload, { attempt, result }) => {
        if (attempt === 1) throw new Error('not yet');
        result({ rows: 12 });
      },
    },
  });
  await events.first('settled');
  await makeDue(db, id);
  await wakeReplicas(db);
  await events.first('settled', ({ outcome }) => outcome === 'success');

  const [record, ...others] = await allRecords(db);
  expect(others).toEqual([]);
  expect(record).toEqual({
    id: Number(id),
    queue: 'low',
    task_type: 'plain',
    payload: { n: 7 },
    payload_revision: 1,
    headers: { trace: '00-1' },
    result: { rows: 12 },
    attempt_count: 2,
    errors: [expect.objectContaining({ attempt: 1, message: 'not yet' })],
    created_at: enqueued?.['created_at'],
    started_at: expect.any(String),
    completed_at: expect.any(String),
    keep_until: expect.any(String),
  });
  const found = await findCompleted(readLaneOf(db), id);
  expect(found?.keepUntil.getTime()).toBe((found?.completedAt.getTime() ?? 0) + DAY_MS);
  expect(found?.startedAt?.getTime()).toBeLessThanOrEqual(found?.completedAt.getTime() ?? 0);
});

describe('what a handler gives context.result', () => {
  test('comes back from the record as it was, dates and big integers too, the last call winning', async ({
    db,
    startReplica,
  }) => {
    const value = { at: new Date('2026-01-31T12:00:00Z'), big: 12345678901234567890n, rows: [1, -0, null] };
    const { events } = await startReplica({
      handlers: {
        plain: async (_payload, context) => {
          context.result('nothing yet');
          context.result(value);
        },
      },
    });
    const id = await insertRow(db, KEPT);
    await wakeReplicas(db);
    await events.first('settled');

    const record = await findCompleted(readLaneOf(db), id);
    expect(decodePayload(record?.resultText ?? '')).toEqual(value);
  });

  test('crosses from a thread', async ({ db, startReplica }) => {
    const { events } = await startReplica({ registry: threadedRegistry(threadHandler('answer')) });
    const id = await insertRow(db, { ...KEPT, type: 'threaded' });
    await wakeReplicas(db);

    expect(await events.first('settled')).toMatchObject({ outcome: 'success' });
    const record = await findCompleted(readLaneOf(db), id);
    expect(decodePayload(record?.resultText ?? '')).toEqual({ at: new Date('2026-01-31T12:00:00Z') });
  });

  test('is refused in a thread as it is elsewhere', async ({ db, startReplica }) => {
    const { events } = await startReplica({ registry: threadedRegistry(threadHandler('answerByFunction')) });
    await insertRow(db, { type: 'threaded' });
    await wakeReplicas(db);

    expect(await events.first('settled')).toMatchObject({
      outcome: 'failure',
      error: expect.stringContaining('payload.rows is a function'),
    });
  });

  const REFUSED: Readonly<Record<string, [value: unknown, code: string]>> = {
    'that is too large': ['x'.repeat(RESULT_BYTES_MAX), 'RESULT_TOO_LARGE'],
    'that JSON cannot hold': [new Map(), 'PAYLOAD_UNSTORABLE'],
    'that is undefined': [undefined, 'PAYLOAD_UNSTORABLE'],
  };
  for (const [title, [value, code]] of Object.entries(REFUSED)) {
    test(`${title} is refused at the call, with or without a retention`, async ({ db, startReplica }) => {
      const codes: unknown[] = [];
      const { events } = await startReplica({
        handlers: {
          plain: async (_payload, { result }) => {
            try {
              result(value);
            } catch (error) {
              codes.push(error instanceof TaskqError ? error.code : error);
            }
          },
        },
      });
      await insertRow(db, KEPT);
      await insertRow(db);
      await wakeReplicas(db);
      await events.atLeast(2, 'settled');

      expect(codes).toEqual([code, code]);
      expect(await allRecords(db)).toMatchObject([{ result: null }]);
    });
  }

  test('is as large as the limit, and no larger', async ({ db, startReplica }) => {
    const { events } = await startReplica({
      handlers: { plain: async (_payload, { result }) => result('x'.repeat(RESULT_BYTES_MAX - 2)) },
    });
    await insertRow(db, KEPT);
    await wakeReplicas(db);

    expect(await events.first('settled')).toMatchObject({ outcome: 'success' });
    expect(await allRecords(db)).toMatchObject([{ result: 'x'.repeat(RESULT_BYTES_MAX - 2) }]);
  });

  test('is dropped without a retention', async ({ db, startReplica }) => {
    const { events } = await startReplica({ handlers: { plain: async (_payload, { result }) => result(1) } });
    await insertRow(db);
    await wakeReplicas(db);

    expect(await events.first('settled')).toMatchObject({ outcome: 'success' });
    expect(await allRecords(db)).toEqual([]);
  });

  test('counts in the last slice only', async ({ db, startReplica }) => {
    const { events } = await startReplica({
      handlers: {
        sliced: async ({ pages }, { cursor, advanceCursor, result }) => {
          const page = cursor?.page ?? 1;
          if (page === pages) return 'done';
          result({ page });
          await advanceCursor({ page: page + 1 });
          return 'continue';
        },
      },
    });
    await insertRow(db, { ...KEPT, type: 'sliced', payload: { pages: 2 } });
    await wakeReplicas(db);

    await events.first('settled', ({ outcome }) => outcome === 'success');
    expect(await allRecords(db)).toMatchObject([{ result: null }]);
  });
});

test('a run that fails leaves no record, whatever result it gave, and neither does a dead letter', async ({
  db,
  startReplica,
}) => {
  const { events } = await startReplica({
    handlers: {
      plain: async (_payload, { result }) => {
        result('almost');
        throw new Error('no');
      },
    },
  });
  await insertRow(db, KEPT);
  await insertRow(db, { ...KEPT, attemptCount: 19 });
  await wakeReplicas(db);

  await events.atLeast(2, 'settled');
  expect(await allRows(db)).toHaveLength(2);
  expect(await allRecords(db)).toEqual([]);
});

test('of a batch, those whose fence held and that asked for a record have one, with their own result', async ({
  db,
}) => {
  const [first, lost, unkept, last] = await insertRows(db, 4, KEPT);
  await sql`update taskq.async_tasks set retention_ms = null where id = ${unkept}`.execute(db);
  const tasks = await claimRows(db, [first, lost, unkept, last] as never, { slots: 4 });
  await lapseLease(db, lost as never);
  await claimRow(db, lost as never);

  const deleted = await dequeueKeeping(
    writeLaneOf(db),
    tasks.map(({ id, lease }) => ({ lease, resultText: id === last ? undefined : `{"of": ${id}}` })),
  );

  expect([...deleted].toSorted()).toEqual([first, unkept, last].toSorted());
  expect((await allRows(db)).map((row) => String(row['id']))).toEqual([lost]);
  expect((await allRecords(db)).map(({ id, result }) => [String(id), result])).toEqual([
    [first, { of: Number(first) }],
    [last, null],
  ]);
});

describe('a handler that completes in its own transaction', () => {
  /** Runs `handle` for a kept task, and answers how it settled. */
  const run = async (
    { db, startReplica }: { db: Kysely<DB>; startReplica: StartReplica },
    handle: (context: HandlerContext) => Promise<void>,
  ) => {
    const { events } = await startReplica({
      handlers: { plain: (_payload, context) => handle(context) },
    });
    await insertRow(db, KEPT);
    await wakeReplicas(db);
    const { outcome } = await events.first('settled');
    return { outcome, dropped: events.of('result_dropped').length };
  };

  test('commits the record with its work', async ({ db, startReplica }) => {
    const ran = await run({ db, startReplica }, async (context) => {
      context.result('kept');
      await db.transaction().execute(async (tx) => {
        await context.complete(tx);
        expect(await allRecords(db)).toEqual([]);
      });
      expect(await allRecords(db)).toHaveLength(1);
    });

    expect(ran).toEqual({ outcome: 'success', dropped: 0 });
    expect(await allRecords(db)).toMatchObject([{ result: 'kept' }]);
    expect(await allRows(db)).toEqual([]);
  });

  test('leaves neither a record nor a deleted row when that rolls back', async ({ db, startReplica }) => {
    const ran = await run({ db, startReplica }, async (context) => {
      context.result('kept');
      await db.transaction().execute(async (tx) => {
        await context.complete(tx);
        throw new Error('the work failed after all');
      });
    });

    expect(ran).toEqual({ outcome: 'failure', dropped: 0 });
    expect(await allRecords(db)).toEqual([]);
    expect(await allRows(db)).toHaveLength(1);
  });

  test('may try again after a rollback, with another result', async ({ db, startReplica }) => {
    const ran = await run({ db, startReplica }, async (context) => {
      const work = (attempt: number) =>
        db.transaction().execute(async (tx) => {
          context.result({ attempt });
          await context.complete(tx);
          if (attempt === 1) throw new Error('as a serialization failure would');
        });
      await work(1).catch(() => work(2));
    });

    expect(ran).toEqual({ outcome: 'success', dropped: 0 });
    expect(await allRecords(db)).toMatchObject([{ result: { attempt: 2 } }]);
  });

  test('is told of a result that came after the commit, which the record does not have', async ({
    db,
    startReplica,
  }) => {
    const ran = await run({ db, startReplica }, async (context) => {
      await db.transaction().execute((tx) => context.complete(tx));
      context.result('too late');
    });

    expect(ran).toEqual({ outcome: 'success', dropped: 1 });
    expect(await allRecords(db)).toMatchObject([{ result: null }]);
  });
});

test('an enqueuer that did the work itself leaves the record too, without a result', async ({ db }) => {
  const id = await insertRow(db, KEPT);
  await db.transaction().execute(async (tx) => {
    expect(await dequeueUnleased(tx, id)).toBe(true);
    expect(await dequeueUnleased(tx, id)).toBe(false);
  });
  const unkept = await insertRow(db);
  expect(await dequeueUnleased(db, unkept)).toBe(true);
  const held = await insertRow(db, KEPT);
  await claimRow(db, held);
  expect(await dequeueUnleased(db, held)).toBe(false);

  expect(await allRecords(db)).toMatchObject([
    { id: Number(id), attempt_count: 0, started_at: null, result: null },
  ]);
});

test('a task without a retention is settled by statements that do not know of records', () => {
  for (const statement of [SETTLE_STATEMENTS['dequeue'], SETTLE_STATEMENTS['complete']]) {
    expect(statement?.compile(TEST_SCHEMA).sql).not.toMatch(/completed|with|payload|retention/);
  }
});

test('records that cannot be written hold back nobody else, and are written later', async ({
  db,
  startReplica,
}) => {
  const { events } = await startReplica({ slots: 4 });
  await sql`alter table taskq.async_completed_tasks rename to not_there`.execute(db);
  const kept = await insertRow(db, KEPT);
  const unkept = await insertRow(db);
  await wakeReplicas(db);

  await events.first('settlement_retried', ({ task }) => task.id === kept);
  expect(await events.first('settled', ({ task }) => task.id === unkept)).toMatchObject({
    outcome: 'success',
  });
  await sql`alter table taskq.not_there rename to async_completed_tasks`.execute(db);
  expect(await events.first('settled', ({ task }) => task.id === kept)).toMatchObject({ outcome: 'success' });
  expect(await allRecords(db)).toHaveLength(1);
});

test('a task whose id was used before is settled, and its record takes the place of the old one', async ({
  db,
}) => {
  const lane = writeLaneOf(db);
  const first = await claimRow(db, await insertRow(db, KEPT));
  await dequeueKeeping(lane, [{ lease: first.lease, resultText: '"old"' }]);
  // As a sequence that was set back makes it.
  await sql`insert into taskq.async_tasks (id, task_type, queue, payload, retention_ms) overriding system value
            values (${first.id}, 'plain', 'low', '{}', ${DAY_MS})`.execute(db);
  const second = await claimRow(db, first.id);

  expect(await dequeueKeeping(lane, [{ lease: second.lease, resultText: '"new"' }])).toEqual(
    new Set([first.id]),
  );
  expect(await allRecords(db)).toMatchObject([{ id: Number(first.id), queue: 'low', result: 'new' }]);
});

test('a retention beyond all time, written by hand, does not keep a task from being settled', async ({
  db,
}) => {
  const { id, lease } = await claimRow(db, await insertRow(db));
  await sql`update taskq.async_tasks set retention_ms = 9223372036854775807 where id = ${id}`.execute(db);

  await dequeueKeeping(writeLaneOf(db), [{ lease, resultText: undefined }]);
  const record = await findCompleted(readLaneOf(db), id);
  expect(record?.keepUntil.getUTCFullYear()).toBeGreaterThan(2100);
});

test('a record stands in the way of no unique enqueue', async ({ db, startReplica }) => {
  const options = { unique: { key: 'one', while: 'live' } } as const;
  const { events } = await startReplica();
  const first = await enqueue(db, 'plain', {}, { ...options, retention: '1d' });
  await events.first('settled', ({ task }) => task.id === first.id);

  expect(await allRecords(db)).toHaveLength(1);
  expect(await enqueue(db, 'plain', {}, options)).toMatchObject({ status: 'enqueued' });
});
