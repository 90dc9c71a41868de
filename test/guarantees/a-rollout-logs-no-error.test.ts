import { sql } from 'kysely';
import { expect } from 'vitest';
import type { HandlersFor, Logger } from '../../src/index.ts';
import { type StartReplica, type TestReplica, test } from '../support/replica.ts';
import { enqueueMany, type TestTasks } from '../support/tasks.ts';
import { TEST_SCHEMA } from '../support/test.ts';

const TASKS = 400;
const ROLLOUTS = 4;

/** Keeps each line with its level. */
function recordingLogger(): { lines: (readonly [level: string, line: object])[]; logger: Logger } {
  const lines: (readonly [string, object])[] = [];
  const at = (level: string) => (fields: object, message: string) =>
    void lines.push([level, { ...fields, message }]);
  return { lines, logger: { debug() {}, info: at('info'), warn: at('warn'), error: at('error') } };
}

/** Works for a while, unless it is told to stop. */
const plain: HandlersFor<TestTasks>['plain'] = (_payload, { signal }) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 20);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });

test('replicas that are replaced one by one under load log no error and no warning, and every task is done', async ({
  db,
  startReplica,
}) => {
  const { lines, logger } = recordingLogger();
  const start: StartReplica = (options) =>
    startReplica({ slots: 8, logger, handlers: { plain }, pollInterval: '1s', ...options });
  let [old, other]: TestReplica[] = [await start(), await start()];
  await enqueueMany(
    db,
    'plain',
    Array.from({ length: TASKS }, () => ({})),
  );
  const interrupted: TestReplica[] = [];
  for (let rollout = 0; rollout < ROLLOUTS; rollout += 1) {
    // The new one first, as a deploy does; the old one is stopped in the middle of its work.
    const next = await start();
    await old?.events.first('settled');
    await old?.app.stop();
    interrupted.push(old as TestReplica);
    [old, other] = [other, next];
  }
  const left = async () => {
    const table = sql.table(`${TEST_SCHEMA}.async_tasks`);
    const { rows } = await sql<{ count: string }>`select count(*)::text as count from ${table}`.execute(db);
    return Number(rows[0]?.count);
  };
  await expect.poll(left, { timeout: 60_000 }).toBe(0);

  expect(
    interrupted.flatMap(({ events }) => events.of('settled', ({ outcome }) => outcome === 'cancelled')),
  ).not.toEqual([]);
  // A machine under load may block the event loop, which is no part of a rollout.
  const loud = lines.filter(
    ([level, line]) => level !== 'info' && !('delayMs' in line) && !('offsetMs' in line),
  );
  expect(loud).toEqual([]);
});
