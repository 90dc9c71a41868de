import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { type ResourceLimits, Worker } from 'node:worker_threads';
import { TaskqError } from '../domain/errors.ts';
import {
  type HandlerContext,
  type HandlerResult,
  LEAVING,
  type SlicedHandlerContext,
} from '../domain/handler.ts';
import { THREAD_UNWIND_MS, TIMER_MS_MAX } from '../domain/limits.ts';
import { decodePayload } from '../domain/payload-codec.ts';
import { describeThrown, toError } from '../domain/thrown.ts';
import { systemTimers, type Timer } from '../domain/time.ts';
import {
  type FromThread,
  isFromThread,
  sharedClockMs,
  type ThreadContextFields,
  type ThreadStart,
  type ToThread,
} from './messages.ts';
import { packThrown, unpackThrown } from './thrown-message.ts';

// One thread for one run, started for it and ended with it. A thread that served several runs would save its start,
// but what one run leaves behind (timers, globals, memory, a loop that nobody can stop) would be there in the next,
// and the run that is ended by force takes its thread with it anyway.

export interface ThreadOptions {
  /** The export that is the handler. Default `'default'`. */
  readonly exportName?: string;
  /** Memory bounds of the thread, as `node:worker_threads` takes them. Past them the run fails, not the replica. */
  readonly resourceLimits?: ResourceLimits;
  /** Node's flags for the thread, such as a loader's `--import`. Default: those of the process. */
  readonly execArgv?: readonly string[];
}

/** Fits every task type, sliced or not: what the handler really takes is typed in its own module. */
export type ThreadHandler = (payload: unknown, context: HandlerContext) => Promise<HandlerResult | undefined>;

/**
 * A handler that runs in a `node:worker_threads` thread: for work that computes rather than waits.
 * `module` exports an ordinary handler: `const handler: Handler<typeof renderReport> = (payload, context) => …`.
 *
 * The replica's event loop stays free, and the run can be ended from outside: a handler that has not returned
 * 0.5 s after its signal aborted at the deadline, or by the end of the wait at shutdown, is terminated, and its
 * slot takes the next task. A crash of the thread, `process.exit` in it included, is an ordinary failure.
 * Each run starts a thread of its own: about 30 ms and 10 MB, plus whatever `module` imports.
 *
 * @param module a URL (`new URL('./render-report.thread.js', import.meta.url)`), or an absolute path, of JavaScript
 * @throws TaskqError `DEFINITION_INVALID` for a module that is not there. What a run throws is its failure:
 *   `THREAD_FAILED` when the thread ended by itself or the payload cannot be cloned
 */
export function inThread(module: URL | string, options: ThreadOptions = {}): ThreadHandler {
  const url = checkModule(module);
  return async (payload, context) => {
    context.signal.throwIfAborted();
    return new ThreadRun(url, options, payload, context).result();
  };
}

// Beside this file, as .js in the package and as .ts in its sources.
const THREAD_MAIN = new URL(`./thread-main${path.extname(import.meta.url)}`, import.meta.url);

class ThreadRun {
  readonly #context: HandlerContext & { readonly [LEAVING]?: AbortSignal };
  readonly #aborting = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
  readonly #worker: Worker;
  readonly #exited: Promise<number>;
  readonly #advances = new Set<Promise<void>>();
  #end: (FromThread & { taskq: 'returned' | 'threw' }) | undefined;
  #crash: Error | undefined;
  #terminated = false;
  #timer: Timer | undefined;

  constructor(url: URL, options: ThreadOptions, payload: unknown, context: HandlerContext) {
    this.#context = context;
    this.#worker = this.#start(url, options, payload);
    this.#exited = new Promise((resolve) => this.#worker.once('exit', resolve));
    this.#worker.on('message', (message: unknown) => {
      if (isFromThread(message)) this.#receive(message);
    });
    const onError = (thrown: unknown) => {
      this.#crash ??= toError(thrown);
    };
    this.#worker.on('error', onError).on('messageerror', (error) => {
      onError(error);
      this.#terminate();
    });
  }

  /** Settles once the thread is gone: whatever it was doing has ended by then. */
  async result(): Promise<HandlerResult | undefined> {
    const { signal, [LEAVING]: leaving } = this.#context;
    const onAbort = () => this.#abort();
    const onLeaving = () => this.#terminate();
    signal.addEventListener('abort', onAbort, { once: true });
    leaving?.addEventListener('abort', onLeaving, { once: true });
    try {
      const exitCode = await this.#exited;
      // A cursor that is being saved is a part of how the run ended.
      await Promise.all(this.#advances);
      return this.#outcome(exitCode);
    } finally {
      this.#timer?.cancel();
      signal.removeEventListener('abort', onAbort);
      leaving?.removeEventListener('abort', onLeaving);
    }
  }

  #start(
    url: URL,
    { exportName = 'default', resourceLimits, execArgv }: ThreadOptions,
    payload: unknown,
  ): Worker {
    const startedAtMs = sharedClockMs();
    const workerData: ThreadStart = {
      module: url.href,
      exportName,
      payload,
      context: fieldsOf(this.#context),
      startedAtMs,
      deadlineAtMs: startedAtMs + this.#context.remainingMs(),
      aborting: this.#aborting,
    };
    try {
      return new Worker(THREAD_MAIN, {
        workerData,
        name: this.#context.type,
        ...(resourceLimits === undefined ? {} : { resourceLimits }),
        ...(execArgv === undefined ? {} : { execArgv: [...execArgv] }),
      });
    } catch (thrown) {
      const isUncloneable = describeThrown(thrown).name === 'DataCloneError';
      throw this.#failed(isUncloneable ? 'cannot be given its payload' : 'could not be started', thrown);
    }
  }

  #receive(message: FromThread): void {
    if (message.taskq === 'advance') {
      const advance = this.#advance(message);
      this.#advances.add(advance);
      void advance.then(() => this.#advances.delete(advance));
      return;
    }
    if (message.taskq === 'result') {
      // Encoded and decoded once: it passes the same check again.
      if (this.#end === undefined) this.#context.result(decodePayload(message.text));
      return;
    }
    if (message.taskq === 'stopped_early') {
      const { why, thrown } = message;
      this.#sliced?.stoppedEarly({ ...why, error: unpackThrown(thrown, this.#context.signal.reason) });
      return;
    }
    this.#end ??= message;
    this.#terminate();
  }

  get #sliced(): SlicedHandlerContext<unknown, unknown> | undefined {
    return isSliced(this.#context) ? this.#context : undefined;
  }

  /** Never rejects: the thread is told. */
  async #advance({ call, next, progress }: FromThread & { taskq: 'advance' }): Promise<void> {
    try {
      const written = (await this.#sliced?.tryAdvanceCursor(next, progress)) ?? false;
      this.#say({ taskq: 'advanced', call, written, thrown: undefined });
    } catch (thrown) {
      this.#say({ taskq: 'advanced', call, written: false, thrown: packThrown(thrown) });
    }
  }

  // At a shutdown the handler has what the replica gives to every handler; otherwise the row is about to be
  // somebody else's. In both cases its own deadline is the end.
  #abort(): void {
    const { signal, [LEAVING]: leaving } = this.#context;
    this.#say({ taskq: 'abort', reason: packThrown(signal.reason) });
    Atomics.store(this.#aborting, 0, 1);
    const isShutdown = signal.reason instanceof TaskqError && signal.reason.code === 'SHUTDOWN';
    const leftMs = isShutdown && leaving !== undefined ? this.#context.remainingMs() : 0;
    const waitMs = Math.min(leftMs + THREAD_UNWIND_MS, TIMER_MS_MAX);
    this.#timer = systemTimers.after(waitMs, () => this.#terminate());
  }

  #say(message: ToThread): void {
    this.#worker.postMessage(message);
  }

  #terminate(): void {
    if (this.#terminated) return;
    this.#terminated = true;
    void this.#worker.terminate();
  }

  #outcome(exitCode: number): HandlerResult | undefined {
    const { signal } = this.#context;
    if (this.#end?.taskq === 'returned') return this.#end.result as HandlerResult | undefined;
    if (this.#end !== undefined) throw unpackThrown(this.#end.thrown, signal.reason);
    if (this.#crash !== undefined) throw this.#failed('crashed', this.#crash);
    if (signal.aborted) throw signal.reason;
    throw this.#failed(`ended with exit code ${exitCode} before its handler returned`);
  }

  #failed(problem: string, cause?: unknown): TaskqError {
    const message = `the thread of ${this.#context.type} ${problem}`;
    return new TaskqError('THREAD_FAILED', message, cause === undefined ? {} : { cause });
  }
}

function fieldsOf(context: HandlerContext): ThreadContextFields {
  const { id, type, queue, attempt, maxAttempts, headers, enqueuedAt } = context;
  const sliced = isSliced(context) ? { cursor: context.cursor, progress: context.progress } : undefined;
  return { id, type, queue, attempt, maxAttempts, headers: { ...headers }, enqueuedAt, sliced };
}

function isSliced(context: HandlerContext): context is SlicedHandlerContext<unknown, unknown> {
  return 'tryAdvanceCursor' in context;
}

function checkModule(module: URL | string): URL {
  const url = toFileUrl(module);
  if (url === undefined) {
    throw new TaskqError(
      'DEFINITION_INVALID',
      `inThread: expected a file, as new URL('./report.thread.js', import.meta.url) or an absolute path, received '${String(module)}'`,
    );
  }
  if (!existsSync(url)) {
    throw new TaskqError('DEFINITION_INVALID', `inThread: there is no file ${fileURLToPath(url)}`);
  }
  return url;
}

function toFileUrl(module: URL | string): URL | undefined {
  if (typeof module === 'string' && path.isAbsolute(module)) return pathToFileURL(module);
  const url = typeof module === 'string' ? parseUrl(module) : module;
  return url?.protocol === 'file:' ? url : undefined;
}

function parseUrl(text: string): URL | undefined {
  return URL.canParse(text) ? new URL(text) : undefined;
}
