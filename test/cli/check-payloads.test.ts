import { randomBytes } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { beforeAll } from 'vitest';
import { build, taskq } from '../support/cli.ts';
import { administer, urlOf } from '../support/databases.ts';
import { startReplicaPair } from '../support/replica-pair.ts';
import { insertRow, insertRows } from '../support/rows.ts';
import { migrateTemplate, TEST_SCHEMA } from '../support/schema.ts';
import { describe, expect, test } from '../support/test.ts';

beforeAll(build);

const cwd = fileURLToPath(new URL('fixtures/payloads/', import.meta.url));
const CANARY = 'canary-5d';
const DEAD = { attemptCount: 20, attemptedSecondsAgo: 60 };
const invited = { to: 'ada@example.org', token: '0123456789ab' };

function check(databaseUrl: string, args: readonly string[] = [], env: Record<string, string> = {}) {
  const given = ['check-payloads', '--tasks', 'tasks.ts', ...args];
  return taskq(given, { cwd, env: { DATABASE_URL: databaseUrl, ...env } });
}

describe('taskq check-payloads', () => {
  test('reports the rows by type and revision, and exits with 1 for a live one that would be poison', async ({
    database,
    db,
  }) => {
    await insertRow(db, { type: 'invite', revision: 2, payload: invited });
    await insertRow(db, { type: 'invite', payload: { address: 'Ada@example.org', token: '0123456789ab' } });
    const poison = await insertRow(db, { type: 'invite', payload: { token: '0123456789ab' } });
    await insertRow(db, { type: 'sweep', revision: 3, ...DEAD });
    await insertRow(db, { type: 'of_another_service' });

    const { code, stdout, stderr } = await check(database.url);

    expect({ code, stderr }).toEqual({ code: 1, stderr: '' });
    expect(stdout.replaceAll(/ +/g, ' ').split('\n')).toEqual([
      'type revision rows fine upgraded poison',
      'invite 1 → 2 live 0 1 1',
      'invite 2 live 1 0 0',
      `poison: invite, revision 1 → 2, task ${poison} (live): payload: the upgrade of revision 1 → 2 threw TypeError`,
      'left to other workers: of_another_service, an unknown type: 1 live, 0 dead',
      'left to other workers: sweep, revision 3 is newer than this code: 0 live, 1 dead',
      'checked 5 rows: 1 fine, 1 upgraded, 1 poison (1 live, 0 dead), 2 left to other workers',
      '',
    ]);
  });

  test('a dead letter that is poison is reported and fails nothing; --type looks at one type alone', async ({
    database,
    db,
  }) => {
    const dead = await insertRow(db, { type: 'sweep', payload: { days: 'two' }, ...DEAD });
    await insertRow(db, { type: 'invite', revision: 2, payload: {} });
    await insertRow(db, { type: 'of_another_service' });

    const { code, stdout } = await check(database.url, ['--type', 'sweep', '--json']);

    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toEqual({
      rows: 1,
      fine: { live: 0, dead: 0 },
      upgraded: { live: 0, dead: 0 },
      poison: { live: 0, dead: 1 },
      left: [],
      revisions: [
        {
          type: 'sweep',
          revision: 1,
          currentRevision: 1,
          fine: { live: 0, dead: 0 },
          upgraded: { live: 0, dead: 0 },
          poison: { live: 0, dead: 1 },
          examples: [
            { id: dead, isDead: true, path: 'payload.days', expectation: 'expected number', more: 0 },
          ],
        },
      ],
    });
  });

  test('prints no value of a payload, and of a secret field nothing but where it is', async ({
    database,
    db,
  }) => {
    const token = `x${CANARY}`;
    const payloads = [
      { ...invited, token },
      { ...invited, token: { [CANARY]: 1 } },
      { to: CANARY, token: '0123456789ab' },
    ];
    for (const payload of payloads) await insertRow(db, { type: 'invite', revision: 2, payload });
    // An upgrade whose error quotes it: '… is not a function'.
    await insertRow(db, { type: 'invite', payload: { address: { [CANARY]: CANARY }, token } });

    const text = await check(database.url, ['--verbose']);
    const json = await check(database.url, ['--json']);

    expect(text.code).toBe(1);
    expect(text.stdout).toContain(': payload.token: it does not fit (a secret field: no more is said)\n');
    expect(text.stdout).toContain(': payload.token: expected string\n');
    expect(text.stdout).toContain(': payload.to: expected a string of the format email\n');
    expect(JSON.stringify([text, json])).not.toContain(CANARY);
  });

  test('works for a role with USAGE and SELECT alone, in read-only transactions, and says how far it is', async ({
    database,
    db,
  }) => {
    const role = `taskq_test_reader_${randomBytes(4).toString('hex')}`;
    await insertRows(db, 20_000, { type: 'invite', revision: 2, payload: invited });
    await administer(
      database.url,
      `create role ${role} nologin`,
      `grant usage on schema ${TEST_SCHEMA} to ${role}`,
      `grant select on all tables in schema ${TEST_SCHEMA} to ${role}`,
      `revoke temporary on database ${database.name} from public`,
    );
    try {
      const url = new URL(database.url);
      url.searchParams.set('options', `-c role=${role} -c default_transaction_read_only=on`);
      expect(await check(url.href)).toMatchObject({
        code: 0,
        stdout: expect.stringContaining('checked 20000 rows: 20000 fine, 0 upgraded, 0 poison\n'),
        stderr: expect.stringMatching(
          /^checked 10\d{3} rows so far, 0 live poison\nchecked 20\d{3} rows so far, 0 live poison\n$/,
        ),
      });
    } finally {
      await administer(database.url, `drop owned by ${role}`, `drop role ${role}`);
    }
  });

  test('--read reads on the replica alone, a hot standby', { timeout: 120_000 }, async () => {
    const pair = await startReplicaPair();
    try {
      const database = urlOf(pair.primary.url(), 'checked');
      const replica = urlOf(pair.replica.url(), 'checked');
      await administer(pair.primary.url(), 'create database checked');
      await migrateTemplate(database);
      const insert = `insert into ${TEST_SCHEMA}.async_tasks (task_type, payload) values ('sweep', '{"days": 1}')`;
      await administer(database, insert);
      await pair.caughtUp();
      await pair.pauseReplay();
      await administer(database, insert);

      const counted = (rows: number) => ({
        code: 0,
        stderr: '',
        stdout: expect.stringContaining(`checked ${rows} rows`),
      });
      const env = { DATABASE_URL_READ: replica };
      expect(await check(database, ['--read'], env)).toEqual(counted(1));
      expect(await check(database, [], env)).toEqual(counted(2));
      // The one server is enough: the other's URL may be missing.
      expect(await check('', ['--read'], env)).toEqual(counted(1));
    } finally {
      await pair.stop();
    }
  });

  test('--read without a replica reads the primary and says so', async ({ database }) => {
    expect(await check(database.url, ['--read'])).toEqual({
      code: 0,
      stdout: 'checked 0 rows: 0 fine, 0 upgraded, 0 poison\n',
      stderr: 'taskq: no read replica is configured; reading the primary\n',
    });
  });

  test('takes the definitions with the revisions of the manifest, as enqueue does', async ({
    database,
    db,
  }) => {
    await insertRow(db, { type: 'greet', payload: { name: 'Ada' } });
    const args = ['check-payloads', '--definitions', 'tasks/*.ts', '--json'];
    const { code, stdout } = await taskq(args, { env: { DATABASE_URL: database.url } });
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ rows: 1, fine: { live: 1 } });
  });

  test('misuse exits with 2 and says what is wrong', async ({ database }) => {
    const cases: [string, string[], RegExp][] = [
      [database.url, ['--type', 'sweeep'], /no task type 'sweeep' is defined; there are invite, sweep/],
      [database.url, ['--types', 'sweep'], /unknown argument: types/],
      [database.url, ['--out', 'nowhere', '--type'], /[Nn]ot enough arguments following: type/],
      ['', [], /no database: set DATABASE_URL/],
    ];
    for (const [url, args, message] of cases) {
      const ended = await check(url, args);
      const expected = { code: 2, stdout: '', stderr: expect.stringMatching(message) };
      expect(ended, args.join(' ')).toEqual(expected);
    }
  });
});
