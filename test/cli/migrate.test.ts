import { beforeAll } from 'vitest';
import { migrations } from '../../generated/migrations.ts';
import { build, taskq } from '../support/cli.ts';
import { expect, test } from '../support/test.ts';

const NAMES = migrations.map(({ name }) => name);

beforeAll(build);

async function run(...words: string[]) {
  const { code, stdout, stderr } = await taskq(['migrate', ...words]);
  return { exitCode: code, stdout, stderr };
}

test('up, status and down print the result on stdout and the progress on stderr', async ({ database }) => {
  const place = ['--database-url', database.url, '--schema', 'cli'];
  expect(await run('status', ...place)).toEqual({
    exitCode: 0,
    stdout: `schema cli\n${NAMES.map((name) => `pending  ${name}\n`).join('')}`,
    stderr: '',
  });
  expect(await run('up', ...place)).toEqual({
    exitCode: 0,
    stdout: `schema cli: applied ${NAMES.join(', ')}\n`,
    stderr: [
      ...NAMES.map((name) => `running ${name}.sql\n`),
      ...NAMES.map((name) => `applied ${name}\n`),
    ].join(''),
  });
  expect(await run('up', ...place)).toEqual({ exitCode: 0, stdout: 'schema cli: up to date\n', stderr: '' });
  expect(await run('down', ...place, '--to', 'none', '--yes')).toMatchObject({
    exitCode: 0,
    stdout: `schema cli: undid ${NAMES.toReversed().join(', ')}\n`,
  });
});

test('with --json there is one JSON object on stdout, also for a failure', async ({ database }) => {
  const place = ['--database-url', database.url, '--schema', 'cli', '--json'];
  expect(JSON.parse((await run('up', ...place)).stdout)).toEqual({
    schema: 'cli',
    applied: NAMES,
    pending: [],
    ahead: [],
    ran: NAMES,
  });
  const failed = await run('up', '--database-url', 'postgres://nobody@127.0.0.1:1/none', '--json');
  expect(failed.exitCode).toBe(1);
  expect(JSON.parse(failed.stdout)).toMatchObject({ error: { code: 'MIGRATION_FAILED' } });
  expect(failed.stderr).toMatch(
    /^taskq migrate up: cannot connect to the database: .*\[MIGRATION_FAILED\]\n$/,
  );
});

test('down without --yes is refused with exit code 2 and drops nothing', async ({ database }) => {
  const place = ['--database-url', database.url, '--schema', 'cli'];
  await run('up', ...place);
  expect(await run('down', ...place)).toEqual({
    exitCode: 2,
    stdout: '',
    stderr: expect.stringContaining('add --yes to do it'),
  });
  expect((await run('status', ...place)).stdout).toContain('applied');
});

test.for([
  [['up'], 'give --database-url or set DATABASE_URL'],
  [['up', '--database-url', 'postgres://a@b/c', '--steps', '1'], '--to and --steps belong to migrate down'],
  [['up', '--database-url', 'postgres://a@b/c', '--lock-timeout', 'soon'], '--lock-timeout'],
  [['up', '--database-url', 'postgres://a@b/c', '--schema', 'pg_x'], 'not beginning with pg_'],
] as const)('wrong use ends with exit code 2: %j', async ([words, problem]) => {
  expect(await run(...words)).toEqual({
    exitCode: 2,
    stdout: '',
    stderr: expect.stringContaining(problem),
  });
});

test('--dry-run prints the SQL and changes nothing, for down without --yes too', async ({ database }) => {
  const place = ['--database-url', database.url, '--schema', 'cli'];
  expect((await run('up', ...place, '--dry-run')).stdout).toMatch(
    /^BEGIN .*CREATE TABLE async_tasks.*COMMIT;\n$/s,
  );
  expect((await run('status', ...place)).stdout).not.toContain('applied');
  await run('up', ...place);
  expect((await run('up', ...place, '--dry-run')).stdout).toBe('-- nothing to do\n');
  expect((await run('down', ...place, '--dry-run', '--to', 'none')).stdout).toContain(
    'DROP TABLE async_tasks;',
  );
  expect((await run('status', ...place)).stdout).toContain('applied');
});
