import { chmod, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { beforeAll } from 'vitest';
import { build, start, taskq } from '../support/cli.ts';
import { describe, expect, onTestFinished, test } from '../support/test.ts';
import { waitFor } from '../support/wait.ts';

beforeAll(build);

async function folder(): Promise<string> {
  const place = await mkdtemp(path.join(tmpdir(), 'taskq-dev-'));
  // As root, the server runs as another user, who must be able to come in.
  await chmod(place, 0o755);
  onTestFinished(() => rm(place, { recursive: true, force: true }));
  return place;
}

async function query(url: string, text: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}

const answers = (url: string) =>
  query(url, 'select 1').then(
    () => true,
    () => false,
  );

describe('taskq dev', () => {
  test('serves a migrated database, keeps its data, and ends at SIGTERM', async () => {
    const cwd = await folder();
    const first = start(['dev', '--json'], { cwd });
    await first.until(/^\{.*\}$/m);
    const { url, schema, dataDirectory } = JSON.parse(first.stdout());
    expect({ schema, dataDirectory }).toEqual({
      schema: 'taskq',
      dataDirectory: path.join(cwd, '.taskq/dev'),
    });
    await query(url, `insert into taskq.async_tasks (task_type, payload) values ('greet', '{}')`);
    first.child.kill('SIGTERM');
    expect(await first.ended()).toMatchObject({ code: 0 });
    expect(await answers(url)).toBe(false);
    expect(await readFile(path.join(cwd, '.taskq/.gitignore'), 'utf8')).toBe('*\n');

    const second = start(['dev'], { cwd });
    const [again] = await second.until(/^postgres:\/\/\S+$/m);
    expect(second.stdout()).toBe(`${again}\n`);
    expect(await query(again, 'select task_type from taskq.async_tasks')).toEqual([{ task_type: 'greet' }]);
    second.child.kill('SIGINT');
    expect(await second.ended()).toMatchObject({ code: 0 });
  });

  test('its database dies with it, even by SIGKILL', async () => {
    const cwd = await folder();
    const dev = start(['dev', '--ephemeral', '--schema', 'queue'], { cwd });
    const [url] = await dev.until(/^postgres:\/\/\S+$/m);
    expect(await query(url, 'select count(*)::int from queue.async_tasks')).toEqual([{ count: 0 }]);
    dev.child.kill('SIGKILL');
    await dev.ended();
    await waitFor(async () => !(await answers(url)), { what: 'the end of the server' });
    expect(await readdir(cwd)).toEqual([]);
  });

  test.each([
    ['--ephemeral', '--data', 'x'],
    ['--port', '70000'],
  ])('dev %s %s is misuse', async (...args) => {
    const cwd = await folder();
    const { code, stderr } = await taskq(['dev', ...args], { cwd });
    expect(code).toBe(2);
    expect(stderr).toContain('OPTION_INVALID');
    expect(await readdir(cwd)).toEqual([]);
  });
});
