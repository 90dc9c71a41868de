import { z } from 'zod';
import { createEnqueuer, createRegistry, defineTask, TaskqError } from '../../src/index.ts';
import { test } from '../support/replica.ts';
import { insertRow, rowOf, wakeReplicas } from '../support/rows.ts';
import { expect } from '../support/test.ts';

// Hazard 63: the schema only types the payload and never parses it, so that a date is in truth a string; or it
// parses what was parsed already, which breaks transforms. Here the input form is stored, and parsed exactly once.

const StackId = z.string().brand<'StackId'>();
const parsed = defineTask({
  type: 'parsed',
  payload: z.strictObject({
    at: z.coerce.date(),
    text: z.string().transform((text) => `${text}!`),
    retries: z.number().default(3),
    stackId: StackId,
  }),
  cursor: z.object({ page: z.string().transform((page) => `${page}?`) }),
  ceiling: '1m',
});
const tasks = { parsed: { definition: parsed, revision: 2 } };
const { enqueue } = createEnqueuer(tasks);
const input = { at: '2027-01-31T09:00:00.000Z', text: 'a', stackId: StackId.parse('s') };
type Seen = z.output<(typeof parsed)['payload']>;

test('a payload is stored as it was given, and the handler gets what one parse makes of it', async ({
  db,
  startReplica,
}) => {
  const seen: Seen[] = [];
  const { events } = await startReplica({
    registry: createRegistry(tasks, { parsed: async (payload) => void seen.push(payload) }),
  });

  const { id } = await db.transaction().execute(async (transaction) => {
    const enqueued = await enqueue(transaction, 'parsed', input);
    expect(await rowOf(transaction, enqueued.id)).toMatchObject({ payload: input });
    return enqueued;
  });
  await events.first('settled', ({ task, outcome }) => task.id === id && outcome === 'success');

  expect(seen).toStrictEqual([{ at: new Date(input.at), text: 'a!', retries: 3, stackId: 's' }]);
});

test('a cursor is stored as it was given, and the next slice gets what one parse makes of it', async ({
  db,
  startReplica,
}) => {
  const cursors: unknown[] = [];
  const { events } = await startReplica({
    registry: createRegistry(tasks, {
      parsed: async (_payload, context) => {
        cursors.push(context.cursor);
        if (context.cursor !== undefined) return 'done';
        await context.advanceCursor({ page: '2' });
        return 'continue';
      },
    }),
  });
  const { id } = await enqueue(db, 'parsed', input);
  await events.first('settled', ({ outcome }) => outcome === 'continued');
  await wakeReplicas(db);
  await events.first('settled', ({ task, outcome }) => task.id === id && outcome === 'success');
  expect(cursors).toEqual([undefined, { page: '2?' }]);
});

test('rows that do not fit are dead letters with the path, are not run, and do not hold up the next', async ({
  db,
  startReplica,
}) => {
  const seen: Seen[] = [];
  const payload = { at: 'no date', text: 'a', stackId: 's' };
  const bySql = await insertRow(db, { type: 'parsed', payload, revision: 2 });
  const byAnOlderVersion = await insertRow(db, { type: 'parsed', payload: { text: 'a' }, revision: 1 });
  const { events } = await startReplica({
    slots: 1,
    registry: createRegistry(tasks, { parsed: async (given) => void seen.push(given) }),
  });
  const { id } = await enqueue(db, 'parsed', input);
  await events.first('settled', ({ task, outcome }) => task.id === id && outcome === 'success');

  expect(seen).toHaveLength(1);
  const [first, second] = [await rowOf(db, bySql), await rowOf(db, byAnOlderVersion)];
  expect(first).toMatchObject({ exhausted: true, attempt_count: 1 });
  expect(first.last_error).toContain('payload.at');
  expect(second).toMatchObject({ exhausted: true, attempt_count: 1 });
  expect(second.last_error).toContain('payload.stackId');
});

test('an enqueue of what does not fit is refused with type, path and expectation', async ({ db }) => {
  const wrong = enqueue(db, 'parsed', { ...input, text: 1 as never });
  await expect(wrong).rejects.toBeInstanceOf(TaskqError);
  await expect(wrong).rejects.toThrow('parsed: payload.text: expected string, received number');
});
