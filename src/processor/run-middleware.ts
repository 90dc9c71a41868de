import { runThrough } from '../domain/middleware.ts';
import { type Observer, type TaskFacts, taskFacts } from '../domain/observer.ts';
import type { Outcome } from '../domain/outcome.ts';
import { type ThrownDescription, toError } from '../domain/thrown.ts';
import type { HeldTask } from './held-task.ts';

// What the application puts around every handler: a context to run in, a span, a measurement. It stands around the
// handler and not in front of it: nothing a middleware does or throws keeps a task from running, makes it run twice,
// or changes how it is settled. Otherwise a broken metric would be a queue that stands still.

/** The run that a middleware stands around. */
export interface RunCall {
  readonly task: TaskFacts;
  /** What the enqueue gave along, such as its trace context. */
  readonly headers: Readonly<Record<string, string>>;
  readonly enqueuedAt: Date;
  /** Milliseconds from when the task was due to its claim, both on the database's clock. */
  readonly waitedMs: number;
  /** The handler's own signal. */
  readonly signal: AbortSignal;
}

/**
 * How the handler ended. A result that no handler may return is `threw`, with the TypeError that says so. `outcome` is
 * what is written next; `lost` is known only when that is refused, so the event `settled` has the last word.
 */
export type HandlerEnd =
  | { readonly kind: 'done' | 'continue'; readonly outcome: Outcome }
  | {
      readonly kind: 'threw';
      readonly outcome: Outcome;
      /** As it was thrown: it may quote the payload, secret fields too. */
      readonly error: unknown;
      /** Name, message and stack as they are kept on the row: without secrets, and cut to their limits. */
      describe(): ThrownDescription;
    };

/**
 * Stands around one run of a handler: `next()` runs what is further inside, the handler at last, in the caller's
 * AsyncLocalStorage contexts, and answers how the handler ended. It never rejects.
 */
export type RunMiddleware = (run: RunCall, next: () => Promise<HandlerEnd>) => Promise<unknown>;

/** What a middleware hears of a held task. */
export function runCall(held: HeldTask, signal: AbortSignal): RunCall {
  const { task } = held;
  return {
    task: taskFacts(task),
    // A copy: what a middleware writes on it must not reach the handler.
    headers: Object.freeze({ ...task.headers }),
    enqueuedAt: new Date(task.enqueuedAt.dbMs),
    waitedMs: waitedMs(held),
    signal,
  };
}

/** Milliseconds from when a task was due to its claim. */
export function waitedMs({ task }: HeldTask): number {
  return Math.max(0, task.claimedAt.dbMs - task.runAt.dbMs);
}

/**
 * Calls `handle`, which never rejects, exactly once, with the middleware around it, the first one outermost.
 * Resolves when the handler and every middleware have ended; never rejects.
 */
export async function runThroughMiddleware(
  middleware: readonly RunMiddleware[],
  run: RunCall,
  handle: () => Promise<HandlerEnd>,
  observe: Observer,
): Promise<void> {
  let end: HandlerEnd | undefined;
  await runThrough<RunCall, never, void>(
    {
      middleware: middleware.map((around) => async (call, next) => {
        const ended = async () => {
          await next();
          return end as HandlerEnd;
        };
        await around(call, ended);
      }),
      extend: (call) => call,
      async innermost() {
        end = await handle();
      },
      onError: (thrown) => observe({ kind: 'middleware_failed', task: run.task, error: toError(thrown) }),
    },
    run,
  );
}
