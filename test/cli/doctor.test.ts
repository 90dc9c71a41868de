import { beforeAll } from 'vitest';
import { startEmbeddedPostgres } from '../../src/embedded/index.ts';
import { build, taskq } from '../support/cli.ts';
import { insertDead } from '../support/dead.ts';
import { insertRow } from '../support/rows.ts';
import { migrateTemplate } from '../support/schema.ts';
import { describe, expect, onTestFinished, test } from '../support/test.ts';

beforeAll(build);

interface Finding {
  readonly id: string;
  readonly status: string;
  readonly found: string;
  readonly remedies: readonly string[];
}

const findingsIn = (stdout: string) =>
  new Map((JSON.parse(stdout).findings as Finding[]).map((finding) => [finding.id, finding]));

describe('taskq doctor', () => {
  test('exits with 0 while there is no problem, and loads what the workers load', async () => {
    const binaryPackage = process.env['TASKQ_TEST_POSTGRES_PACKAGE'];
    const server = await startEmbeddedPostgres(binaryPackage ? { binaryPackage } : {});
    onTestFinished(() => server.stop());
    await migrateTemplate(server.url());
    const env = { DATABASE_URL: server.url() };
    const { code, stdout, stderr } = await taskq(['doctor', '--handlers', 'handlers.ts'], { env });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(
      /^warnings:\n {2}tasks\/workers: no worker runs tasks.*\n {6}→ start one: taskq work\n\ncould not be seen:\n {2}tasks\/ceilings: no type has 20 records.*\n {6}→ give a type a retention.*\n\nin order:\n {2}connections\/primary-writable: /,
    );
    expect(stdout).toContain(
      'tasks/unregistered-types: every waiting task is of a registered type and revision\n',
    );
    expect(stdout).toMatch(/\n\d+ checks: 0 problem, 1 warning, 1 unknown, \d+ ok\n$/);
  });

  test('shows problems first with the way out beneath, then warnings, and exits with 1', async ({
    database,
    db,
  }) => {
    await insertRow(db, { queue: 'cri\u001b[31mtical', runAtSeconds: -3_600, type: 'greet' });
    await insertDead(db, 1);
    const { code, stdout } = await taskq(['doctor', '--check', 'backlog', '--check', 'dead-letters'], {
      env: { DATABASE_URL: database.url },
    });
    expect(code).toBe(1);
    expect(stdout).toMatch(
      new RegExp(
        [
          '^problems:',
          '  tasks/backlog: cri\\\\x1b\\[31mtical: 1 due task, the oldest for 1h.*, 0 running, no worker serves it',
          "      → start a worker that serves it: taskq work --queues 'cri\\\\x1b\\[31mtical'",
          '',
          'warnings:',
          '  upkeep/dead-letters: 1, 1 of them of the last 24 hours, most of type plain',
          '      → taskq dead list --type plain',
          '',
          '2 checks: 1 problem, 1 warning, 0 unknown, 0 ok',
          '$',
        ].join('\n'),
      ),
    );
  });

  test('warnings alone exit with 0', async ({ database, db }) => {
    await insertDead(db, 1);
    const ended = await taskq(['doctor', '--check', 'dead-letters'], { env: { DATABASE_URL: database.url } });
    expect(ended).toMatchObject({ code: 0, stderr: '', stdout: expect.stringMatching(/^warnings:\n/) });
  });

  test('--json prints one object', async ({ database, db }) => {
    await insertRow(db, { type: 'nobody_knows' });
    const env = { DATABASE_URL: database.url };
    const { code, stdout } = await taskq(['doctor', '--json', '--cron', 'cron.ts'], { env });
    // The server of the tests has no fsync.
    expect([0, 1]).toContain(code);
    const report = JSON.parse(stdout);
    expect(Object.keys(report)).toEqual(['schema', 'counts', 'findings']);
    for (const finding of report.findings)
      expect(Object.keys(finding)).toEqual(['id', 'group', 'status', 'found', 'remedies']);
    const findings = findingsIn(stdout);
    // From generated/tasks.ts of the folder, without a word about it.
    expect(findings.get('unregistered-types')).toMatchObject({
      status: 'warning',
      found: expect.stringContaining('type nobody_knows: 1 task'),
    });
    expect(findings.get('cron-entries')).toMatchObject({ status: 'warning' });
    expect(code).toBe(report.counts.problem > 0 ? 1 : 0);
  });

  test('a module that cannot be loaded is said, and the database is looked at without it', async ({
    database,
  }) => {
    const env = { DATABASE_URL: database.url };
    const args = [
      'doctor',
      '--json',
      '--handlers',
      'throws.ts',
      '--check',
      'unregistered-types',
      '--check',
      'migrations',
    ];
    const { code, stdout, stderr } = await taskq(args, { env });
    expect(code).toBe(0);
    expect(stderr).toMatch(
      /^taskq: going on without the task types: .*the module threw while it was loaded.*\n$/,
    );
    expect(findingsIn(stdout).get('unregistered-types')?.status).toBe('unknown');
    expect(findingsIn(stdout).get('migrations')?.status).toBe('ok');
  });

  test('a database that cannot be reached is one problem', async () => {
    const env = { DATABASE_URL: 'postgres://ada:secret@127.0.0.1:1/nothing' };
    const { code, stdout, stderr } = await taskq(['doctor'], { env });
    expect({ code, stderr }).toEqual({ code: 1, stderr: '' });
    expect(stdout).toMatch(
      /^problems:\n {2}connections\/database-reachable: .*ECONNREFUSED.*\n {6}→ check DATABASE_URL.*\n\n1 check: 1 problem, 0 warning, 0 unknown, 0 ok\n$/,
    );
    expect(stdout).not.toContain('secret');
  });

  test.for([
    [['doctor'], {}, /no database/],
    [
      ['doctor', '--check', 'pulse'],
      { DATABASE_URL: 'postgres://127.0.0.1:1/x' },
      /there is no check 'pulse'/,
    ],
  ] as const)('%j is misuse', async ([args, env, said]) => {
    const ended = await taskq(args, { env });
    expect(ended).toMatchObject({ code: 2, stdout: '', stderr: expect.stringMatching(said) });
  });
});
