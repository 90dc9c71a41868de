import { sql } from 'kysely';
import { z } from 'zod';
import { createEnqueuer, defineTask } from '../../src/index.ts';
import { recordFailure } from '../../src/statements/settle.ts';
import { allRows, claimRows, rowOf, writeLaneOf } from '../support/rows.ts';
import { recordStatements } from '../support/statements.ts';
import { enqueueMany as enqueueManyTests, enqueue as enqueueTest } from '../support/tasks.ts';
import { expect, test } from '../support/test.ts';
import { hearWakes } from '../support/wakes.ts';

const rebuild = defineTask({
  type: 'rebuild',
  payload: z.object({
    stackId: z.string(),
    owner: z.object({ id: z.number(), since: z.date().optional() }).optional(),
    reason: z.string().optional(),
    list: z.array(z.string()).optional(),
  }),
  ceiling: '5m',
  unique: { by: ['stackId'], while: 'waiting' },
});
const other = defineTask({ type: 'other', payload: rebuild.payload, ceiling: '5m' });
const { enqueue, enqueueMany } = createEnqueuer({
  rebuild: { definition: rebuild, revision: 3 },
  other: { definition: other, revision: 1 },
});
const live = { while: 'live' } as const;

test('a type makes every enqueue unique by its fields; the options of one enqueue replace its rule', async ({
  db,
}) => {
  const first = await enqueue(db, 'rebuild', { stackId: 'a', reason: 'one' });

  expect(await enqueue(db, 'rebuild', { stackId: 'a', reason: 'two' })).toEqual({
    ...first,
    status: 'existing',
  });
  expect(await enqueue(db, 'rebuild', { stackId: 'b' })).toMatchObject({ status: 'enqueued' });
  expect(
    await enqueue(
      db,
      'rebuild',
      { stackId: 'a', reason: 'two' },
      { unique: { ...live, by: ['stackId', 'reason'] } },
    ),
  ).toMatchObject({ status: 'enqueued' });
});

test('unique: false forces a task, which has no key and stands in nobody’s way', async ({ db }) => {
  const forced = await enqueue(db, 'rebuild', { stackId: 'a' }, { unique: false });
  const first = await enqueue(db, 'rebuild', { stackId: 'a' });
  const again = await enqueue(db, 'rebuild', { stackId: 'a' }, { unique: false });

  expect([forced.status, first.status, again.status]).toEqual(['enqueued', 'enqueued', 'enqueued']);
  expect(await rowOf(db, forced.id)).toMatchObject({ unique_key: null });
  expect(await allRows(db)).toHaveLength(3);
});

test('the key is the value of the fields, in whatever order they are named or set, and the task type', async ({
  db,
}) => {
  const since = new Date('2027-01-31T09:00:00Z');
  const by = ['owner', 'stackId'] as const;
  const first = await enqueue(
    db,
    'other',
    { owner: { id: 1, since }, stackId: 'a' },
    { unique: { ...live, by } },
  );
  const sameKeys = [
    await enqueue(
      db,
      'other',
      { stackId: 'a', owner: { since, id: 1 } },
      { unique: { ...live, by: by.toReversed() } },
    ),
    await enqueue(
      db,
      'other',
      { stackId: 'a', owner: { id: 1, since }, reason: 'x' },
      { unique: { ...live, by } },
    ),
  ];
  const otherKeys = [
    await enqueue(db, 'other', { stackId: 'a', owner: { id: 2, since } }, { unique: { ...live, by } }),
    await enqueue(db, 'other', { stackId: 'a', owner: { id: 1 } }, { unique: { ...live, by } }),
    await enqueue(db, 'other', { stackId: 'a', owner: { id: 1 } }, { unique: { ...live, by: ['owner.id'] } }),
    await enqueue(db, 'rebuild', { stackId: 'a', owner: { id: 1, since } }, { unique: { ...live, by } }),
  ];

  for (const enqueued of sameKeys) expect(enqueued).toEqual({ id: first.id, status: 'existing' });
  for (const { status } of otherKeys) expect(status).toBe('enqueued');
});

test('without key and fields the whole payload is the key, and an empty text is a key like any other', async ({
  db,
}) => {
  const whole = await enqueue(db, 'other', { stackId: 'a', list: ['x', 'y'] }, { unique: live });
  const empty = await enqueue(db, 'other', { stackId: 'a' }, { unique: { ...live, key: '' } });

  expect(await enqueue(db, 'other', { list: ['x', 'y'], stackId: 'a' }, { unique: live })).toMatchObject({
    id: whole.id,
    status: 'existing',
  });
  expect(await enqueue(db, 'other', { stackId: 'a', list: ['y', 'x'] }, { unique: live })).toMatchObject({
    status: 'enqueued',
  });
  expect(await enqueue(db, 'other', { stackId: 'b' }, { unique: { ...live, key: '' } })).toEqual({
    id: empty.id,
    status: 'existing',
  });
});

test('a field that is not there is refused with its path, before any statement', async ({ db }) => {
  const sent = recordStatements();
  for (const [payload, by, path] of [
    [{ stackId: 'a' }, ['stackId', 'reason'], 'reason'],
    [{ stackId: 'a', reason: undefined }, ['reason'], 'reason'],
    [{ stackId: 'a' }, ['owner.id'], 'owner.id'],
    [{ stackId: 'a', list: ['x'] }, ['list.length'], 'list.length'],
    [{ stackId: 'a' }, ['constructor'], 'constructor'],
  ] as [z.input<typeof other.payload>, string[], string][]) {
    await expect(
      enqueueMany(db, 'other', [payload], { unique: { ...live, by: by as never } }),
    ).rejects.toMatchObject({
      code: 'OPTION_INVALID',
      message: `other[0]: unique by '${path}': the payload has no such field, so that the task would have no key`,
    });
  }
  expect(sent.all).toEqual([]);
});

test('rules that cannot be meant are refused, on an enqueue and on a type', async ({ db }) => {
  for (const [unique, problem] of [
    [true, /expected \{ while: … \}, received true/],
    [{}, /while: say what stands in the way/],
    [{ while: 'running' }, /while: say what stands in the way/],
    [{ while: { window: '1h', live: true } }, /while: say what stands in the way/],
    [{ while: { window: 'soon' } }, /window: expected milliseconds or text/],
    [{ while: { window: 0 } }, /window: must be between/],
    [{ ...live, key: 'a', by: ['stackId'] }, /give key or by, not both/],
    [{ ...live, by: [] }, /by: name a field, or give a key/],
    [{ ...live, by: 'stackId' }, /by: expected a list/],
    [{ ...live, key: 7 }, /key: expected text/],
    [{ ...live, onConflict: 'ignore' }, /onConflict: expected skip, replace, error/],
    [{ ...live, onclash: 'skip' }, /no such option 'onclash'/],
  ] as const) {
    const given = { unique: unique as never };
    await expect(enqueue(db, 'other', { stackId: 'a' }, given)).rejects.toMatchObject({
      code: 'OPTION_INVALID',
      message: expect.stringMatching(problem),
    });
    expect(() => defineTask({ type: 'bad', payload: z.object({}), ceiling: '5m', ...given })).toThrow(
      expect.objectContaining({
        code: expect.stringMatching(/^(DEFINITION|DURATION)_INVALID$/),
        message: expect.stringMatching(problem),
      }),
    );
  }
});

test('a replacement changes payload, revision and headers, the due time if one is given, and nothing else', async ({
  database,
  db,
}) => {
  const unique = { by: ['stackId'], while: 'waiting', onConflict: 'replace' } as const;
  const { id } = await enqueue(db, 'rebuild', { stackId: 'a' }, { unique, queue: 'low', maxAttempts: 7 });
  const { lease } = await claimIt();
  await recordFailure(writeLaneOf(db), lease, { attempt: 1, outcome: 'failure', message: 'failed' }, 600_000);
  const before = await rowOf(db, id);
  const wakes = await hearWakes(database);

  const options = { unique, headers: { by: 'test' }, queue: 'high', maxAttempts: 2 };
  expect(await enqueue(db, 'rebuild', { stackId: 'a', reason: 'two' }, options)).toEqual({
    id,
    status: 'replaced',
  });

  const changed = { payload: { stackId: 'a', reason: 'two' }, payload_revision: 3, headers: { by: 'test' } };
  expect(await rowOf(db, id)).toEqual({ ...before, ...changed });
  expect(await wakes.count(), 'it still backs off').toBe(0);

  await enqueue(db, 'rebuild', { stackId: 'a' }, { unique, runAt: '2020-01-31T09:00:00Z' });

  expect(new Date(String((await rowOf(db, id))['run_at'])).toISOString()).toBe('2020-01-31T09:00:00.000Z');
  expect(await wakes.count(), 'it is due now').toBe(1);

  async function claimIt() {
    const known = { rebuild: 3 };
    await sql`update taskq.async_tasks set payload_revision = 1`.execute(db);
    const [task] = await claimRows(db, [id], { known, leaseMs: { rebuild: 60_000 } });
    if (task === undefined) throw new Error('not claimable');
    return task;
  }
});

test('a conflict that is an error leaves the transaction usable for a caller that catches it', async ({
  db,
}) => {
  const unique = { key: 'k', while: 'live', onConflict: 'error' } as const;
  const { id } = await enqueueTest(db, 'plain', {}, { unique });

  await db.transaction().execute(async (tx) => {
    await expect(enqueueTest(tx, 'plain', {}, { unique })).rejects.toMatchObject({
      name: 'TaskqError',
      code: 'TASK_EXISTS',
      message: `plain: task ${id} stands in the way of another with its key`,
    });
    await enqueueTest(tx, 'brief', {});
  });

  expect(await allRows(db)).toMatchObject([{ task_type: 'plain' }, { task_type: 'brief' }]);
});

test('a list has its own duplicates: the first is enqueued, the last replaces it, and the answers are in order', async ({
  db,
}) => {
  const payloads = ['b', 'a', 'b', 'c', 'b'].map((stackId, place) => ({ stackId, reason: String(place) }));

  const skipped = await enqueueMany(db, 'other', payloads, { unique: { ...live, by: ['stackId'] } });

  expect(skipped.map(({ status }) => status)).toEqual([
    'enqueued',
    'enqueued',
    'existing',
    'enqueued',
    'existing',
  ]);
  expect(new Set([0, 2, 4].map((place) => skipped[place]?.id)).size).toBe(1);
  expect(await rowOf(db, skipped[4]?.id as never)).toMatchObject({ payload: { stackId: 'b', reason: '0' } });

  const replaced = await enqueueMany(db, 'other', payloads, {
    unique: { ...live, by: ['stackId'], onConflict: 'replace' },
  });

  expect(replaced.map(({ id }) => id)).toEqual(skipped.map(({ id }) => id));
  expect(await rowOf(db, replaced[0]?.id as never)).toMatchObject({ payload: { stackId: 'b', reason: '4' } });
  await expect(
    enqueueMany(db, 'other', payloads.slice(2), {
      unique: { ...live, by: ['stackId'], onConflict: 'error' },
    }),
  ).rejects.toMatchObject({
    code: 'TASK_EXISTS',
    message: expect.stringMatching(/^other\[\d\]: task \d+ stands/),
  });
});

test('unique enqueues send one wake for a transaction, and none for what is in the way already', async ({
  database,
  db,
}) => {
  const wakes = await hearWakes(database);
  const list = Array.from({ length: 50 }, (_, n) => ({ n }));
  await enqueueManyTests(db, 'plain', list, { unique: live });
  expect(await wakes.count()).toBe(1);

  await enqueueManyTests(db, 'plain', list, { unique: live });
  expect(await wakes.count()).toBe(0);

  await enqueueTest(db, 'plain', {}, { unique: { ...live, key: 'later' }, delay: '1h' });
  expect(await wakes.count()).toBe(0);
});
