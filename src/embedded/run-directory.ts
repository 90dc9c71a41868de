import { chown, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { TaskqError } from '../domain/errors.ts';
import { EMBEDDED_LEFTOVER_AGE_MS, SOCKET_PATH_BYTES_MAX } from '../domain/limits.ts';
import { canReach, type ServerUser } from './server-user.ts';

/** The process id of the owner follows, so that a leftover can be told from a directory in use. */
const PREFIX = 'taskq-pg-';

/**
 * A private directory below the temporary folder for the socket, the log and a cluster that is thrown away.
 * @throws TaskqError `EMBEDDED_UNAVAILABLE` when no temporary folder can be used by the server's user
 */
export async function makeRunDirectory(user: ServerUser | undefined): Promise<string> {
  const base = await temporaryFolder(user);
  await sweepLeftovers(base);
  const directory = await mkdtemp(path.join(base, `${PREFIX}${process.pid}-`));
  if (user !== undefined) await chown(directory, user.uid, user.gid);
  return directory;
}

/** The system's temporary folder, or `/tmp` where that one is too deep for a socket or closed to the server's user. */
export async function temporaryFolder(user: ServerUser | undefined): Promise<string> {
  for (const candidate of [tmpdir(), '/tmp']) {
    const longest = path.join(candidate, `${PREFIX}4194304-XXXXXX`, '.s.PGSQL.65535');
    if (Buffer.byteLength(longest) > SOCKET_PATH_BYTES_MAX) continue;
    if (await canReach(user, candidate)) return candidate;
  }
  throw new TaskqError(
    'EMBEDDED_UNAVAILABLE',
    `the embedded PostgreSQL needs a temporary folder with a short path; ${tmpdir()} and /tmp do not serve`,
  );
}

/**
 * Removes what a process left that died together with its watchdog (a power cut, an out-of-memory kill).
 * Never fails: what cannot be removed belongs to somebody else.
 */
export async function sweepLeftovers(base: string, prefix = PREFIX): Promise<void> {
  for (const name of await readdir(base).catch(() => [])) {
    const owner = name.startsWith(prefix) ? Number.parseInt(name.slice(prefix.length), 10) : Number.NaN;
    if (Number.isNaN(owner) || isAlive(owner)) continue;
    const directory = path.join(base, name);
    if (await isAbandoned(directory)) await rm(directory, { recursive: true, force: true }).catch(() => {});
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: it lives, under another user.
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

// A process id says nothing about a process of another container that shares this folder:
// a young directory may be its cluster in the making, and an answering socket is its server.
async function isAbandoned(directory: string): Promise<boolean> {
  const found = await stat(directory).catch(() => undefined);
  if (found === undefined || Date.now() - found.mtimeMs < EMBEDDED_LEFTOVER_AGE_MS) return false;
  for (const name of await readdir(directory).catch(() => [])) {
    if (/^\.s\.PGSQL\.\d+$/.test(name) && (await answers(path.join(directory, name)))) return false;
  }
  return true;
}

function answers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(socketPath);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
