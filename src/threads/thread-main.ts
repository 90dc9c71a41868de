import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import type { Duration } from '../domain/duration.ts';
import { TaskqError } from '../domain/errors.ts';
import type { TaskId } from '../domain/ids.ts';
import { encodeResult } from '../domain/result.ts';
import { cursorRefused, makeSliceBudget, type SliceProgress, type StoppedEarly } from '../domain/slice.ts';
import { type FromThread, sharedClockMs, type ThreadStart, type ToThread } from './messages.ts';
import { packThrown, unpackThrown } from './thrown-message.ts';

// The other end of `in-thread.ts`: runs one handler in this thread, once, and says how it ended.

const port = parentPort;
if (port === null) throw new Error('thread-main is started by inThread, in a thread of its own');
const start = workerData as ThreadStart;

const aborter = new AbortController();
const advances = new Map<number, (answer: ToThread & { taskq: 'advanced' }) => void>();

function receive(message: ToThread): void {
  if (message.taskq === 'abort') aborter.abort(unpackThrown(message.reason));
  else {
    advances.get(message.call)?.(message);
    advances.delete(message.call);
  }
}

function say(message: FromThread): void {
  port?.postMessage(message);
}

// A loop that computes without a pause hears no message, so whoever looks at the signal fetches them.
function fetchMessages(): void {
  if (port === null || Atomics.load(start.aborting, 0) === 0) return;
  for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port)) {
    receive(next.message as ToThread);
  }
}

function watchedSignal(): AbortSignal {
  const { signal } = aborter;
  const aborted = Object.getOwnPropertyDescriptor(AbortSignal.prototype, 'aborted')?.get;
  Object.defineProperty(signal, 'aborted', {
    get() {
      fetchMessages();
      return aborted?.call(signal);
    },
  });
  Object.defineProperty(signal, 'throwIfAborted', {
    value() {
      if (signal.aborted) throw signal.reason;
    },
  });
  return signal;
}

function makeContext(): { readonly signal: AbortSignal; readonly [field: string]: unknown } {
  const { sliced, ...fields } = start.context;
  const context = {
    ...fields,
    id: fields.id as TaskId,
    signal: watchedSignal(),
    remainingMs: () => Math.max(0, start.deadlineAtMs - sharedClockMs()),
    result: (value: unknown) => say({ taskq: 'result', text: encodeResult(value, fields.type) }),
    complete: () =>
      Promise.reject(
        new TaskqError('OPTION_INVALID', 'complete: no transaction can enter a thread; return instead'),
      ),
  };
  if (sliced === undefined) return context;
  const { signal, remainingMs } = context;
  const clocks = { signal, remainingMs, ranMs: () => sharedClockMs() - start.startedAtMs };
  return {
    ...context,
    ...sliced,
    advanceCursor,
    tryAdvanceCursor,
    sliceBudget: (duration: Duration) => makeSliceBudget(duration, fields.type, clocks),
    stoppedEarly: ({ error, ...why }: StoppedEarly) =>
      say({ taskq: 'stopped_early', why, thrown: packThrown(error, signal.reason) }),
  };
}

let calls = 0;

function tryAdvanceCursor(next: unknown, progress?: SliceProgress): Promise<boolean> {
  return new Promise((resolve, reject) => {
    calls += 1;
    const call = calls;
    // Throws for what cannot be cloned, which rejects.
    say({ taskq: 'advance', call, next, progress });
    advances.set(call, ({ written, thrown }) => {
      if (thrown === undefined) resolve(written);
      else reject(unpackThrown(thrown));
    });
  });
}

async function advanceCursor(next: unknown, progress?: SliceProgress): Promise<void> {
  const { id, type } = start.context;
  if (!(await tryAdvanceCursor(next, progress))) throw cursorRefused(id, type);
}

async function loadHandler(): Promise<(payload: unknown, context: object) => unknown> {
  const { module, exportName } = start;
  const loaded = (await import(module)) as Readonly<Record<string, unknown>>;
  const handler = loaded[exportName];
  if (typeof handler === 'function') return handler as (payload: unknown, context: object) => unknown;
  throw new TaskqError(
    'THREAD_FAILED',
    `${module} exports no handler function under the name '${exportName}'`,
  );
}

async function run(): Promise<FromThread> {
  try {
    const handler = await loadHandler();
    const context = makeContext();
    // Loading took its time: what is not wanted any more is not begun.
    context.signal.throwIfAborted();
    const result = await handler(start.payload, context);
    const isKnown = result === undefined || result === 'done' || result === 'continue';
    // Anything else may not be cloneable, and the replica refuses null as it would refuse it.
    return { taskq: 'returned', result: isKnown ? result : null };
  } catch (thrown) {
    return { taskq: 'threw', thrown: packThrown(thrown, aborter.signal.reason) };
  }
}

// The listener also keeps the thread alive while its handler waits for nothing that would.
port.on('message', receive);
say(await run());
