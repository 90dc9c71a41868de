import type { Kysely } from 'kysely';
import { beforeAll } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { build, type Started, start, taskq } from '../support/cli.ts';
import { describe, expect, type TestDatabase, test } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

beforeAll(build);

type Line = Record<string, unknown>;

const lines = (worker: Started): Line[] =>
  worker
    .stdout()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));

async function startWorker(database: TestDatabase, ...options: string[]): Promise<Started> {
  const worker = start(['work', 'handlers.ts', ...options], { env: { DATABASE_URL: database.url } });
  await worker.until(/"event":"started"/);
  return worker;
}

async function enqueue(database: TestDatabase, type: string, payload = '{}'): Promise<string> {
  const { stdout } = await taskq(['enqueue', type, payload], { env: { DATABASE_URL: database.url } });
  return stdout.trim();
}

const rowOf = (db: Kysely<DB>, id: string) =>
  db.selectFrom('async_tasks').selectAll().where('id', '=', id).executeTakeFirst();

const leased = (db: Kysely<DB>, id: string, attempt = 1) =>
  waitFor(
    async () => {
      const row = await rowOf(db, id);
      return row?.lease_token != null && row.attempt_count === attempt;
    },
    { what: `attempt ${attempt} of task ${id}` },
  );

describe('taskq work', () => {
  test('runs tasks, logs JSON lines, and ends with exit code 0 at SIGTERM', async ({ database, db }) => {
    const worker = await startWorker(database, '--concurrency', '2');
    const id = await enqueue(database, 'greet', '{"name":"Ada"}');
    await worker.until(/"event":"settled"/);
    worker.child.kill('SIGTERM');
    expect(await worker.ended()).toMatchObject({ code: 0, stderr: '' });
    expect(await rowOf(db, id)).toBeUndefined();
    expect(lines(worker)).toContainEqual(
      expect.objectContaining({ level: 'info', event: 'started', slots: 2 }),
    );
    expect(lines(worker)).toContainEqual(
      expect.objectContaining({ event: 'settled', taskId: id, taskType: 'greet', outcome: 'success' }),
    );
    expect(lines(worker).at(-1)).toMatchObject({ event: 'stopped' });
  });

  test('SIGTERM releases the running task, and another process takes it at its next poll', async ({
    database,
    db,
  }) => {
    const first = await startWorker(database);
    const id = await enqueue(database, 'wait_for_signal');
    await leased(db, id);
    const second = await startWorker(database, '--poll-interval', '500ms');
    first.child.kill('SIGTERM');
    expect(await first.ended()).toMatchObject({ code: 0 });
    // The lease would have lasted ten minutes: only its release lets the second have it.
    await leased(db, id, 2);
    expect(lines(first)).toContainEqual(expect.objectContaining({ taskId: id, outcome: 'cancelled' }));
    second.child.kill('SIGTERM');
    expect(await second.ended()).toMatchObject({ code: 0 });
  });

  test('the process exits after the stop although a handler left a timer running', async ({ database }) => {
    const worker = await startWorker(database);
    await enqueue(database, 'hold_process');
    await worker.until(/"outcome":"success"/);
    worker.child.kill('SIGTERM');
    expect(await worker.ended()).toMatchObject({ code: 0 });
  });

  test('a second signal exits at once, with the code of that signal', async ({ database, db }) => {
    for (const [second, code] of [
      ['SIGINT', 130],
      ['SIGTERM', 143],
    ] as const) {
      const worker = await startWorker(database, '--grace', '1h');
      const id = await enqueue(database, 'ignore_signal');
      await leased(db, id);
      worker.child.kill('SIGTERM');
      await worker.until(/"event":"stopping"/);
      // The same signal right after itself is an echo: npm passes on what the terminal sent to both.
      const repeat = setInterval(() => worker.child.kill(second), 100);
      expect(await worker.ended()).toMatchObject({
        code,
        stderr: expect.stringContaining('exiting at once'),
      });
      clearInterval(repeat);
      await db.deleteFrom('async_tasks').execute();
    }
  });

  test('a Ctrl-C that arrives twice at once is one, and stops gracefully', async ({ database }) => {
    const worker = await startWorker(database);
    worker.child.kill('SIGINT');
    worker.child.kill('SIGINT');
    expect(await worker.ended()).toMatchObject({ code: 0, stderr: '' });
    expect(lines(worker).at(-1)).toMatchObject({ event: 'stopped' });
  });

  test('what nobody caught is logged, stops the worker gracefully and exits 1', async ({ database, db }) => {
    const worker = await startWorker(database);
    const id = await enqueue(database, 'throw_outside');
    expect(await worker.ended()).toMatchObject({ code: 1 });
    expect(lines(worker)).toContainEqual(
      expect.objectContaining({
        level: 'error',
        event: 'uncaught_exception',
        error: 'thrown outside of any handler',
        stack: expect.stringContaining('handlers.ts'),
      }),
    );
    expect(lines(worker).at(-1)).toMatchObject({ event: 'stopped' });
    expect(await rowOf(db, id)).toMatchObject({ attempt_count: 1, lease_token: null });
  });

  test('serves only the queues named', async ({ database, db }) => {
    const worker = await startWorker(database, '--queues', 'low,critical');
    const other = await enqueue(database, 'greet', '{"name":"Ada"}');
    await enqueue(database, 'give_up', '{"reason":"no such customer"}');
    await worker.until(/"outcome":"failure".*"dead":true/);
    expect(await rowOf(db, other)).toMatchObject({ attempt_count: 0 });
  });

  test('--roles leaves out what is not named', async ({ database, db }) => {
    const worker = await startWorker(database, '--roles', 'prune');
    expect(lines(worker)).toContainEqual(expect.objectContaining({ event: 'started', slots: 0 }));
    const id = await enqueue(database, 'greet', '{"name":"Ada"}');
    worker.child.kill('SIGTERM');
    expect(await worker.ended()).toMatchObject({ code: 0 });
    expect(await rowOf(db, id)).toMatchObject({ attempt_count: 0 });
  });

  test('loads handlers written in JavaScript, exported by name', async ({ database }) => {
    const worker = start(['work', 'handlers.mjs'], { env: { DATABASE_URL: database.url } });
    await worker.until(/"types":\["greet"\]/);
    worker.child.kill('SIGTERM');
    expect(await worker.ended()).toMatchObject({ code: 0 });
  });

  test('refuses to start when the schema is behind, and says what to run', async ({ database }) => {
    const args = ['work', 'handlers.ts', '--schema', 'elsewhere'];
    const ended = await taskq(args, { env: { DATABASE_URL: database.url } });
    expect(ended).toEqual({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(/run: taskq migrate up --schema 'elsewhere' \[SCHEMA_BEHIND\]\n$/),
    });
  });

  test('a database that is down is one clear line and exit code 1', async () => {
    const ended = await taskq(['work', 'handlers.ts'], {
      env: { DATABASE_URL: 'postgres://ada:secret@127.0.0.1:1/x' },
    });
    expect(ended).toEqual({
      code: 1,
      stdout: '',
      stderr: 'taskq: database 127.0.0.1:1/x: connect ECONNREFUSED 127.0.0.1:1 [ECONNREFUSED]\n',
    });
  });

  test.each([
    [[], /no handlers: name the module, as in `taskq work src\/handlers\.ts`/],
    [['nowhere.ts'], /there is no file .*nowhere\.ts/],
    [['no-handlers.ts'], /must export by default, or as `handlers`, what defineHandlers.*object with greet/],
    [['throws.ts'], /could not be loaded: Error: the module threw while it was loaded/],
    [['handlers.ts', '--roles', 'chef'], /--roles: expected one or more of processor, cron, prune/],
    [['handlers.ts', '--queues', 'a,,b'], /--queues: expected names of queues/],
    [['handlers.ts', '--grace', '2d'], /--grace: expected a length of time up to 1d/],
  ])('work %j is misuse', async (args, message) => {
    const ended = await taskq(['work', ...args], { env: { DATABASE_URL: 'postgres://127.0.0.1:1/x' } });
    expect(ended).toEqual({ code: 2, stdout: '', stderr: expect.stringMatching(message) });
  });
});
