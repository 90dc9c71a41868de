import { TaskqError } from '../domain/errors.ts';
import { type HandlerContext, type HandlerTransaction, LEAVING } from '../domain/handler.ts';
import type { Observer } from '../domain/observer.ts';
import type { Interruption, Run, RunEnd, Write } from '../domain/outcome.ts';
import { decodePayload } from '../domain/payload-codec.ts';
import { encodeResult } from '../domain/result.ts';
import { secretShape } from '../domain/secret-fields.ts';
import { type LearnedSecrets, NO_SECRETS } from '../domain/secrets.ts';
import { cursorRefused } from '../domain/slice.ts';
import { readStoredPayload } from '../domain/stored-payload.ts';
import { ceilingMsOf } from '../domain/task.ts';
import type { TaskDefinition } from '../domain/task-definition.ts';
import type { RegisteredHandler } from '../domain/task-set.ts';
import type { AppClock, MonotonicMs, Timers } from '../domain/time.ts';
import { type Deadline, handlerDeadline, remainingMs, watchDeadline } from './deadline.ts';
import { decide, decisionFacts } from './decide.ts';
import type { KeepAlive } from './heartbeats.ts';
import type { HeldTask } from './held-task.ts';
import { type HandlerEnd, type RunMiddleware, runCall, runThroughMiddleware } from './run-middleware.ts';
import { type Advance, slicedContext } from './sliced-context.ts';

export interface RunDeps {
  readonly clock: AppClock;
  readonly timers: Timers;
  readonly marginMs: number;
  /** Around every handler, the first one outermost. */
  readonly middleware: readonly RunMiddleware[];
  readonly observe: Observer;
  /** Is taught what is secret in the payload; undefined for a type that has nothing secret. */
  readonly secrets?: LearnedSecrets | undefined;
  /** Aborts when running handlers must stop: at the end of the grace that a shutdown gives them. */
  readonly aborting: AbortSignal;
  /** Aborts when the replica leaves behind what has not returned. */
  readonly leaving: AbortSignal;
  advanceCursor(advance: Advance): Promise<Write | 'unreachable'>;
  complete(transaction: HandlerTransaction, resultText: string | undefined): Promise<Write>;
  /** Keeps the lease of a type with a heartbeat, and says when it cannot. */
  keepAlive(onLost: (message: string) => void): KeepAlive;
  /** Called at the deadline, if the handler is still running then. */
  onDeadline(): void;
}

/** Runs one handler for exactly the lease that was taken. Whatever happens comes back as a value. */
export async function runHandler(registered: RegisteredHandler, held: HeldTask, deps: RunDeps): Promise<Run> {
  const { clock, aborting } = deps;
  const deadline = deadlineOf(held, registered.definition, deps.marginMs);
  const interrupt = new Interrupt();
  if (isTooLate(deadline, held, registered.definition, clock))
    return notStarted({ kind: 'never_started' }, interrupt);
  if (aborting.aborted) {
    interrupt.shutdown();
    return notStarted({ kind: 'threw', thrown: interrupt.signal.reason }, interrupt);
  }
  const { secrets } = deps;
  const stored = await readStoredPayload(registered, held.task, secrets);
  // The handler is not bothered with it.
  if (stored.kind === 'poison') {
    const { message } = (secrets ?? NO_SECRETS).describe(stored.thrown);
    return notStarted({ kind: 'poison', problem: message }, interrupt);
  }

  const onShutdown = () => interrupt.shutdown();
  aborting.addEventListener('abort', onShutdown);
  const watch = watchDeadline(deadline, clock, deps.timers, () => {
    interrupt.deadline();
    deps.onDeadline();
  });
  const beat = deps.keepAlive((message) => interrupt.leaseLost(message));
  const progress: Progress = {
    startedAt: clock.monotonic(),
    advanced: false,
    advanceRefused: false,
    completed: false,
    resultText: undefined,
    completedWith: undefined,
  };
  try {
    const advanceCursor = (advance: Advance) => {
      learnCursor(registered.definition, advance, secrets);
      return beat.whileGivingBack(() => deps.advanceCursor(advance));
    };
    const complete: RunDeps['complete'] = (transaction, resultText) =>
      beat.whileGivingBack(() => deps.complete(transaction, resultText));
    const context = makeContext(registered, held, stored.cursor, deadline, interrupt, progress, {
      ...deps,
      advanceCursor,
      complete,
    });
    // All of it is taken when the handler returns: what a middleware does after that is no part of the run.
    const run = async () => {
      progress.startedAt = clock.monotonic();
      const end = continuedAfterRefusal(await call(registered, stored.payload, context), progress, context);
      const { advanced, completed, resultText, completedWith } = progress;
      return {
        end,
        interruption: interrupt.reason,
        abortReason: interrupt.signal.reason,
        pastDeadline: remainingMs(deadline, clock) <= 0,
        advanced,
        completed,
        resultText,
        completedWith,
        ranMs: clock.monotonic() - progress.startedAt,
      };
    };
    return await within(deps, registered.definition, held, interrupt.signal, run);
  } finally {
    watch.cancel();
    beat.cancel();
    aborting.removeEventListener('abort', onShutdown);
  }
}

/** Runs the handler inside the middleware, of which its end is none of the doing. */
async function within(
  { middleware, observe, secrets }: RunDeps,
  definition: TaskDefinition,
  held: HeldTask,
  signal: AbortSignal,
  run: () => Promise<Run & { readonly end: Returned }>,
): Promise<Run> {
  if (middleware.length === 0) return run();
  let ran: Run | undefined;
  const handle = async (): Promise<HandlerEnd> => {
    const ended = await run();
    ran = ended;
    const facts = decisionFacts(held.task, definition, secrets);
    const { outcome } = decide(ended, facts);
    if (ended.end.kind !== 'threw') return { kind: ended.end.kind, outcome };
    const { thrown } = ended.end;
    const describe = () => (secrets ?? NO_SECRETS).describe(thrown);
    return { kind: 'threw', outcome, error: thrown, describe };
  };
  await runThroughMiddleware(middleware, runCall(held, signal), handle, observe);
  return ran as unknown as Run;
}

/** Where the next slice begins is quoted as easily as where this one did. */
function learnCursor(
  { cursor }: TaskDefinition,
  { cursorText }: Advance,
  secrets: LearnedSecrets | undefined,
): void {
  const shape = cursor === undefined || secrets === undefined ? undefined : secretShape(cursor);
  if (shape !== undefined) secrets?.learn(decodePayload(cursorText), shape);
}

/** How a handler that was started can end. */
type Returned = Extract<RunEnd, { kind: 'done' | 'continue' | 'threw' }>;

async function call(
  registered: RegisteredHandler,
  payload: unknown,
  context: HandlerContext,
): Promise<Returned> {
  try {
    const result: unknown = await registered.handler(payload as never, context as never);
    if (result === undefined || result === 'done') return { kind: 'done' };
    if (result === 'continue') return { kind: 'continue' };
    const problem = `the handler of ${context.type} returned neither nothing, 'done' nor 'continue'`;
    return { kind: 'threw', thrown: new TypeError(problem) };
  } catch (thrown) {
    return { kind: 'threw', thrown };
  }
}

// Another worker holds the row, so this one has no progress that anything could go on from, whatever its handler says.
function continuedAfterRefusal(
  end: Returned,
  { advanced, advanceRefused }: Progress,
  { id, type }: HandlerContext,
): Returned {
  const isRefused = end.kind === 'continue' && advanceRefused && !advanced;
  return isRefused ? { kind: 'threw', thrown: cursorRefused(id, type) } : end;
}

/** The signal of one run. The first reason wins, and is kept as data beside what the signal carries. */
class Interrupt {
  readonly #controller = new AbortController();
  reason: Interruption | undefined;

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  deadline(): void {
    this.#fire({ kind: 'deadline' }, new TaskqError('DEADLINE_REACHED'));
  }

  leaseLost(message: string): void {
    this.#fire({ kind: 'lease_lost' }, new TaskqError('LEASE_LOST', message));
  }

  shutdown(): void {
    this.#fire({ kind: 'shutdown' }, new TaskqError('SHUTDOWN'));
  }

  #fire(reason: Interruption, error: TaskqError): void {
    if (this.reason !== undefined) return;
    this.reason = reason;
    this.#controller.abort(error);
  }
}

function notStarted(end: RunEnd, interrupt: Interrupt): Run {
  return {
    end,
    interruption: interrupt.reason,
    abortReason: interrupt.signal.reason,
    pastDeadline: end.kind === 'never_started',
    advanced: false,
    completed: false,
    resultText: undefined,
    completedWith: undefined,
    ranMs: undefined,
  };
}

// With heartbeats the stamp says until when the lease lives unextended; the handler may go on as long as the beats
// may: to the ceiling, counted from the same reading.
function deadlineOf(
  { task, stamp, sentAt }: HeldTask,
  definition: TaskDefinition,
  marginMs: number,
): Deadline {
  if (definition.heartbeatMs === undefined) return handlerDeadline(stamp, sentAt, marginMs);
  const limit = { dbMs: stamp.databaseNow.dbMs + ceilingMsOf(definition, task) + marginMs };
  return handlerDeadline({ ...stamp, leaseExpiresAt: limit }, sentAt, marginMs);
}

// A claim that was answered late has used up its budget; with heartbeats, a lease that no beat could keep any more.
function isTooLate(deadline: Deadline, held: HeldTask, definition: TaskDefinition, clock: AppClock): boolean {
  return remainingMs(deadline, clock) <= 0 || held.leaseLeftMs(clock) <= (definition.heartbeatMs ?? 0);
}

/** What the handler has done about its row so far. */
type Progress = {
  -readonly [Field in 'advanced' | 'completed' | 'resultText' | 'completedWith']: Run[Field];
} & {
  startedAt: MonotonicMs;
  /** A cursor was given that could not be saved. */
  advanceRefused: boolean;
};

function makeContext(
  { definition }: RegisteredHandler,
  held: HeldTask,
  cursor: unknown,
  deadline: Deadline,
  interrupt: Interrupt,
  progress: Progress,
  deps: RunDeps,
): HandlerContext {
  const { task } = held;
  const context: HandlerContext & { [LEAVING]: AbortSignal } = {
    id: task.id,
    type: task.type,
    queue: task.queue,
    attempt: task.attempt,
    maxAttempts: task.maxAttempts,
    headers: task.headers,
    enqueuedAt: new Date(task.enqueuedAt.dbMs),
    signal: interrupt.signal,
    remainingMs: () => Math.max(0, remainingMs(deadline, deps.clock)),
    [LEAVING]: deps.leaving,
    async complete(transaction) {
      const { resultText } = progress;
      if ((await deps.complete(transaction, resultText)) !== 'written') {
        throw new TaskqError(
          'LEASE_LOST',
          `task ${task.id} (${task.type}): it was not dequeued, another worker holds it; roll the transaction back`,
        );
      }
      progress.completed = true;
      progress.completedWith = resultText;
    },
    result(value) {
      const resultText = encodeResult(value, task.type);
      if (task.isKept) progress.resultText = resultText;
    },
  };
  if (definition.cursor === undefined) return context;
  return slicedContext(context, {
    task,
    cursorSchema: definition.cursor,
    cursor,
    observe: deps.observe,
    ranMs: () => deps.clock.monotonic() - progress.startedAt,
    async advance(advance) {
      const write = await deps.advanceCursor(advance);
      if (write === 'written') progress.advanced = true;
      else progress.advanceRefused = true;
      return write;
    },
  });
}
