import { beforeAll } from 'vitest';
import { build, taskq } from '../support/cli.ts';
import { auditRows, insertDead } from '../support/dead.ts';
import { insertRow } from '../support/rows.ts';
import { describe, expect, test } from '../support/test.ts';

beforeAll(build);

describe('taskq queue', () => {
  test('pause, list and resume tell what was done, and a second time that nothing was', async ({
    database,
    db,
  }) => {
    const env = { DATABASE_URL: database.url };
    expect(await taskq(['queue', 'list'], { env })).toEqual({
      code: 0,
      stdout: 'no queues: there is no task, and no queue was paused or given a weight\n',
      stderr: '',
    });
    await insertRow(db, { queue: 'low' });
    await insertDead(db, 1);
    expect(await taskq(['queue', 'pause', 'low'], { env })).toEqual({
      code: 0,
      stdout: 'paused low\n',
      stderr: '',
    });
    const again = await taskq(['queue', 'pause', 'low'], { env });
    expect(again).toMatchObject({ code: 0, stderr: '' });
    expect(again.stdout).toMatch(/^low is paused already, since 20\S+Z\n$/);

    const { stdout } = await taskq(['queue', 'list'], { env });
    expect(stdout).toMatch(
      /^queue +weight +paused since +pending +due +running +dead +oldest due\ndefault +- +- +0 +0 +0 +1 +-\nlow +- +20\S+Z +1 +1 +0 +0 +\S.*\n$/,
    );
    const json = await taskq(['queue', 'list', '--json'], { env });
    expect(JSON.parse(json.stdout)).toMatchObject([
      { queue: 'default', weight: null, pausedAt: null, pending: 0, due: 0, running: 0, dead: 1 },
      { queue: 'low', weight: null, pausedAt: expect.stringMatching(/Z$/), pending: 1, due: 1, dead: 0 },
    ]);
    const stats = await taskq(['stats'], { env });
    expect(stats.stdout).toMatch(/\npaused: low \(since 20\S+Z\)\n$/);
    expect(JSON.parse((await taskq(['stats', '--json'], { env })).stdout).length).toBe(2);

    const resumed = await taskq(['queue', 'resume', 'low'], { env });
    expect(resumed.code).toBe(0);
    expect(resumed.stdout).toMatch(/^resumed low, paused since 20\S+Z\n$/);
    expect(await taskq(['queue', 'resume', 'low'], { env })).toEqual({
      code: 0,
      stdout: 'low is not paused\n',
      stderr: '',
    });
    expect((await taskq(['stats'], { env })).stdout).not.toContain('paused');
  });

  test('pausing a queue that has no task is done, with a question beside it', async ({ database }) => {
    expect(await taskq(['queue', 'pause', 'lwo'], { env: { DATABASE_URL: database.url } })).toEqual({
      code: 0,
      stdout: 'paused lwo\n',
      stderr: 'taskq: queue lwo has no task that waits or runs: is that its name?\n',
    });
  });

  test('weight sets, repeats and gives back', async ({ database, db }) => {
    const env = { DATABASE_URL: database.url };
    for (const [given, said] of [
      ['6', 'weight of high: 6, was default\n'],
      ['6', 'weight of high is 6 already\n'],
      ['default', 'weight of high: default, was 6\n'],
      ['default', 'weight of high is default already\n'],
    ] as const)
      expect(await taskq(['queue', 'weight', 'high', given], { env })).toEqual({
        code: 0,
        stdout: said,
        stderr: '',
      });
    expect((await auditRows(db)).map(({ detail }) => detail)).toEqual([
      { old: null, new: 6 },
      { old: 6, new: null },
    ]);
    for (const wrong of ['0', '1001', '1.5', '0x10', 'much']) {
      const ended = await taskq(['queue', 'weight', 'high', wrong], { env });
      expect(ended).toEqual({ code: 2, stdout: '', stderr: expect.stringMatching(/from 1 to 1000/) });
    }
    expect(await taskq(['queue', 'pause', 'x'.repeat(201)], { env })).toMatchObject({ code: 2, stdout: '' });
  });
});

describe('taskq audit', () => {
  test('shows who did what, newest first, page by page and by subject, as a table and as JSON', async ({
    database,
    db,
  }) => {
    const env = { DATABASE_URL: database.url };
    expect(await taskq(['audit'], { env })).toEqual({
      code: 0,
      stdout: 'nothing was done by hand\n',
      stderr: '',
    });
    const [first, second] = (await insertDead(db, 2)) as unknown as [string, string];
    await taskq(['dead', 'replay', first], { env });
    await taskq(['dead', 'drop', '--all', '--yes', '--actor', 'ada'], { env });
    await taskq(['enqueue', 'greet', '{"name":"Ada"}', '--actor', 'ada'], { env });

    const { stdout, stderr } = await taskq(['audit', '--limit', '2'], { env });
    expect(stdout).toMatch(
      /^id +at +actor +action +subject +detail\n3 +20\S+Z +ada +task\.enqueue +\d+ +\{.*"greet".*\}\n2 +20\S+Z +ada +dead\.drop +- +\{.*"ids":\["\d+"\]\}\n$/,
    );
    expect(stderr).toBe('more with --before 2\n');
    const json = await taskq(['audit', '--subject', second, '--json'], { env });
    expect(JSON.parse(json.stdout)).toMatchObject([{ id: '2', actor: 'ada', detail: { ids: [second] } }]);
    const mine = await taskq(['audit', '--action', 'dead.replay', '--json'], { env });
    expect(JSON.parse(mine.stdout)).toMatchObject([
      { id: '1', actor: expect.stringMatching(/^cli:./), subject: first },
    ]);
    expect(JSON.parse((await taskq(['audit', '--by', 'ada', '--json'], { env })).stdout).length).toBe(2);
  });

  test.each([
    [['--limit', '0'], /--limit/],
    [['--limit', '201'], /--limit/],
    [['--before', 'x'], /--before/],
    [['--actor', ''], /--actor/],
  ])('%j is misuse', async (args, message) => {
    const ended = await taskq(['audit', ...args], { env: { DATABASE_URL: 'postgres://127.0.0.1:1/x' } });
    expect(ended).toEqual({ code: 2, stdout: '', stderr: expect.stringMatching(message) });
  });
});
