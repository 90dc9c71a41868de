import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, chown, mkdir, mkdtemp, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { TaskqError } from '../domain/errors.ts';
import type { Binaries } from './binaries.ts';
import { sweepLeftovers } from './run-directory.ts';
import { canReach, runAs, type ServerUser } from './server-user.ts';

const run = promisify(execFile);

/** The superuser of every cluster made here. */
export const CLUSTER_USER = 'taskq';

const UNFINISHED_PREFIX = '.initdb-';
const PASSWORD_FILE = 'taskq-password';

/** Where PostgreSQL's own files lie below the data directory the caller named. */
export function clusterOf(dataDirectory: string): string {
  return path.join(dataDirectory, 'cluster');
}

/**
 * Makes the cluster below `dataDirectory` unless one is there, and answers the password for TCP connections.
 * @throws TaskqError `EMBEDDED_UNAVAILABLE` when the directory cannot be used: unreachable, of another user,
 * of another PostgreSQL version
 */
export async function prepareCluster(
  dataDirectory: string,
  binaries: Binaries,
  user: ServerUser | undefined,
  onProgress: (message: string) => void,
): Promise<string> {
  await makeReachable(dataDirectory, user);
  const cluster = clusterOf(dataDirectory);
  if (!(await hasCluster(cluster))) {
    onProgress(`creating a PostgreSQL ${binaries.version} cluster`);
    await createCluster(dataDirectory, binaries, user);
  }
  try {
    const major = (await readFile(path.join(cluster, 'PG_VERSION'), 'utf8')).trim();
    if (major !== binaries.version.split('.')[0]) {
      throw unusable(dataDirectory, `was made by PostgreSQL ${major}, and this is ${binaries.version}`);
    }
    return (await readFile(path.join(cluster, PASSWORD_FILE), 'utf8')).trim();
  } catch (error) {
    if (error instanceof TaskqError) throw error;
    throw unusable(dataDirectory, `holds a cluster that cannot be read: ${(error as Error).message}`, error);
  }
}

async function makeReachable(dataDirectory: string, user: ServerUser | undefined): Promise<void> {
  const created = await mkdir(dataDirectory, { recursive: true, mode: 0o755 });
  if (created !== undefined && user !== undefined) {
    // The umask may have closed the new folder to the server's user, and that one's watchdog,
    // which outlives root's process, can empty only a folder of its own.
    await chmod(dataDirectory, 0o755);
    await chown(dataDirectory, user.uid, user.gid);
  }
  if (await canReach(user, dataDirectory)) return;
  const who = user === undefined ? 'this user' : `user ${user.uid}, whom the server runs as instead of root`;
  throw unusable(dataDirectory, `cannot be reached by ${who}; choose one outside of private folders`);
}

async function hasCluster(cluster: string): Promise<boolean> {
  return stat(path.join(cluster, 'PG_VERSION')).then(
    () => true,
    // Anything but absence is shown by the read that follows.
    (error: NodeJS.ErrnoException) => error.code !== 'ENOENT',
  );
}

// initdb works beside the cluster's place and the result is renamed into it: a process killed midway
// leaves no half-made cluster, and of two that start at once one wins and the other uses its cluster.
async function createCluster(
  dataDirectory: string,
  binaries: Binaries,
  user: ServerUser | undefined,
): Promise<void> {
  await sweepLeftovers(dataDirectory, UNFINISHED_PREFIX);
  const workshop = await mkdtemp(path.join(dataDirectory, `${UNFINISHED_PREFIX}${process.pid}-`));
  const made = path.join(workshop, 'cluster');
  const passwordFile = path.join(workshop, 'password');
  try {
    await writeFile(passwordFile, `${randomBytes(18).toString('base64url')}\n`, { mode: 0o600 });
    if (user !== undefined) {
      await Promise.all([workshop, passwordFile].map((name) => chown(name, user.uid, user.gid)));
    }
    const options = ['--auth-local=trust', '--auth-host=scram-sha-256', `--pwfile=${passwordFile}`];
    const text = ['-E', 'UTF8', '--locale=C', '--no-sync', '--no-instructions'];
    await run(binaries.initdb, ['-D', made, '-U', CLUSTER_USER, ...options, ...text], runAs(user));
    await rename(passwordFile, path.join(made, PASSWORD_FILE));
    await rename(made, clusterOf(dataDirectory)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
    });
  } catch (error) {
    throw unusable(dataDirectory, `could not be filled: ${(error as Error).message.trim()}`, error);
  } finally {
    await rm(workshop, { recursive: true, force: true });
  }
}

export function unusable(dataDirectory: string, reason: string, cause?: unknown): TaskqError {
  return new TaskqError('EMBEDDED_UNAVAILABLE', `the data directory ${dataDirectory} ${reason}`, { cause });
}
