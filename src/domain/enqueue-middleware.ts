import { checkHeaders } from './enqueue-options.ts';
import { TaskqError } from './errors.ts';
import type { TaskId } from './ids.ts';
import { runThrough } from './middleware.ts';

/** One call of `enqueue` or `enqueueMany`, as its middleware sees it. */
export interface EnqueueCall {
  readonly type: string;
  readonly queue: string;
  /** 1 for `enqueue`; undefined for a stream, whose end is not known. */
  readonly count: number | undefined;
  /** The caller's, and what the middleware outside of this one has added. */
  readonly headers: Readonly<Record<string, string>>;
}

/** What a middleware may give to `next`. */
export interface EnqueueAdditions {
  /** For every task of the call. What the caller has given itself, under the same name, wins. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** What an enqueue has done, as its middleware sees it. */
export interface EnqueueEnd {
  /** In the order of the payloads; undefined for a stream, which may be of any length. */
  readonly tasks: readonly EnqueuedTask[] | undefined;
}

export interface EnqueuedTask {
  readonly id: TaskId;
  readonly status: 'enqueued' | 'existing' | 'replaced';
}

/**
 * Runs around an enqueue, for traces and metrics: call `next`, and await it to see the end. It rejects with the error
 * of the enqueue, which reaches the caller whatever the middleware does with it. Nothing that the middleware does stops
 * or repeats an enqueue. The options have been checked before, the payloads are within.
 */
export type EnqueueMiddleware = (
  call: EnqueueCall,
  next: (additions?: EnqueueAdditions) => Promise<EnqueueEnd>,
) => Promise<unknown>;

type AroundEnqueue = <Answer>(
  call: EnqueueCall,
  work: (headers: EnqueueCall['headers']) => Promise<Answer>,
  tasksOf: (answer: Answer) => EnqueueEnd['tasks'],
) => Promise<Answer>;

/**
 * Puts the middleware around an enqueue. Undefined without any: then nothing is to stand in between, not even a promise.
 * @throws TaskqError `CONFIG_INVALID` for a middleware that is no function
 */
export function aroundEnqueue(
  middleware: readonly EnqueueMiddleware[],
  onError: (error: unknown) => void,
): AroundEnqueue | undefined {
  if (!Array.isArray(middleware) || middleware.some((each) => typeof each !== 'function')) {
    throw new TaskqError('CONFIG_INVALID', 'middleware: expected an array of functions');
  }
  if (middleware.length === 0) return undefined;
  return <Answer>(
    call: EnqueueCall,
    work: (headers: EnqueueCall['headers']) => Promise<Answer>,
    tasksOf: (answer: Answer) => EnqueueEnd['tasks'],
  ) => {
    let end: EnqueueEnd = { tasks: undefined };
    return runThrough<EnqueueCall, EnqueueAdditions, Answer>(
      {
        middleware: middleware.map((around: EnqueueMiddleware) => async (current, next) => {
          await around(current, (additions) => {
            const ended = next(additions).then(() => end);
            // A middleware that does not await it must not end the process with an unhandled rejection.
            ended.catch(() => {});
            return ended;
          });
        }),
        extend: withAdditions,
        async innermost({ headers }) {
          const answer = await work(headers);
          end = { tasks: tasksOf(answer) };
          return answer;
        },
        onError,
      },
      // A copy: what a middleware writes on it must not end up in the caller's own object.
      Object.freeze({ ...call, headers: Object.freeze({ ...call.headers }) }),
    );
  };
}

function withAdditions(call: EnqueueCall, { headers }: EnqueueAdditions): EnqueueCall {
  if (headers === undefined) return call;
  const added = checkHeaders(headers, 'headers of a middleware');
  return Object.freeze({ ...call, headers: Object.freeze({ ...added, ...call.headers }) });
}
