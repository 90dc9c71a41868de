import { type ChildProcess, fork } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { TaskEvents } from './task-events.ts';
import type { FromWorker, StoreSettings, ToWorker } from './worker-messages.ts';

/** A worker that is not ready by then never will be. */
const START_MS_MAX = 20_000;
/** A worker that is asked to stop and is still there after this is killed. */
const STOP_MS_MAX = 10_000;

export interface WorkerOptions {
  readonly name: string;
  readonly stores: StoreSettings;
  readonly events: TaskEvents;
  /** Told what went wrong in the worker, one sentence at a time. */
  readonly onTrouble: (text: string) => void;
}

/** A worker process, as the demo that started it sees it. */
export class WorkerProcess {
  readonly name: string;
  readonly #child: ChildProcess;
  readonly #exited: Promise<void>;
  #isExpectedToEnd = false;

  /** Starts the process. */
  constructor({ name, stores, events, onTrouble }: WorkerOptions) {
    this.name = name;
    // Of the same kind as this file: `.js` in the build.
    const entry = `worker${path.extname(fileURLToPath(import.meta.url))}`;
    this.#child = fork(path.join(path.dirname(fileURLToPath(import.meta.url)), entry), [], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    this.#exited = new Promise((resolve) => this.#child.once('exit', () => resolve()));
    this.#child.on('error', (error) => onTrouble(error.message));
    this.#child.on('message', (message: FromWorker) => {
      if (message.kind === 'trouble') onTrouble(message.text);
      if (message.kind === 'claimed' || message.kind === 'settled')
        events.record({ ...message, worker: name, at: Date.now() });
    });
    this.#child.once('exit', (code, signal) => {
      if (!this.#isExpectedToEnd) onTrouble(`ended with ${signal ?? `exit code ${code}`}`);
    });
    this.#send({ kind: 'start', name, stores });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** SIGKILL: the process runs no further line of code. Resolves when it is gone. */
  async kill(): Promise<void> {
    this.#isExpectedToEnd = true;
    this.#child.kill('SIGKILL');
    await this.#exited;
  }

  /** Asks the worker to stop as a deploy would; resolves when its process is gone. */
  async stop(): Promise<void> {
    if (this.#isExpectedToEnd || this.#hasExited()) return;
    this.#isExpectedToEnd = true;
    this.#send({ kind: 'stop' });
    const late = setTimeout(() => this.#child.kill('SIGKILL'), STOP_MS_MAX);
    await this.#exited;
    clearTimeout(late);
  }

  /**
   * Resolves when the worker drains tasks.
   * @throws Error when it ends before, or takes too long
   */
  ready(): Promise<void> {
    return new Promise((resolve, reject) => {
      const giveUp = (what: string) => {
        clearTimeout(timer);
        this.#child.kill('SIGKILL');
        reject(new Error(`worker ${this.name} ${what}`));
      };
      const timer = setTimeout(() => giveUp(`was not ready after ${START_MS_MAX} ms`), START_MS_MAX);
      const onExit = () => giveUp('ended before it was ready');
      this.#child.once('exit', onExit);
      this.#child.on('message', (message: FromWorker) => {
        if (message.kind !== 'ready') return;
        clearTimeout(timer);
        this.#child.off('exit', onExit);
        resolve();
      });
    });
  }

  #send(message: ToWorker): void {
    if (this.#child.connected) this.#child.send(message);
  }

  #hasExited(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }
}
