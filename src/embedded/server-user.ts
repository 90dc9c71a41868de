import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Whom the server runs as; `undefined` means as the process itself. */
export interface ServerUser {
  readonly uid: number;
  readonly gid: number;
}

/**
 * PostgreSQL refuses to run as root, so root hands it to the owner of the existing cluster, or to `nobody`:
 * a user every system has, and the server needs one with an entry in the user database.
 */
export async function serverUser(cluster: string | undefined): Promise<ServerUser | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const owner = cluster === undefined ? undefined : await stat(cluster).catch(() => undefined);
  if (owner !== undefined && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid };
  return { uid: await idOf('-u'), gid: await idOf('-g') };
}

/** What `spawn` and `execFile` need to run something as the server does: no inherited PG* variables, no locale. */
export function runAs(user: ServerUser | undefined) {
  return {
    // The folder the program was started in may be unreadable for the server's user.
    cwd: '/',
    env: { PATH: '/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C' },
    // spawn takes a signed number, and macOS numbers `nobody` 4294967294.
    ...(user === undefined ? {} : { uid: user.uid | 0, gid: user.gid | 0 }),
  };
}

/** Whether the server's user can get into `directory`, whatever folders lie above it. */
export async function canReach(user: ServerUser | undefined, directory: string): Promise<boolean> {
  return run('/bin/sh', ['-c', 'test -x "$0"', directory], runAs(user)).then(
    () => true,
    () => false,
  );
}

async function idOf(flag: '-u' | '-g'): Promise<number> {
  const { stdout } = await run('id', [flag, 'nobody'], runAs(undefined));
  return Number(stdout.trim()) >>> 0;
}
