import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { inject, onTestFinished } from 'vitest';
import { administer, databaseName, urlOf } from '../support/databases.ts';
import { waitFor } from '../support/wait.ts';

const execute = promisify(execFile);

export const REPOSITORY = path.resolve(import.meta.dirname, '../..');

/** An install downloads what no cache holds; only what hangs may end it. */
export const INSTALL_TIMEOUT_MS = 600_000;

const OUTPUT_WAIT_MS = 120_000;

/** Two retries, soon: by default npm waits for more than a minute before it gives a dead registry up. */
const PATIENCE = ['--fetch-retry-mintimeout=1000', '--fetch-retry-maxtimeout=5000'];

/** What npm says when it has no way to the registry. */
const UNREACHABLE =
  /ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN|ENETUNREACH|ENOTCACHED|ERR_SOCKET_TIMEOUT/;

/** From this process's own environment: what leads to programs, to the registry and through proxies. */
const INHERITED =
  /^(PATH|HOME|TMPDIR|npm_config_(registry|cache|userconfig)|https?_proxy|no_proxy|NODE_EXTRA_CA_CERTS)$/i;

export interface Ended {
  /** The exit code, or the name of the signal that ended it. */
  readonly code: number | string;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Running {
  /** Resolves once the output so far matches; rejects when the command ends before. */
  until(pattern: RegExp): Promise<RegExpMatchArray>;
  /** As Ctrl-C on a terminal: everything that the command started receives SIGINT. */
  interrupt(): void;
  ended(): Promise<Ended>;
}

interface Surroundings {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** A temporary folder outside of the repository, so that no package is found above it. */
export async function temporaryFolder(): Promise<string> {
  return mkdtemp(path.join(tmpdir(), 'taskq-packaged-'));
}

/** `npm pack` of this repository, as it is built now. The answer is the path of the tarball. */
export async function packRepository(folder: string): Promise<string> {
  const packing = ['pack', '--json', '--pack-destination', folder];
  // Its prepack script builds what has changed; the report begins behind what that prints.
  const { stdout } = await execute('npm', packing, { cwd: REPOSITORY, maxBuffer: 64 * 1024 ** 2 });
  const [report] = JSON.parse(stdout.slice(stdout.search(/^\[$/m))) as [{ filename: string }];
  return path.join(folder, report.filename);
}

/**
 * Installs packages into a folder.
 * @returns the reason when the registry cannot be reached and the cache does not hold them all
 * @throws Error for any other failure of npm
 */
export async function npmInstall(folder: string, ...args: string[]): Promise<string | undefined> {
  const flags = ['--prefer-offline', '--no-audit', '--no-fund', ...PATIENCE];
  const { code, stderr } = await runIn({ cwd: folder }, ['npm', 'install', ...flags, ...args]);
  if (code === 0) return undefined;
  // Without a registry the install itself may complain of anything, such as versions that it cannot compare.
  const ping = await runIn({ cwd: folder }, ['npm', 'ping', ...PATIENCE]);
  const reason = UNREACHABLE.exec(ping.stderr)?.[0];
  if (reason !== undefined) return `the npm registry cannot be reached (${reason})`;
  throw new Error(`npm install ${args.join(' ')} in ${folder} failed\n${stderr}`);
}

/**
 * Skips the test, and says so, where a package could not be had.
 * With `TASKQ_REQUIRE_SYSTEM_TOOLS=1`, as in CI, the test fails instead: a skipped promise is not a kept one.
 */
export function requireInstalled(unreachable: string | undefined, skip: (reason: string) => never): void {
  if (unreachable === undefined) return;
  if (process.env['TASKQ_REQUIRE_SYSTEM_TOOLS'] === '1') throw new Error(unreachable);
  console.warn(`SKIPPED: ${unreachable}`);
  skip(unreachable);
}

export async function writeFiles(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(path.dirname(path.join(folder, name)), { recursive: true });
    await writeFile(path.join(folder, name), text);
  }
}

/** Removes a folder with the test. */
export function removedAfterTest(folder: string): string {
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** Runs a program to its end, in a project. */
export async function runIn(
  surroundings: Surroundings,
  [program, ...args]: [string, ...string[]],
): Promise<Ended> {
  return begin(program, args, surroundings, false).ended();
}

/** Runs a line of a shell to its end, in a project. */
export function runLine(surroundings: Surroundings, line: string): Promise<Ended> {
  return begin(line, [], surroundings, true).ended();
}

/** Begins a line of a shell, which is killed with the test if it still runs then. */
export function startLine(surroundings: Surroundings, line: string): Running {
  const running = begin(line, [], surroundings, true);
  onTestFinished(async () => {
    running.kill('SIGKILL');
    await running.ended();
  });
  return running;
}

interface Begun extends Running {
  kill(signal: NodeJS.Signals): void;
}

function begin(
  command: string,
  args: readonly string[],
  { cwd, env = {} }: Surroundings,
  shell: boolean,
): Begun {
  const inherited = Object.fromEntries(Object.entries(process.env).filter(([name]) => INHERITED.test(name)));
  // A group of its own: npm and npx start the program as a child, which a signal has to reach.
  const child = spawn(command, args, {
    cwd,
    shell,
    detached: true,
    env: { ...inherited, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const written = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text) => (written.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text) => (written.stderr += text));
  let over = false;
  const ended = once(child, 'close').then(([code, signal]): Ended => {
    over = true;
    return { code: (signal as string | null) ?? (code as number), ...written };
  });
  const kill = (signal: NodeJS.Signals) => {
    if (!over && child.pid !== undefined) process.kill(-child.pid, signal);
  };
  const match = (pattern: RegExp) => {
    const found = pattern.exec(written.stdout + written.stderr);
    if (found === null && over) throw new Error(`ended without ${pattern}: ${JSON.stringify(written)}`);
    return found;
  };
  const what = (pattern: RegExp) => `${pattern} of ${command}, which wrote ${JSON.stringify(written)}`;
  return {
    kill,
    interrupt: () => kill('SIGINT'),
    ended: () => ended,
    until: (pattern) =>
      waitFor(() => match(pattern), { timeoutMs: OUTPUT_WAIT_MS, what: String(pattern) }).catch((error) => {
        throw new Error(what(pattern), { cause: error });
      }),
  };
}

/** A database on the test server in which nothing of taskq is yet. Dropped after the test. */
export async function emptyDatabase(title: string): Promise<string> {
  const serverUrl = inject('serverUrl');
  const name = databaseName(title);
  await administer(serverUrl, `CREATE DATABASE ${name}`);
  onTestFinished(async () => {
    await administer(serverUrl, `DROP DATABASE ${name} WITH (FORCE)`);
  });
  return urlOf(serverUrl, name);
}
