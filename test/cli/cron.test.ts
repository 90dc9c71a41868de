import { beforeAll } from 'vitest';
import { build, start, taskq } from '../support/cli.ts';
import { allRows } from '../support/rows.ts';
import { describe, expect, test } from '../support/test.ts';

beforeAll(build);

const CRON = ['--cron', 'cron.ts'];

describe('taskq cron list', () => {
  test('shows each entry with its last and next ticks, and those that are not in the list any more', async ({
    database,
    db,
  }) => {
    const env = { DATABASE_URL: database.url };
    const insertTick = (entry: string, outcome: string, schedule: string, taskId: string | null) =>
      db
        .insertInto('async_cron_ticks')
        .values({ entry, tick: '2026-01-05T06:00:00Z', outcome, schedule, task_id: taskId })
        .execute();
    await insertTick('morning', 'enqueued', '0 7 * * 1 Europe/Berlin', '12');
    await insertTick('often', 'since', '@every 1s', null);
    await insertTick('gone', 'skipped', '@every 5m', '34');

    const { code, stdout, stderr } = await taskq(['cron', 'list', ...CRON], { env });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout.split('\n')[0]).toMatch(
      /^entry +schedule +task +queue +last tick +outcome +task id +next ticks$/,
    );
    expect(stdout).toMatch(
      /^morning +0 7 \* \* 1 Europe\/Berlin +greet +default +2026-01-05T06:00:00\.000Z +enqueued +12 +20\S+Z, 20\S+Z$/m,
    );
    expect(stdout).toMatch(/^often +@every 1s +hold_process +low +- +- +- +20\S+Z, 20\S+Z$/m);
    expect(stdout).toMatch(
      /^gone +@every 5m +- +- +2026-01-05T06:00:00\.000Z +skipped +34 +not in the list any more$/m,
    );

    const json = await taskq(['cron', 'list', '--json', ...CRON], { env });
    const [morning, often, gone] = JSON.parse(json.stdout);
    expect(morning).toMatchObject({
      entry: 'morning',
      schedule: '0 7 * * 1 Europe/Berlin',
      removed: false,
      task: 'greet',
      queue: 'default',
      last: { tick: '2026-01-05T06:00:00.000Z', outcome: 'enqueued', taskId: '12' },
    });
    expect(morning.next).toHaveLength(2);
    expect(new Date(morning.next[0]).getUTCDay()).toBe(1);
    expect(often).toMatchObject({ entry: 'often', last: null });
    expect(gone).toMatchObject({ entry: 'gone', removed: true, task: null, queue: null, next: [] });
  });

  test('shows a list without rows, and without a list says how to name one', async ({ database }) => {
    const env = { DATABASE_URL: database.url };
    const { stdout } = await taskq(['cron', 'list', ...CRON], { env });
    expect(stdout.trimEnd().split('\n')).toHaveLength(3);
    expect(await taskq(['cron', 'list'], { env })).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/no cron list: name its module with --cron.*CONFIG_INVALID/),
    });
    expect(await taskq(['cron', 'list', '--cron', 'handlers.ts'], { env })).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/must export by default, or as `cron`, what defineCron.*CONFIG_INVALID/),
    });
  });
});

describe('taskq cron run', () => {
  test('enqueues the task of an entry now, under the name of who did it, and takes no tick', async ({
    database,
    db,
  }) => {
    const env = { DATABASE_URL: database.url };
    const ended = await taskq(['cron', 'run', 'morning', '--actor', 'anna', ...CRON], { env });
    const [task, ...more] = await allRows(db);
    expect(more).toEqual([]);
    expect(ended).toEqual({ code: 0, stdout: `enqueued ${task?.['id']}\n`, stderr: '' });
    expect(task).toMatchObject({
      task_type: 'greet',
      payload: { name: 'Ada' },
      headers: { 'taskq-cron-entry': 'morning' },
    });
    expect(task?.['headers']).not.toHaveProperty('taskq-cron-tick');
    expect(await db.selectFrom('async_cron_ticks').selectAll().execute()).toEqual([]);
    expect(await db.selectFrom('async_audit').selectAll().execute()).toMatchObject([
      {
        actor: 'anna',
        action: 'cron.run',
        subject: 'morning',
        detail: { taskId: String(task?.['id']), status: 'enqueued' },
      },
    ]);
  });

  test("with overlap: 'skip' says which task is in the way, exits 1, and writes nothing", async ({
    database,
    db,
  }) => {
    const env = { DATABASE_URL: database.url };
    const first = await taskq(['cron', 'run', 'often', ...CRON], { env });
    const id = /^enqueued (\d+)$/m.exec(first.stdout)?.[1];
    expect(await taskq(['cron', 'run', 'often', ...CRON], { env })).toEqual({
      code: 1,
      stdout: '',
      stderr: `taskq: nothing was enqueued: task ${id} is in the way of another of the entry 'often'\n`,
    });
    expect(await allRows(db)).toHaveLength(1);
    expect(await db.selectFrom('async_audit').selectAll().execute()).toHaveLength(1);
  });

  test('of an entry that is not in the list is misuse, and says which are', async ({ database }) => {
    const ended = await taskq(['cron', 'run', 'evening', ...CRON], { env: { DATABASE_URL: database.url } });
    expect(ended).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining("there is no cron entry 'evening'; there are morning, often"),
    });
  });
});

describe('taskq work', () => {
  test('ticks the cron list that it is given, and runs what it enqueues', async ({ database, db }) => {
    const env = { DATABASE_URL: database.url };
    const worker = start(['work', 'handlers.ts', ...CRON], { env });
    await worker.until(/"event":"cron_enqueued".*"entry":"often"|"entry":"often".*"event":"cron_enqueued"/);
    await worker.until(/"event":"settled"/);
    worker.child.kill('SIGTERM');
    expect(await worker.ended()).toMatchObject({ code: 0 });
    const taken = await db
      .selectFrom('async_cron_ticks')
      .selectAll()
      .where('entry', '=', 'often')
      .where('outcome', '=', 'enqueued')
      .execute();
    expect(taken.length).toBeGreaterThanOrEqual(1);
  });

  test('ends at its start for a payload of the list that does not fit, and with no list to tick', async ({
    database,
  }) => {
    const env = { DATABASE_URL: database.url };
    expect(await taskq(['work', 'handlers.ts', '--cron', 'cron-invalid.ts'], { env })).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/cron entry 'greet': greet: payload\.times: .*PAYLOAD_INVALID/),
    });
    expect(await taskq(['work', 'handlers.ts', '--roles', 'cron'], { env })).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/cron: the one role is 'cron', and there is no list.*CONFIG_INVALID/),
    });
    // Another role has no use for the list, and does not load it.
    const worker = start(['work', 'handlers.ts', '--roles', 'processor', '--cron', 'nowhere.ts'], { env });
    await worker.until(/"event":"started"/);
  });
});
