import type { Insertable, Kysely } from 'kysely';
import { beforeAll } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { build, taskq } from '../support/cli.ts';
import { registerPlainTypes } from '../support/registered.ts';
import { expect, test } from '../support/test.ts';

beforeAll(build);

const at = (text: string) => new Date(text);

async function insertTask(db: Kysely<DB>, row: Partial<Insertable<DB['async_tasks']>>): Promise<string> {
  const { id } = await db
    .insertInto('async_tasks')
    .values({
      task_type: 'greet',
      payload: JSON.stringify({ name: 'Ada' }),
      created_at: at('2026-01-31T09:00:00Z'),
      run_at: at('2026-01-31T09:00:00Z'),
      ...row,
    })
    .returning('id')
    .executeTakeFirstOrThrow();
  return id;
}

const insertRecord = (db: Kysely<DB>, row: Partial<Insertable<DB['async_completed_tasks']>>) =>
  db
    .insertInto('async_completed_tasks')
    .values({
      id: '7',
      queue: 'low',
      task_type: 'greet',
      payload: '{"big": 123456789012345678901234567890}',
      payload_revision: 1,
      headers: '{"trace": "00-1"}',
      attempt_count: 2,
      errors: '[{"at": "2026-01-31T09:00:01Z", "attempt": 1, "outcome": "failure", "message": "line\\none"}]',
      created_at: at('2026-01-31T09:00:00Z'),
      started_at: at('2026-01-31T09:00:16Z'),
      completed_at: at('2026-01-31T09:00:17Z'),
      keep_until: at('2026-02-01T09:00:17Z'),
      result: '{"greeted": 1234567890123456789012}',
      ...row,
    })
    .execute();

test('task show prints a finished task that was kept, and JSON digit for digit', async ({ database, db }) => {
  await registerPlainTypes(db, ['greet']);
  await insertRecord(db, {});
  const env = { DATABASE_URL: database.url };

  expect(await taskq(['task', 'show', '7'], { env })).toEqual({
    code: 0,
    stdout: [
      'id:           7',
      'type:         greet',
      'queue:        low',
      'state:        completed',
      'attempts:     2',
      'enqueued:     2026-01-31T09:00:00.000Z',
      'started:      2026-01-31T09:00:16.000Z',
      'completed:    2026-01-31T09:00:17.000Z',
      'kept until:   2026-02-01T09:00:17.000Z',
      'payload:      {"big": 123456789012345678901234567890}',
      'headers:      {"trace":"00-1"}',
      'result:       {"greeted": 1234567890123456789012}',
      'errors:',
      '  attempt 1, 2026-01-31T09:00:01Z, failure: line one',
      '',
    ].join('\n'),
    stderr: '',
  });
  const { stdout } = await taskq(['task', 'show', '7', '--json'], { env });
  expect(stdout).toContain('"payload":{"big": 123456789012345678901234567890}');
  expect(stdout).toContain('"result":{"greeted": 1234567890123456789012}');
  expect(JSON.parse(stdout)).toMatchObject({ id: '7', state: 'completed', attemptCount: 2 });
});

test('task show prints a task that is not done with its state and its times', async ({ database, db }) => {
  await registerPlainTypes(db, ['greet']);
  const env = { DATABASE_URL: database.url };
  const running = await insertTask(db, {
    attempt_count: 1,
    last_attempted_at: at('2026-01-31T09:00:05Z'),
    lease_token: '00000000-0000-4000-8000-000000000001',
    lease_expires_at: at('2126-01-31T09:00:05Z'),
  });
  const dead = await insertTask(db, { attempt_count: 20 });

  expect((await taskq(['task', 'show', running], { env })).stdout).toBe(
    [
      `id:           ${running}`,
      'type:         greet',
      'queue:        default',
      'state:        running',
      'attempts:     1 of 20',
      'enqueued:     2026-01-31T09:00:00.000Z',
      'last attempt: 2026-01-31T09:00:05.000Z',
      'due:          2026-01-31T09:00:00.000Z',
      'leased until: 2126-01-31T09:00:05.000Z',
      'payload:      {"name": "Ada"}',
      '',
    ].join('\n'),
  );
  expect((await taskq(['task', 'show', dead], { env })).stdout).toMatch(
    /^state: +dead$[\s\S]*^last error: +none: the worker of the last attempt died/m,
  );
  const json = await taskq(['task', 'show', dead, '--json'], { env });
  expect(JSON.parse(json.stdout)).toMatchObject({
    id: dead,
    state: 'dead',
    payload: { name: 'Ada' },
    cursor: null,
  });
});

test('task show of a task that is nowhere says what may have become of it, and exits 1', async ({
  database,
}) => {
  expect(await taskq(['task', 'show', '7'], { env: { DATABASE_URL: database.url } })).toEqual({
    code: 1,
    stdout: '',
    stderr:
      'taskq: there is no task 7: it is done and was not kept (no retention, or past it), it was dropped or pruned as a dead letter, or it never was\n',
  });
});

test('task show of what is no id, and task alone, are misuse', async () => {
  const env = { DATABASE_URL: 'postgres://127.0.0.1:1/x' };
  expect(await taskq(['task', 'show', 'x'], { env })).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/OPTION_INVALID/),
  });
  expect(await taskq(['task'], { env })).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/say what to do with the task/),
  });
});
