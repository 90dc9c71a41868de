import { beforeAll } from 'vitest';
import { build, taskq } from '../support/cli.ts';
import { describe, expect, test } from '../support/test.ts';

beforeAll(build);

const REFUSED: [string[], number, RegExp][] = [
  [['greet', 'oops'], 2, /the payload is not JSON: .*\[OPTION_INVALID\]/],
  [['greet', ''], 2, /the payload is not JSON/],
  [['greet', '{"name":"x","times":9007199254740993}'], 1, /9007199254740993 is more than a number can hold/],
  [['grete', '{}'], 1, /no task type 'grete' is defined.*\[UNKNOWN_TASK_TYPE\]/],
  [['greet', '{"name":"x"}', '--delay', '5'], 2, /delay: expected milliseconds or text such as '90s'/],
  [['greet', '{"name":"x"}', '--run-at', 'tomorrow'], 2, /runAt: expected ISO text with an offset/],
  [['greet', '{"name":"x"}', '--delay', '5s', '--run-at', '2090-01-01T00:00:00Z'], 2, /not both/],
  [['greet', '{"name":"x"}', '--max-attempts', 'some'], 2, /maxAttempts must be a whole number/],
  [['greet', '{"name":"x"}', '--timeout', '2d'], 2, /timeout: 2d is above the ceiling of greet, /],
  [['greet', '{"name":"x"}', '--retention', 'long'], 2, /retention: expected milliseconds or text such as/],
  [['greet', '{"name":"x"}', '--max-payload-bytes', '5'], 1, /takes 12 bytes, the limit is 5.*TOO_LARGE/],
  [['greet', '{"name":"x"}', '--tasks', 'handlers.ts'], 2, /must export `tasks`/],
  [['greet', '{"name":"x"}', '--out', 'nowhere'], 2, /no tasks\.ts in .*nowhere/],
  [['greet', '{"name":"x"}', '--definitions', 'tasks/*.ts', '--out', 'x'], 1, /run `taskq codegen`/],
];

describe('taskq enqueue', () => {
  test('writes the task as the code would have and prints its id', async ({ database, db }) => {
    const env = { DATABASE_URL: database.url };
    const args = [
      ...['enqueue', 'greet', '{"name":"Ada"}', '--queue', 'critical', '--max-attempts', '3'],
      ...['--timeout', '5s', '--retention', '24h'],
    ];
    const { code, stdout, stderr } = await taskq(args, { env });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const row = await db.selectFrom('async_tasks').selectAll().executeTakeFirstOrThrow();
    expect(stdout).toBe(`${row.id}\n`);
    expect(row).toMatchObject({
      task_type: 'greet',
      payload: { name: 'Ada' },
      payload_revision: 1,
      queue: 'critical',
      max_attempts: 3,
      ceiling_ms: '5000',
      retention_ms: '86400000',
    });
  });

  test('a payload that does not fit names type, path and expectation, and nothing is written', async ({
    database,
    db,
  }) => {
    const args = ['enqueue', 'greet', '{"name":5,"times":0}'];
    const { code, stdout, stderr } = await taskq(args, { env: { DATABASE_URL: database.url } });
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toBe(
      'taskq: greet: payload.name: expected string, received number; ' +
        'payload.times: Too small: expected number to be >=1 [PAYLOAD_INVALID]\n',
    );
    expect(await db.selectFrom('async_tasks').selectAll().execute()).toEqual([]);
  });

  test('reads a payload of - from stdin', async ({ database, db }) => {
    const stdin = '{"name":"Grace",\n"times":2}\n';
    const { code } = await taskq(['enqueue', 'greet', '-'], { env: { DATABASE_URL: database.url }, stdin });
    expect(code).toBe(0);
    const row = await db.selectFrom('async_tasks').selectAll().executeTakeFirstOrThrow();
    expect(row.payload).toEqual({ name: 'Grace', times: 2 });
  });

  test('takes the definitions with the revisions of the manifest instead of the generated module', async ({
    database,
    db,
  }) => {
    const args = ['enqueue', 'give_up', '{"reason":"x"}', '--definitions', 'tasks/*.ts'];
    expect(await taskq(args, { env: { DATABASE_URL: database.url } })).toMatchObject({ code: 0, stderr: '' });
    const row = await db.selectFrom('async_tasks').selectAll().executeTakeFirstOrThrow();
    expect(row).toMatchObject({ task_type: 'give_up', queue: 'low', payload_revision: 1 });
  });

  test('--delay and --run-at put the task off', async ({ database, db }) => {
    const env = { DATABASE_URL: database.url };
    await taskq(['enqueue', 'greet', '{"name":"a"}', '--delay', '1h'], { env });
    await taskq(['enqueue', 'greet', '{"name":"b"}', '--run-at', '2090-01-31T09:00:00+01:00'], { env });
    const rows = await db.selectFrom('async_tasks').select(['run_at', 'created_at']).orderBy('id').execute();
    const [delayed] = rows.map((row) => row.run_at.getTime() - row.created_at.getTime());
    // A delay counts from the insert, which comes a little after its transaction has begun; pg rounds to milliseconds.
    expect(delayed).toBeGreaterThanOrEqual(3_600_000 - 1);
    expect(delayed).toBeLessThan(3_660_000);
    expect(rows[1]?.run_at.toISOString()).toBe('2090-01-31T08:00:00.000Z');
  });

  test('refuses what is wrong, says why, and writes nothing', async ({ database, db }) => {
    for (const [args, exitCode, message] of REFUSED) {
      const ended = await taskq(['enqueue', ...args], { env: { DATABASE_URL: database.url } });
      const expected = { code: exitCode, stdout: '', stderr: expect.stringMatching(message) };
      expect(ended, args.join(' ')).toEqual(expected);
    }
    expect(await db.selectFrom('async_tasks').selectAll().execute()).toEqual([]);
  });
});
