import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import type { QueueEvent } from '../../src/index.ts';
import { EventLog } from './replica.ts';
import { waitFor } from './wait.ts';

// A replica in a process of its own, for what a test cannot do to its own process: kill it, block it, watch it end.
// The fixture is told its settings as JSON, and reports by lines on stdout (`fixtures/report.ts`).

export interface WorkerProcess {
  readonly child: ChildProcess;
  /** What the replica's observer heard. Errors arrive as `{ message }`. */
  readonly events: EventLog;
  /** What the fixture said of itself, in order. */
  readonly said: readonly string[];
  /** Resolves once the fixture has said `word`. */
  heard(word: string): Promise<void>;
  /** One command line for the fixture. */
  send(command: string): void;
  readonly ended: Promise<{ exitCode: number | null; signal: NodeJS.Signals | null; stderr: string }>;
}

/** Starts `fixtures/<script>`; it is killed when the test ends before it does. */
export function startWorkerProcess(
  script: string,
  settings: object,
  environment: Readonly<Record<string, string>> = {},
): WorkerProcess {
  const file = fileURLToPath(new URL(`../hazards/fixtures/${script}`, import.meta.url));
  const child = spawn(process.execPath, ['--import', 'jiti/register', file, JSON.stringify(settings)], {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...process.env, ...environment },
  });
  const events = new EventLog();
  const said: string[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => {
    const report = JSON.parse(line) as { event?: QueueEvent; said?: string };
    if (report.event !== undefined) events.observe(report.event);
    if (report.said !== undefined) said.push(report.said);
  });
  // A fixture that has ended takes no more commands.
  child.stdin.on('error', () => {});
  const ended = Promise.all([text(child.stderr), once(child, 'close')]).then(
    ([stderr, [exitCode, signal]]) => ({ exitCode, signal, stderr }),
  );
  // Otherwise a fixture that did not even load shows as an event that never came.
  void ended.then(({ stderr }) => {
    if (stderr !== '') console.error(`${script}: ${stderr}`);
  });
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  return {
    child,
    events,
    said,
    ended,
    async heard(word) {
      await waitFor(() => said.includes(word) || child.exitCode !== null, {
        what: `the worker to say ${word}`,
      });
      if (!said.includes(word))
        throw new Error(`the worker ended without saying ${word}: ${(await ended).stderr}`);
    },
    send: (command) => void child.stdin.write(`${command}\n`),
  };
}
