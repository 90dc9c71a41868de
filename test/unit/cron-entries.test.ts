import { z } from 'zod';
import { createApp, createCron, defineTask } from '../../src/index.ts';
import { checkCronPayloads, isCronEntries } from '../../src/scheduler/entries.ts';
import { handlersFor, testTasks } from '../support/tasks.ts';
import { describe, expect, test } from '../support/test.ts';

const uniqueOf = (onConflict: 'skip' | 'error') => ({
  definition: defineTask({
    type: 'only_one',
    payload: z.object({}),
    ceiling: '1m',
    unique: { key: 'one', while: 'live', onConflict },
  }),
  revision: 1,
});
const tasks = {
  ...testTasks,
  only_one: uniqueOf('skip'),
  throws: { ...uniqueOf('error'), definition: { ...uniqueOf('error').definition, type: 'throws' as const } },
};

// As a JavaScript caller would: the types refuse most of these before.
const cronOf = (...entries: unknown[]) => createCron(tasks, entries as never);
const plain = { task: 'plain', schedule: '@every 5m' };

describe('an entry', () => {
  test('has the name of its task, the payload {}, and the queue of its type, unless it says otherwise', () => {
    const [first, second] = cronOf(plain, {
      ...plain,
      name: 'other',
      payload: { n: 1 },
      queue: 'low',
      missed: { all: 3 },
    }).entries;
    expect(first).toMatchObject({
      name: 'plain',
      task: 'plain',
      payload: {},
      queue: 'default',
      missed: 'skip',
    });
    expect(second).toMatchObject({ name: 'other', payload: { n: 1 }, queue: 'low', missed: { all: 3 } });
    expect(first?.schedule.text).toBe('@every 5m');
    expect(cronOf({ ...plain, task: 'fragile' }).entries[0]?.queue).toBe('fragile');
  });

  test.each([
    [{ task: 'plain' }, "cron entry 'plain': schedule"],
    [{ ...plain, schedule: '61 * * * *' }, "cron entry 'plain': schedule"],
    [{ ...plain, schedule: '0 3 * * *', timeZone: 'Europe/Nowhere' }, "cron entry 'plain': schedule"],
    [{ ...plain, task: 'unknown' }, "cron entry 'unknown': task: no task type 'unknown'"],
    [{ ...plain, task: 'toString' }, "cron entry 'toString': task: no task type"],
    [{ schedule: '@every 5m' }, 'cron entry 1: task: expected a non-empty string'],
    [{ ...plain, name: '' }, "cron entry '': name: expected a non-empty string"],
    [{ ...plain, name: 'a\nb' }, "': name: control characters"],
    [{ ...plain, every: '5m' }, "cron entry 'plain': there is no field 'every'"],
    [{ ...plain, runAt: new Date() }, "cron entry 'plain': there is no field 'runAt'"],
    [{ ...plain, delay: '5m' }, "cron entry 'plain': there is no field 'delay'"],
    [{ ...plain, queue: '' }, "cron entry 'plain': enqueue option queue"],
    [{ ...plain, maxAttempts: 0 }, "cron entry 'plain': enqueue options: maxAttempts"],
    [{ ...plain, timeout: '1h' }, "cron entry 'plain': enqueue option timeout"],
    [{ ...plain, retention: 'long' }, "cron entry 'plain': enqueue option retention"],
    [{ ...plain, headers: { n: 1 } }, "cron entry 'plain': enqueue option headers"],
    [{ ...plain, unique: { key: 'k' } }, "cron entry 'plain': enqueue option unique: while"],
    [
      { ...plain, overlap: 'queue' },
      "cron entry 'plain': overlap: expected 'allow' or 'skip', received 'queue'",
    ],
    [{ ...plain, missed: 'all' }, "cron entry 'plain': missed: expected"],
    [{ ...plain, missed: { all: 0 } }, "cron entry 'plain': missed: expected"],
    [{ ...plain, missed: { all: 1_001 } }, "cron entry 'plain': missed: expected"],
    [{ ...plain, missed: { all: 2, most: 3 } }, "cron entry 'plain': missed: expected"],
    [{ ...plain, missed: { all: 1.5 } }, "cron entry 'plain': missed: expected"],
    ['plain', 'cron entry 1: expected { schedule, task'],
  ])('%j is refused by name and field', (entry, message) => {
    expect(() => cronOf(entry)).toThrow(
      expect.objectContaining({ code: 'DEFINITION_INVALID', message: expect.stringContaining(message) }),
    );
  });

  test('shares its name with no other, since they would take each other’s ticks', () => {
    expect(() => cronOf(plain, { ...plain, schedule: '@every 1h' })).toThrow(
      /'plain': two entries have this name/,
    );
    expect(cronOf(plain, { ...plain, name: 'hourly', schedule: '@every 1h' }).entries).toHaveLength(2);
  });

  test("with overlap: 'skip' has a unique key of its own, and so no other", () => {
    const { entries } = cronOf({ ...plain, overlap: 'skip' });
    expect(entries[0]?.options.unique).toEqual({ key: 'taskq cron entry plain', while: 'live' });
    const unique = { key: 'k', while: 'live' };
    expect(() => cronOf({ ...plain, overlap: 'skip', unique })).toThrow(
      /overlap: 'skip' has a unique key of its own/,
    );
    const ofType = { task: 'only_one', schedule: '@every 5m', overlap: 'skip' };
    expect(() => cronOf(ofType)).toThrow(/the type 'only_one' has a unique rule; give `unique: false`/);
    expect(cronOf({ ...ofType, unique: false }).entries[0]?.options.unique).toMatchObject({ while: 'live' });
  });

  test('cannot be unique by an error, of its own or of its type', () => {
    const unique = { key: 'k', while: 'live', onConflict: 'error' };
    for (const entry of [
      { ...plain, unique },
      { task: 'throws', schedule: '@every 5m' },
    ]) {
      expect(() => cronOf(entry)).toThrow(/unique: a tick has nobody to throw at/);
    }
    expect(cronOf({ task: 'throws', schedule: '@every 5m', unique: false }).entries).toHaveLength(1);
  });
});

test('a list that is none is refused, and an empty one is a list', () => {
  expect(() => createCron(testTasks, {} as never)).toThrow(/cron: expected a list of entries/);
  expect(isCronEntries(createCron(testTasks, []))).toBe(true);
  expect(isCronEntries([])).toBe(false);
});

test('an app takes a list, and nothing else for one; cron alone without a list would do nothing', () => {
  const options = { database: 'postgres://127.0.0.1:1/none', handlers: handlersFor() };
  expect(() => createApp({ ...options, cron: [plain] as never })).toThrow(
    /cron: expected what defineCron returned/,
  );
  expect(() => createApp({ ...options, roles: ['cron'] })).toThrow(/the one role is 'cron'/);
  expect(() => createApp({ ...options, cron: cronOf(plain), roles: ['cron'] })).not.toThrow();
  expect(() => createApp({ ...options, roles: ['processor', 'cron'] })).not.toThrow();
});

test('payloads are checked as the enqueue will, asynchronous schemas too, naming the entry', async () => {
  const slow = {
    definition: defineTask({
      type: 'slow',
      payload: z.object({ id: z.string().refine(async (id) => id !== 'unknown', 'no such account') }),
      ceiling: '1m',
    }),
    revision: 1,
  };
  const ofPayload = (id: string) =>
    createCron({ slow }, [{ name: 'the slow one', task: 'slow', schedule: '@every 5m', payload: { id } }]);

  await expect(checkCronPayloads(ofPayload('known'))).resolves.toBeUndefined();
  await expect(checkCronPayloads(ofPayload('unknown'))).rejects.toMatchObject({
    code: 'PAYLOAD_INVALID',
    message: "cron entry 'the slow one': slow: payload.id: no such account",
  });
  await expect(checkCronPayloads(cronOf({ task: 'sliced', schedule: '@every 5m' }))).rejects.toMatchObject({
    code: 'PAYLOAD_INVALID',
    message: expect.stringContaining("cron entry 'sliced': sliced: payload.pages"),
  });
  const small = createCron(testTasks, [{ task: 'plain', schedule: '@every 5m' }], { maxPayloadBytes: 1 });
  await expect(checkCronPayloads(small)).rejects.toMatchObject({ code: 'PAYLOAD_TOO_LARGE' });
});
