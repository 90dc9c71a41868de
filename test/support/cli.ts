import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { waitFor } from './wait.ts';

const REPOSITORY = fileURLToPath(new URL('../../', import.meta.url));
const PROGRAM = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));

/** The small project of a user: definitions, generated code and handlers. */
export const PROJECT = fileURLToPath(new URL('../cli/fixtures/project/', import.meta.url));

/** A slow machine is no failure; the test's own limit comes later. */
const OUTPUT_WAIT_MS = 50_000;

export interface Surroundings {
  readonly cwd?: string;
  /** Beside PATH and the folders; nothing else of this process's own environment is passed on. */
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
}

export interface Ended {
  /** The exit code, or the name of the signal that ended it. */
  readonly code: number | string;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Started {
  readonly child: ChildProcess;
  stdout(): string;
  stderr(): string;
  /** Resolves once the output so far matches; rejects when the process ends before. */
  until(pattern: RegExp): Promise<RegExpMatchArray>;
  ended(): Promise<Ended>;
}

/** Makes sure that what is run is what the sources say. */
export function build(): void {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['cli/setup.mjs'], {
    cwd: REPOSITORY,
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`the build failed\n${stdout}${stderr}`);
}

/** Runs `taskq` to its end. */
export function taskq(args: readonly string[], surroundings: Surroundings = {}): Promise<Ended> {
  return start(args, surroundings).ended();
}

/** Starts `taskq`, which is killed with the test if it still runs then. */
export function start(args: readonly string[], surroundings: Surroundings = {}): Started {
  const { cwd = PROJECT, env = {}, stdin } = surroundings;
  const inherited = Object.fromEntries(
    ['PATH', 'HOME', 'TMPDIR'].flatMap((name) => {
      const value = process.env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
  const child = spawn(process.execPath, [PROGRAM, ...args], { cwd, env: { ...inherited, ...env } });
  child.stdin.on('error', () => undefined);
  child.stdin.end(stdin ?? '');
  const written = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text) => (written.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text) => (written.stderr += text));
  const ended = once(child, 'close').then(
    ([code, signal]): Ended => ({ code: (signal as string | null) ?? (code as number), ...written }),
  );
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  let over = false;
  void ended.then(() => {
    over = true;
  });
  return {
    child,
    stdout: () => written.stdout,
    stderr: () => written.stderr,
    ended: () => ended,
    until: (pattern) =>
      waitFor(
        () => {
          const found = pattern.exec(written.stdout + written.stderr);
          if (found === null && over) throw new Error(`ended without ${pattern}: ${JSON.stringify(written)}`);
          return found;
        },
        { timeoutMs: OUTPUT_WAIT_MS, what: `${pattern} of taskq ${args.join(' ')}` },
      ),
  };
}
