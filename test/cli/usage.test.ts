import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { beforeAll } from 'vitest';
import { build, PROJECT, start, taskq } from '../support/cli.ts';
import { describe, expect, onTestFinished, test } from '../support/test.ts';

beforeAll(build);

const DATABASE_COMMANDS = [
  ['stats'],
  ['dead', 'list'],
  ['prune'],
  ['enqueue', 'greet', '{"name":"Ada"}'],
  ['work', 'handlers.ts'],
  ['migrate', 'status'],
];

async function folder(files: Readonly<Record<string, string>>): Promise<string> {
  const place = await mkdtemp(path.join(tmpdir(), 'taskq-usage-'));
  onTestFinished(() => rm(place, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) await writeFile(path.join(place, name), text);
  return place;
}

describe('misuse', () => {
  test.each([
    [[], 'name a command', 'taskq stats'],
    [['bogus'], 'unknown command: bogus', 'taskq stats'],
    [['stat'], 'Did you mean stats?', 'taskq stats'],
    [['stats', '--bogus'], 'unknown argument: bogus', 'Usage: taskq stats'],
    [['stats', '--schema'], 'Not enough arguments following: schema', 'Usage: taskq stats'],
    [['stats', 'more'], 'unknown argument: more', 'Usage: taskq stats'],
    [['dead'], 'say what to do with dead letters', 'taskq dead show <id>'],
    [['dead', 'bogus'], 'unknown command: bogus', 'taskq dead show <id>'],
    [['dead', 'show'], 'an argument is missing', 'Usage: taskq dead show <id>'],
    [['enqueue', 'greet'], 'an argument is missing', 'Usage: taskq enqueue <type> <json>'],
    [['migrate', 'sideways'], 'sideways', 'Usage: taskq migrate <action>'],
  ])('%j exits 2 with a short message and the usage, and does nothing', async (args, message, usage) => {
    const { code, stdout, stderr } = await taskq(args, { env: { DATABASE_URL: 'postgres://127.0.0.1:1/x' } });
    expect(code).toBe(2);
    expect(stdout).toBe('');
    expect(stderr.split('\n')[0]).toContain('taskq: ');
    expect(stderr.split('\n')[0]).toContain(message);
    expect(stderr).toContain(usage);
    expect(stderr).not.toMatch(/^ +at /m);
  });

  test.each(DATABASE_COMMANDS)(
    '%s %s without a database exits 2 and says how to name one',
    async (...args) => {
      const { code, stdout, stderr } = await taskq(args, { env: { DATABASE_URL: '' } });
      expect(code).toBe(2);
      expect(stdout).toBe('');
      expect(stderr).toMatch(/no database.*DATABASE_URL.*\[CONFIG_INVALID\]/);
    },
  );
});

describe('help', () => {
  test('--help exits 0 and lists every command; --version is that of the package', async () => {
    const help = await taskq(['--help']);
    expect(help).toMatchObject({ code: 0, stderr: '' });
    for (const command of ['migrate', 'codegen', 'work', 'enqueue', 'stats', 'dead', 'prune', 'dev'])
      expect(help.stdout).toContain(`taskq ${command}`);
    expect(await taskq(['--version'])).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
    });
  });

  test('the help of a command shows each setting with its default, and needs no database', async () => {
    const { code, stdout } = await taskq(['work', '--help'], { env: { TASKQ_CONCURRENCY: 'broken' } });
    expect(code).toBe(0);
    expect(stdout).toMatch(/--concurrency.*\(4\)/);
  });

  test('nothing is coloured, and messages are English, whatever the environment asks for', async () => {
    const { stderr } = await taskq(['bogus'], {
      env: { FORCE_COLOR: '3', LANG: 'de_DE.UTF-8', LC_ALL: 'de_DE.UTF-8' },
    });
    expect(stderr).toContain('unknown command');
    expect(stderr).not.toContain('\u001b');
  });
});

describe('configuration', () => {
  const unreachable = { DATABASE_URL: 'postgres://127.0.0.1:1/x' };

  test('a wrong number names the flag, the variable or the key it stands in, its kind and the way out', async () => {
    const asked = 'expected a whole number from 1 to 1000, received';
    const wayOut = 'leave it out for the default, 4';
    const flag = await taskq(['work', 'handlers.ts', '--concurrency', 'many'], { env: unreachable });
    expect(flag).toMatchObject({ code: 2 });
    expect(flag.stderr).toContain(`--concurrency: ${asked} the text 'many'`);
    expect(flag.stderr).toContain(wayOut);
    const env = await taskq(['work', 'handlers.ts'], { env: { ...unreachable, TASKQ_CONCURRENCY: '0' } });
    expect(env).toMatchObject({ code: 2 });
    expect(env.stderr).toContain(`TASKQ_CONCURRENCY: ${asked} the text '0'`);
    const cwd = await folder({ 'taskq.config.ts': 'export default { concurrency: 1.5 as number };' });
    const file = await taskq(['work', 'handlers.ts'], { cwd, env: unreachable });
    expect(file).toMatchObject({ code: 2 });
    expect(file.stderr).toContain(`key \`concurrency\` of taskq.config.ts: ${asked} number 1.5`);
  });

  test('a command does not fail over a setting that it has no use for', async () => {
    const cwd = await folder({ 'taskq.config.mjs': 'export default { concurrency: 0 };' });
    const { stderr } = await taskq(['stats'], { cwd, env: { ...unreachable, TASKQ_ROLES: 'chef' } });
    expect(stderr).toContain('ECONNREFUSED');
  });

  test('an unknown key of the configuration file is refused, with the keys there are', async () => {
    const cwd = await folder({ 'taskq.config.mjs': 'export default { concurency: 4 };' });
    const { code, stderr } = await taskq(['stats'], { cwd, env: unreachable });
    expect(code).toBe(2);
    expect(stderr).toMatch(/taskq\.config\.mjs: there is no setting 'concurency'; there are .*concurrency/);
  });

  test('taskq.config.ts may be written with defineConfig, and is found by --config elsewhere', async () => {
    const config = path.join(PROJECT, '../configured/taskq.config.ts');
    const { stderr } = await taskq(['stats', '--config', config]);
    expect(stderr).toContain('127.0.0.1:1/named_by_the_file');
    const flag = await taskq([
      'stats',
      '--config',
      config,
      '--database-url',
      'postgres://127.0.0.1:1/by_flag',
    ]);
    expect(flag.stderr).toContain('127.0.0.1:1/by_flag');
  });
});

describe('errors', () => {
  const SECRET = 'hunter2secret';
  const URLS = {
    'an unreachable server': `postgres://ada:${SECRET}@127.0.0.1:1/x`,
    'another kind of URL': `mysql://ada:${SECRET}@127.0.0.1:1/x`,
    'a password that is not encoded': `postgres://ada:1/${SECRET}@127.0.0.1:1/x`,
    'no URL at all': SECRET,
  };

  test.each(Object.entries(URLS))('no password is printed: %s', async (_, url) => {
    const commands = [
      ['stats'],
      ['migrate', 'status'],
      ['work', 'handlers.ts'],
      ['dead', 'drop', '1', '--yes'],
    ];
    for (const args of commands) {
      // With the stacks, which hold more.
      const { code, stdout, stderr } = await taskq(args, { env: { DATABASE_URL: url, TASKQ_DEBUG: '1' } });
      expect(code).not.toBe(0);
      expect(stderr).not.toBe('');
      expect(stdout + stderr).not.toContain(SECRET);
    }
  });

  test('an error is one line with its code; --verbose and TASKQ_DEBUG add the stack', async () => {
    const env = { DATABASE_URL: 'postgres://127.0.0.1:1/x' };
    const line = 'taskq: database 127.0.0.1:1/x: connect ECONNREFUSED 127.0.0.1:1 [ECONNREFUSED]\n';
    expect(await taskq(['stats'], { env })).toEqual({ code: 1, stdout: '', stderr: line });
    for (const verbose of [
      await taskq(['stats', '--verbose'], { env }),
      await taskq(['stats'], { env: { ...env, TASKQ_DEBUG: '1' } }),
    ]) {
      expect(verbose.stderr.startsWith(line)).toBe(true);
      expect(verbose.stderr).toMatch(/^ +at /m);
    }
  });

  test('with --json the error is one JSON object on stdout too', async () => {
    const env = { DATABASE_URL: 'postgres://127.0.0.1:1/x' };
    for (const args of [['stats'], ['dead', 'list'], ['prune'], ['migrate', 'status', '--schema', 'pg_x']]) {
      const { code, stdout } = await taskq([...args, '--json'], { env });
      expect(code).not.toBe(0);
      expect(JSON.parse(stdout)).toEqual({
        error: { code: expect.any(String), message: expect.any(String) },
      });
    }
  });

  test('a reader that goes away ends the program without a stack', async ({ database }) => {
    const watching = start(['stats', '--watch'], { env: { DATABASE_URL: database.url } });
    await watching.until(/no tasks/);
    watching.child.stdout?.destroy();
    expect(await watching.ended()).toMatchObject({ code: 0, stderr: '' });
  });
});
