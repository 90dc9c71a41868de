import type { Insertable, Kysely } from 'kysely';
import { beforeAll } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { build, start, taskq } from '../support/cli.ts';
import { registerPlainTypes } from '../support/registered.ts';
import { describe, expect, test } from '../support/test.ts';

beforeAll(build);

type Row = Insertable<DB['async_tasks']>;

/** Dead letters as workers leave them, oldest first; answers their ids. */
async function insertDead(db: Kysely<DB>, rows: readonly Partial<Row>[]): Promise<string[]> {
  const inserted = await db
    .insertInto('async_tasks')
    .values(
      rows.map((row) => ({
        task_type: 'greet',
        payload: JSON.stringify({ name: 'Ada' }),
        attempt_count: 20,
        last_error: 'no such customer',
        last_attempted_at: new Date(),
        ...row,
      })),
    )
    .returning('id')
    .execute();
  return inserted.map(({ id }) => id);
}

const insertWaiting = (db: Kysely<DB>) =>
  db
    .insertInto('async_tasks')
    .values({ task_type: 'greet', payload: '{}' })
    .returning('id')
    .executeTakeFirstOrThrow();

const remaining = async (db: Kysely<DB>) =>
  (await db.selectFrom('async_tasks').select('id').orderBy('id').execute()).map(({ id }) => id);

describe('taskq stats', () => {
  test('counts by type and queue, as a table and as JSON', async ({ database, db }) => {
    const env = { DATABASE_URL: database.url };
    expect(await taskq(['stats'], { env })).toEqual({ code: 0, stdout: 'no tasks\n', stderr: '' });
    await insertDead(db, [{}, { queue: 'low' }]);
    await insertWaiting(db);
    const { code, stdout } = await taskq(['stats'], { env });
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^type {3}queue {4}pending {2}running {2}due {2}scheduled {2}retrying {2}dead {2}completed {2}oldest due\ngreet {2}default +1 +0 +1 +0 +0 +1 +0 {2}\S+\ngreet {2}low +0 +0 +0 +0 +0 +1 +0 {2}-\n$/,
    );
    const json = await taskq(['stats', '--json'], { env });
    expect(JSON.parse(json.stdout)).toMatchObject([
      { type: 'greet', queue: 'default', pending: 1, running: 0, due: 1, scheduled: 0, dead: 1 },
      { type: 'greet', queue: 'low', pending: 0, dead: 1, oldestDueSeconds: 0 },
    ]);
  });

  test('--watch counts again', async ({ database, db }) => {
    const watching = start(['stats', '--watch', '--json'], { env: { DATABASE_URL: database.url } });
    await watching.until(/^\[\]$/m);
    await insertWaiting(db);
    await watching.until(/^\[\{"type":"greet".*\]$/m);
  });
});

describe('taskq dead', () => {
  test('list shows the newest first, page by page', async ({ database, db }) => {
    const env = { DATABASE_URL: database.url };
    expect(await taskq(['dead', 'list'], { env })).toMatchObject({ code: 0, stdout: 'no dead letters\n' });
    await registerPlainTypes(db, ['greet']);
    const ids = await insertDead(db, [{}, {}, {}]);
    const first = await taskq(['dead', 'list', '--limit', '2'], { env });
    expect(first.stdout.split('\n')[0]).toMatch(/^id +type +queue +attempts +last attempt +last error$/);
    expect(first.stdout).toMatch(new RegExp(`^${ids[2]} .* 20/20 .*no such customer\n${ids[1]} `, 'm'));
    expect(first.stderr).toBe(`more with --before ${ids[1]}\n`);
    const second = await taskq(['dead', 'list', '--before', ids[1] as string, '--json'], { env });
    expect(JSON.parse(second.stdout)).toMatchObject([{ id: ids[0], payload: { name: 'Ada' } }]);
  });

  test.each([
    ['list', '--limit', '0'],
    ['list', '--limit', '201'],
    ['list', '--limit', '1.5'],
    ['list', '--before', 'x'],
    ['show', '0'],
    ['replay', '1', '99999999999999999999'],
    ['drop', 'all', '--yes'],
  ])('%s %s %s is misuse', async (...args) => {
    const ended = await taskq(['dead', ...args], { env: { DATABASE_URL: 'postgres://127.0.0.1:1/x' } });
    expect(ended).toEqual({ code: 2, stdout: '', stderr: expect.stringMatching(/OPTION_INVALID/) });
  });

  test('show prints payload and history; JSON carries the payload digit for digit', async ({
    database,
    db,
  }) => {
    const env = { DATABASE_URL: database.url };
    await registerPlainTypes(db, ['greet']);
    const failure = { at: '2026-01-31T09:00:00Z', attempt: 1, outcome: 'failure', message: 'line\none' };
    const [id] = await insertDead(db, [
      { payload: '{"big": 123456789012345678901234567890}', errors: JSON.stringify([failure]) },
    ]);
    const text = await taskq(['dead', 'show', id as string], { env });
    expect(text).toMatchObject({ code: 0, stderr: '' });
    expect(text.stdout).toContain('payload:      {"big": 123456789012345678901234567890}\n');
    expect(text.stdout).toContain('  attempt 1, 2026-01-31T09:00:00Z, failure: line one\n');
    const json = await taskq(['dead', 'show', id as string, '--json'], { env });
    expect(json.stdout).toContain('123456789012345678901234567890');
    expect(JSON.parse(json.stdout)).toMatchObject({ id, lastError: 'no such customer', errors: [failure] });
  });

  test('of a type that no worker has registered nothing is shown that could be secret, and it is said why', async ({
    database,
    db,
  }) => {
    const env = { DATABASE_URL: database.url };
    const [id] = await insertDead(db, [{}]);
    const text = await taskq(['dead', 'show', id as string], { env });
    expect(text.stdout).toContain('payload:      "•••"\n');
    expect(text.stdout).toContain('last error:   no such customer\n');
    expect(text.stderr).toContain("no worker has registered revision 1 of 'greet'");
    const json = await taskq(['dead', 'list', '--json'], { env });
    expect(JSON.parse(json.stdout)).toMatchObject([{ payload: '•••', secretsKnown: false }]);
  });

  test('a dead letter without an error says why it has none', async ({ database, db }) => {
    const [id] = await insertDead(db, [{ last_error: null }]);
    const { stdout } = await taskq(['dead', 'show', id as string], { env: { DATABASE_URL: database.url } });
    expect(stdout).toMatch(/last error: +none: the worker of the last attempt died or lost its connection/);
  });

  test('what a row says cannot steer the terminal', async ({ database, db }) => {
    const [id] = await insertDead(db, [{ last_error: '\u001b[2J\u0007gone\nnext' }]);
    const env = { DATABASE_URL: database.url };
    for (const args of [['list'], ['show', id as string]]) {
      const { stdout } = await taskq(['dead', ...args], { env });
      expect(stdout).toContain('\\x1b[2J\\x07gone next');
    }
  });

  test('replay puts back what is dead, says what is not, and exits 1 then', async ({ database, db }) => {
    const env = { DATABASE_URL: database.url };
    const [first, second] = (await insertDead(db, [{}, {}])) as [string, string];
    const { id: waiting } = await insertWaiting(db);
    const ended = await taskq(['dead', 'replay', first, waiting, second], { env });
    expect(ended).toEqual({
      code: 1,
      stdout: `replayed ${first}\nreplayed ${second}\n`,
      stderr: `taskq: task ${waiting} is no dead letter: it waits, runs, or is gone\n`,
    });
    const [row] = await db.selectFrom('async_tasks').selectAll().where('id', '=', first).execute();
    expect(row).toMatchObject({ attempt_count: 0, exhausted: false });
    expect(await taskq(['dead', 'show', first], { env })).toMatchObject({ code: 1, stdout: '' });
  });

  test('replay says when a live task has the key of a dead letter', async ({ database, db }) => {
    const env = { DATABASE_URL: database.url };
    const [id] = (await insertDead(db, [{ unique_key: Buffer.alloc(32) }])) as [string];
    const waiting = await insertWaiting(db);
    await db
      .updateTable('async_tasks')
      .set({ unique_key: Buffer.alloc(32) })
      .where('id', '=', waiting.id)
      .execute();
    expect(await taskq(['dead', 'replay', id], { env })).toEqual({
      code: 1,
      stdout: '',
      stderr: `taskq: task ${id} stays a dead letter: a live task has its unique key; replay it when that one is done\n`,
    });
  });

  test('drop deletes only with --yes where nobody can be asked', async ({ database, db }) => {
    const env = { DATABASE_URL: database.url };
    const [first, second] = (await insertDead(db, [{}, {}])) as [string, string];
    const asked = await taskq(['dead', 'drop', first], { env });
    expect(asked).toEqual({ code: 2, stdout: '', stderr: expect.stringMatching(/add --yes/) });
    expect(await remaining(db)).toEqual([first, second]);
    const dropped = await taskq(['dead', 'drop', first, '--yes'], { env });
    expect(dropped).toEqual({ code: 0, stdout: `dropped ${first}\n`, stderr: '' });
    expect(await remaining(db)).toEqual([second]);
  });
});

describe('taskq prune', () => {
  test('deletes dead letters past the retention, and nothing else', async ({ database, db }) => {
    const env = { DATABASE_URL: database.url, TASKQ_RETENTION: '2d' };
    const aged = (days: number) => ({ last_attempted_at: new Date(Date.now() - days * 86_400_000) });
    const [, young] = await insertDead(db, [aged(3), aged(1)]);
    const { id: waiting } = await insertWaiting(db);
    const ended = await taskq(['prune'], { env });
    expect(ended).toEqual({
      code: 0,
      stdout: 'pruned 1 dead letters whose last attempt is older than 2d, and 0 records of finished tasks\n',
      stderr: 'pruned 1 so far\n',
    });
    expect(await remaining(db)).toEqual([young, waiting]);
    const json = await taskq(['prune', '--retention', '1h', '--json'], { env });
    expect(JSON.parse(json.stdout)).toEqual({ deleted: 1, completed: 0, retentionMs: 3_600_000 });
    expect(await remaining(db)).toEqual([waiting]);
  });
});

test('commands on a schema without tables say what to run', async ({ database }) => {
  for (const args of [
    ['stats'],
    ['task', 'show', '1'],
    ['dead', 'list'],
    ['prune'],
    ['enqueue', 'greet', '{"name":"x"}'],
  ]) {
    const ended = await taskq([...args, '--schema', 'elsewhere'], { env: { DATABASE_URL: database.url } });
    expect(ended).toEqual({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(/taskq migrate up.*SCHEMA_BEHIND/),
    });
  }
});
