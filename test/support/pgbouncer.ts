import { execFile } from 'node:child_process';
import { chown, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import path from 'node:path';
import { promisify } from 'node:util';
import { makeRunDirectory } from '../../src/embedded/run-directory.ts';
import { spawnServer } from '../../src/embedded/server-process.ts';
import { runAs, serverUser } from '../../src/embedded/server-user.ts';
import { administer, type Connection } from './databases.ts';
import { waitFor } from './wait.ts';

const run = promisify(execFile);

export interface PgBouncer {
  readonly version: string;
  readonly connection: Connection;
  readonly url: string;
  stop(): Promise<void>;
}

/**
 * Skips the test, and says so, where pgbouncer is not installed.
 * With `TASKQ_REQUIRE_SYSTEM_TOOLS=1`, as in CI, the test fails instead: a skipped promise is not a kept one.
 */
export async function requirePgbouncer(test: { skip(reason: string): never }): Promise<void> {
  if ((await pgbouncerVersion()) !== undefined) return;
  const reason = 'pgbouncer is not installed (apt-get install pgbouncer)';
  if (process.env['TASKQ_REQUIRE_SYSTEM_TOOLS'] === '1') throw new Error(reason);
  console.warn(`SKIPPED: ${reason}`);
  test.skip(reason);
}

/** A pooler in transaction mode in front of `upstream`. */
export async function startPgbouncer(
  upstream: Connection,
  options: { readonly poolSize?: number; readonly settings?: Readonly<Record<string, string>> } = {},
): Promise<PgBouncer> {
  const version = (await pgbouncerVersion()) ?? 'none';
  const user = await serverUser(undefined);
  const directory = await makeRunDirectory(user);
  const port = await freePort();
  const password = upstream.password === undefined ? '' : ` password=${upstream.password}`;
  const settings = {
    listen_addr: '127.0.0.1',
    listen_port: String(port),
    unix_socket_dir: directory,
    auth_type: 'any',
    pool_mode: 'transaction',
    default_pool_size: String(options.poolSize ?? 5),
    ...options.settings,
  };
  const lines = Object.entries(settings).map(([name, value]) => `${name} = ${value}`);
  const target = `* = host=${upstream.host} port=${upstream.port} user=${upstream.user}${password}`;
  const file = path.join(directory, 'pgbouncer.ini');
  await writeFile(file, ['[databases]', target, '[pgbouncer]', ...lines, ''].join('\n'), { mode: 0o600 });
  if (user !== undefined) await chown(file, user.uid, user.gid);
  const log = path.join(directory, 'log');
  const atDeath = { signal: 'INT', remove: [directory, directory] } as const;
  const server = await spawnServer({ command: ['pgbouncer', file], user, log, atDeath });
  const connection = { host: '127.0.0.1', port, user: upstream.user, database: upstream.database };
  const url = `postgres://${connection.user}@127.0.0.1:${port}/${encodeURIComponent(connection.database)}`;
  await waitFor(
    async () => {
      if (server.hasExited()) throw new Error(`pgbouncer did not start: ${await readFile(log, 'utf8')}`);
      return administer(url, 'SELECT 1').catch(() => undefined);
    },
    { what: 'pgbouncer to take connections' },
  );
  server.hold(false);
  return {
    version,
    connection,
    url,
    async stop() {
      server.hold(true);
      // SIGINT waits for clients to finish; at the end of a test nobody is worth waiting for.
      server.signal('KILL');
      await server.exited;
      await rm(directory, { recursive: true, force: true });
    },
  };
}

async function pgbouncerVersion(): Promise<string | undefined> {
  try {
    const { stdout } = await run('pgbouncer', ['--version'], runAs(undefined));
    return /(\d+\.\d+\.\d+)/.exec(stdout)?.[1] ?? 'unknown';
  } catch {
    return undefined;
  }
}

async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
  const { port } = probe.address() as { port: number };
  await new Promise((resolve) => probe.close(resolve));
  return port;
}
