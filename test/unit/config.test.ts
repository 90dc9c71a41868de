import { tmpdir } from 'node:os';
import { describe, expect, test } from 'vitest';
import {
  type Config,
  defineConfig,
  describeDatabase,
  resolveConfig,
  SETTINGS,
  type SettingName,
} from '../../src/config.ts';
import {
  ADMIN_PORT_DEFAULT,
  LEASE_MARGIN_MS,
  PAYLOAD_BYTES_MAX_DEFAULT,
  POLL_INTERVAL_MS,
  POOL_MAX_DEFAULT,
  RETENTION_MS_DEFAULT,
  SLOTS_DEFAULT,
} from '../../src/domain/limits.ts';

const NAMES = Object.keys(SETTINGS) as SettingName[];

/** In a folder without a configuration file. */
const resolve = <Name extends SettingName>(
  names: readonly Name[],
  given: { flags?: Record<string, unknown>; env?: Record<string, string> } = {},
): Promise<Pick<Config, Name>> =>
  resolveConfig({ cwd: tmpdir(), env: given.env ?? {}, flags: given.flags ?? {} }, names);

describe('the configuration', () => {
  test('without any source is the defaults of the design', async () => {
    expect(await resolve(NAMES)).toEqual({
      databaseUrl: undefined,
      readDatabaseUrl: undefined,
      listenDatabaseUrl: undefined,
      schema: 'taskq',
      concurrency: SLOTS_DEFAULT,
      queues: undefined,
      strictQueues: false,
      roles: ['processor', 'cron', 'prune'],
      retention: RETENTION_MS_DEFAULT,
      leaseMargin: LEASE_MARGIN_MS,
      pollInterval: POLL_INTERVAL_MS,
      shutdownGrace: 0,
      poolMax: POOL_MAX_DEFAULT,
      preparedStatements: true,
      logLevel: 'info',
      metricsPort: undefined,
      metricsHost: '127.0.0.1',
      adminPort: ADMIN_PORT_DEFAULT,
      adminHost: '127.0.0.1',
      adminToken: undefined,
      adminReadToken: undefined,
      handlers: undefined,
      cron: undefined,
      definitions: undefined,
      out: 'generated',
      runtime: 'taskq',
      actor: undefined,
      maxPayloadBytes: PAYLOAD_BYTES_MAX_DEFAULT,
    });
  });

  test('prefers a flag to the environment, and an empty variable counts as none', async () => {
    const env = { TASKQ_CONCURRENCY: '7' };
    expect(await resolve(['concurrency'], { env, flags: { concurrency: '9' } })).toEqual({ concurrency: 9 });
    expect(await resolve(['concurrency'], { env })).toEqual({ concurrency: 7 });
    expect(await resolve(['concurrency'], { env: { TASKQ_CONCURRENCY: '' } })).toEqual({ concurrency: 4 });
  });

  test('no two settings share a flag or a variable', () => {
    const flags = Object.values(SETTINGS).map(({ flag }) => flag);
    const variables = Object.values(SETTINGS).flatMap(({ env }) => env ?? []);
    expect(new Set(flags).size).toBe(flags.length);
    expect(new Set(variables).size).toBe(variables.length);
  });

  test.each<[SettingName, string, unknown]>([
    ['databaseUrl', 'postgresql://ada:p%40ss@db.example:5433/app?sslmode=require', undefined],
    ['databaseUrl', 'postgres://ada@/app?host=/var/run/postgresql', undefined],
    ['schema', 'Queue "1"', undefined],
    ['concurrency', '1000', 1_000],
    ['queues', 'critical, low', { critical: 1, low: 1 }],
    ['queues', 'critical=6,default = 3, a=b=2', { critical: 6, default: 3, 'a=b': 2 }],
    ['strictQueues', 'true', true],
    ['roles', 'prune', ['prune']],
    ['retention', '1.5h', 5_400_000],
    ['leaseMargin', '2s', 2_000],
    ['preparedStatements', 'false', false],
    ['preparedStatements', 'on', true],
    ['logLevel', 'silent', 'silent'],
    ['definitions', 'src/{a,b}/*.ts', ['src/{a,b}/*.ts']],
    ['actor', 'cli:Zoë Ö.', undefined],
  ])('takes %s from the text %s', async (name, text, value) => {
    expect(await resolve([name], { flags: { [name]: text } })).toEqual({ [name]: value ?? text });
  });

  test.each<[SettingName, unknown]>([
    ['databaseUrl', 'mysql://h/x'],
    ['databaseUrl', 'db.example'],
    ['databaseUrl', 'postgres://ada:12/34@h/x'],
    ['databaseUrl', 5432],
    ['schema', ''],
    ['schema', 'pg_queue'],
    ['schema', 'x'.repeat(64)],
    ['concurrency', '0'],
    ['concurrency', '1001'],
    ['concurrency', '4.5'],
    ['concurrency', '0x10'],
    ['concurrency', '1e2'],
    ['concurrency', ' 4'],
    ['concurrency', Number.NaN],
    ['concurrency', true],
    ['concurrency', ['1', '2']],
    ['queues', ''],
    ['queues', []],
    ['queues', {}],
    ['queues', 'low=0'],
    ['queues', 'low=1001'],
    ['queues', { low: 1.5 }],
    ['roles', 'processor,chef'],
    ['retention', '7'],
    ['retention', '-1d'],
    ['retention', Number.POSITIVE_INFINITY],
    ['leaseMargin', '10ms'],
    ['pollInterval', '2h'],
    ['shutdownGrace', '2d'],
    ['preparedStatements', 'maybe'],
    ['logLevel', 'loud'],
    ['maxPayloadBytes', '1MB'],
    ['definitions', []],
    ['handlers', null],
    ['actor', ' '],
    ['actor', 'a\nb'],
    ['actor', 'x'.repeat(201)],
    ['actor', 7],
  ])('refuses %s %j, and says what is expected instead', async (name, value) => {
    const { flag, kind } = SETTINGS[name];
    await expect(resolve([name], { flags: { [name]: value } })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringContaining(`--${flag}: expected ${kind}, received `),
    });
  });

  test('a database is named without its user and password', () => {
    expect(describeDatabase('postgres://ada:secret@db.example:5433/app?sslmode=require')).toBe(
      'db.example:5433/app',
    );
    expect(describeDatabase('postgres://ada:secret@/app?host=/run/pg')).toBe('/run/pg/app');
  });

  test('defineConfig answers what it was given', () => {
    const config = { concurrency: 8, retention: '3d', roles: ['processor'] } as const;
    expect(defineConfig({ ...config, roles: [...config.roles] })).toEqual(config);
  });
});
