import { sql } from 'kysely';
import { beforeAll } from 'vitest';
import { build, start, taskq } from '../support/cli.ts';
import { auditRows, insertDead, waitingIds } from '../support/dead.ts';
import { holdTransaction } from '../support/held-transaction.ts';
import { waitUntilBlocked } from '../support/locks.ts';
import { allRows, insertRow } from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/schema.ts';
import { enqueue } from '../support/tasks.ts';
import { describe, expect, test } from '../support/test.ts';

beforeAll(build);

describe('taskq dead replay without ids', () => {
  test('replays what the filter matches, says how many, and who it was', async ({ database, db }) => {
    const env = { DATABASE_URL: database.url, TASKQ_ACTOR: 'ci:deploy 7' };
    const timedOut = await insertDead(db, 3, { error: 'the call timed out' });
    await insertDead(db, 2, { queue: 'low', error: 'timed out' });
    await insertDead(db, 2);
    const filter = [
      '--queue',
      'default',
      '--error',
      'Timed Out',
      '--older-than',
      '10m',
      '--newer-than',
      '1d',
    ];

    const ended = await taskq(['dead', 'replay', ...filter], { env });

    expect(ended).toEqual({ code: 0, stdout: 'replayed 3 of 3 dead letters\n', stderr: '' });
    expect(await waitingIds(db)).toEqual(timedOut);
    expect(await auditRows(db)).toMatchObject([
      {
        actor: 'ci:deploy 7',
        action: 'dead.replay',
        detail: {
          filter: { queue: 'default', error: 'Timed Out', olderThan: '10m', newerThan: '1d' },
          ids: timedOut,
        },
      },
    ]);
  });

  test('--dry-run shows what it would be by type and error, and does nothing', async ({ database, db }) => {
    const env = { DATABASE_URL: database.url };
    await insertDead(db, 3, { error: '\u001b[2Jrefused\nat once' });
    await insertDead(db, 1, { type: 'brief', error: null });
    await insertDead(db, 1, { key: 'k' });
    await enqueue(db, 'plain', {}, { unique: { key: 'k', while: 'live' } });
    const before = await allRows(db);

    const text = await taskq(['dead', 'replay', '--all', '--dry-run'], { env });
    expect(text).toMatchObject({ code: 0, stderr: '' });
    expect(text.stdout).toMatch(
      /^4 dead letters would be replayed; nothing was done\n1 would not: another task has their unique key\ncount +type +last error\n +3 +plain +\\x1b\[2Jrefused\n/,
    );
    const json = await taskq(['dead', 'replay', '--type', 'brief', '--dry-run', '--json'], { env });
    expect(JSON.parse(json.stdout)).toEqual({
      looked: 5,
      matched: 1,
      keyTaken: 0,
      groups: [{ type: 'brief', count: 1, keyTaken: 0 }],
      others: 0,
    });
    expect(await allRows(db)).toEqual(before);
    expect(await auditRows(db)).toEqual([]);
  });

  test('what is skipped is told, and is no failure; nothing that matches is none either', async ({
    database,
    db,
  }) => {
    const env = { DATABASE_URL: database.url };
    await insertDead(db, 2, { key: 'k' });
    expect(await taskq(['dead', 'replay', '--all'], { env })).toEqual({
      code: 0,
      stdout:
        'replayed 1 of 2 dead letters\n1 stay dead letters: another task has their unique key; replay them when that is done\n',
      stderr: '',
    });
    const json = await taskq(['dead', 'replay', '--all', '--json'], { env });
    expect(JSON.parse(json.stdout)).toEqual({ looked: 1, matched: 1, replayed: 0, keyTaken: 1, changed: 0 });
    const none = { code: 0, stdout: 'no dead letter matches\n', stderr: '' };
    expect(await taskq(['dead', 'replay', '--error', '%'], { env })).toEqual(none);
    expect(await taskq(['dead', 'replay', '--error', '%', '--dry-run'], { env })).toEqual(none);
    expect(await taskq(['dead', 'list', '--error', '%'], { env })).toEqual(none);
    expect((await taskq(['dead', 'list', '--error', 'SUCH', '--json'], { env })).stdout).toMatch(
      /^\[\{"id":/,
    );
  });

  test('Ctrl-C ends it after the batch under way, tells what was done, and exits 1', async ({
    database,
    db,
  }) => {
    await insertDead(db, 4_000);
    // The first batch waits at its row of the audit until the signal has been heard.
    await using held = await holdTransaction(db);
    await sql`lock table ${sql.table(`${TEST_SCHEMA}.async_audit`)} in share mode`.execute(held.tx);
    const running = start(['dead', 'replay', '--all', '--json'], { env: { DATABASE_URL: database.url } });
    await waitUntilBlocked(database.url);
    running.child.kill('SIGINT');
    await running.until(/stopping after the batch/);
    await held.release();

    const { code, stdout, stderr } = await running.ended();
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ matched: 200, replayed: 200 });
    expect(stderr).toBe(
      'taskq: stopping after the batch under way\ntaskq: interrupted; run it again for the rest\n',
    );
    expect((await waitingIds(db)).length).toBe(200);
  });
});

describe('taskq dead drop without ids', () => {
  test('asks for --yes where nobody can be asked, and then deletes what matches', async ({
    database,
    db,
  }) => {
    const env = { DATABASE_URL: database.url };
    await insertDead(db, 3, { type: 'brief' });
    const [other] = await insertDead(db, 1);
    const asked = await taskq(['dead', 'drop', '--type', 'brief'], { env });
    expect(asked).toEqual({
      code: 2,
      stdout: '',
      stderr: expect.stringMatching(/add --yes.*OPTION_INVALID/),
    });
    const preview = await taskq(['dead', 'drop', '--type', 'brief', '--dry-run'], { env });
    expect(preview.stdout).toMatch(/^3 dead letters would be dropped; nothing was done\n/);
    expect((await allRows(db)).length).toBe(4);

    const dropped = await taskq(['dead', 'drop', '--type', 'brief', '--yes'], { env });
    expect(dropped).toEqual({ code: 0, stdout: 'dropped 3 of 3 dead letters\n', stderr: '' });
    expect((await allRows(db)).map(({ id }) => String(id))).toEqual([other]);
    const json = await taskq(['dead', 'drop', '--all', '--yes', '--json'], { env });
    expect(JSON.parse(json.stdout)).toEqual({ looked: 1, matched: 1, dropped: 1, changed: 0 });
  });
});

test('with ids and --json there is a line for each', async ({ database, db }) => {
  const env = { DATABASE_URL: database.url };
  const [id] = (await insertDead(db, 1)) as unknown as [string];
  const waiting = await insertRow(db);
  const ended = await taskq(['dead', 'replay', id, waiting, '--json'], { env });
  expect(ended.code).toBe(1);
  expect(ended.stdout).toBe(`{"id":"${id}","result":"replayed"}\n{"id":"${waiting}","result":"refused"}\n`);
  expect(await auditRows(db)).toMatchObject([{ actor: expect.stringMatching(/^cli:./), subject: id }]);
});

test.each([
  [['replay'], /say which dead letters/],
  [['replay', '--dry-run'], /say which dead letters/],
  [['drop', '--yes'], /say which dead letters/],
  [['replay', '5', '--all'], /not both/],
  [['replay', '5', '--type', 'plain'], /not both/],
  [['replay', '5', '--dry-run'], /not both/],
  [['replay', '--all', '--type', 'plain'], /--all takes no filter/],
  [['replay', '--type', 'a', '--type', 'b'], /--type: give it once/],
])('taskq dead %j is misuse', async (args, message) => {
  const ended = await taskq(['dead', ...args], { env: { DATABASE_URL: 'postgres://127.0.0.1:1/x' } });
  expect(ended).toEqual({ code: 2, stdout: '', stderr: expect.stringMatching(message) });
});

test.each([
  ['--older-than', 'yesterday', /older than: expected.*DURATION_INVALID/],
  ['--newer-than', '5', /newer than: expected.*DURATION_INVALID/],
  ['--error', '', /error: expected.*OPTION_INVALID/],
  ['--queue', ' ', /queue: expected.*OPTION_INVALID/],
  ['--actor', 'a\u0001b', /--actor: expected.*CONFIG_INVALID/],
])('taskq dead %s %j is misuse', async (flag, value, message) => {
  for (const command of [['list'], ['replay', '--type', 'a'], ['drop', '--type', 'a', '--yes']]) {
    const ended = await taskq(['dead', ...command, flag, value], {
      env: { DATABASE_URL: 'postgres://127.0.0.1:1/x' },
    });
    expect(ended).toEqual({ code: 2, stdout: '', stderr: expect.stringMatching(message) });
  }
});
