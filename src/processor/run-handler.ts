import { TaskqError } from '../domain/errors.ts';
import {
  type HandlerContext,
  type HandlerTransaction,
  LEAVING,
  type SlicedHandlerContext,
} from '../domain/handler.ts';
import type { Interruption, Run, RunEnd, Write } from '../domain/outcome.ts';
import { checkPayload } from '../domain/payload-check.ts';
import { encodePayload } from '../domain/payload-codec.ts';
import { readStoredPayload } from '../domain/stored-payload.ts';
import type { TaskDefinition } from '../domain/task-definition.ts';
import type { RegisteredHandler } from '../domain/task-set.ts';
import { describeThrown } from '../domain/thrown.ts';
import type { AppClock, Timers } from '../domain/time.ts';
import { type Deadline, handlerDeadline, remainingMs, watchDeadline } from './deadline.ts';
import type { KeepAlive } from './heartbeats.ts';
import type { HeldTask } from './held-task.ts';

export interface RunDeps {
  readonly clock: AppClock;
  readonly timers: Timers;
  readonly marginMs: number;
  /** Aborts when running handlers must stop: at the end of the grace that a shutdown gives them. */
  readonly aborting: AbortSignal;
  /** Aborts when the replica leaves behind what has not returned. */
  readonly leaving: AbortSignal;
  advanceCursor(cursorText: string): Promise<Write | 'unreachable'>;
  complete(transaction: HandlerTransaction): Promise<Write>;
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
  const stored = await readStoredPayload(registered, held.task);
  // The handler is not bothered with it.
  if (stored.kind === 'poison')
    return notStarted({ kind: 'poison', problem: describeThrown(stored.thrown).message }, interrupt);

  const onShutdown = () => interrupt.shutdown();
  aborting.addEventListener('abort', onShutdown);
  const watch = watchDeadline(deadline, clock, deps.timers, () => {
    interrupt.deadline();
    deps.onDeadline();
  });
  const beat = deps.keepAlive((message) => interrupt.leaseLost(message));
  const progress = { advanced: false, completed: false };
  const startedAt = clock.monotonic();
  try {
    const advanceCursor = (cursorText: string) => beat.whileGivingBack(() => deps.advanceCursor(cursorText));
    const complete = (transaction: HandlerTransaction) =>
      beat.whileGivingBack(() => deps.complete(transaction));
    const context = makeContext(registered, held, stored.cursor, deadline, interrupt, progress, {
      ...deps,
      advanceCursor,
      complete,
    });
    const end = await call(registered, stored.payload, context);
    return {
      end,
      interruption: interrupt.reason,
      abortReason: interrupt.signal.reason,
      pastDeadline: remainingMs(deadline, clock) <= 0,
      ...progress,
      ranMs: clock.monotonic() - startedAt,
    };
  } finally {
    watch.cancel();
    beat.cancel();
    aborting.removeEventListener('abort', onShutdown);
  }
}

async function call(
  registered: RegisteredHandler,
  payload: unknown,
  context: HandlerContext,
): Promise<RunEnd> {
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
    ranMs: undefined,
  };
}

// With heartbeats the stamp says until when the lease lives unextended; the handler may go on as long as the beats
// may: to the ceiling, counted from the same reading.
function deadlineOf({ stamp, sentAt }: HeldTask, definition: TaskDefinition, marginMs: number): Deadline {
  if (definition.heartbeatMs === undefined) return handlerDeadline(stamp, sentAt, marginMs);
  const limit = { dbMs: stamp.databaseNow.dbMs + definition.ceilingMs + marginMs };
  return handlerDeadline({ ...stamp, leaseExpiresAt: limit }, sentAt, marginMs);
}

// A claim that was answered late has used up its budget; with heartbeats, a lease that no beat could keep any more.
function isTooLate(deadline: Deadline, held: HeldTask, definition: TaskDefinition, clock: AppClock): boolean {
  return remainingMs(deadline, clock) <= 0 || held.leaseLeftMs(clock) <= (definition.heartbeatMs ?? 0);
}

function makeContext(
  { definition }: RegisteredHandler,
  held: HeldTask,
  cursor: unknown,
  deadline: Deadline,
  interrupt: Interrupt,
  progress: { advanced: boolean; completed: boolean },
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
      if ((await deps.complete(transaction)) !== 'written') {
        throw new TaskqError(
          'LEASE_LOST',
          `task ${task.id} (${task.type}): it was not dequeued, another worker holds it; roll the transaction back`,
        );
      }
      progress.completed = true;
    },
  };
  if (definition.cursor === undefined) return context;
  const cursorSchema = definition.cursor;
  const sliced: SlicedHandlerContext<unknown, unknown> = {
    ...context,
    cursor,
    async advanceCursor(next) {
      await checkPayload(cursorSchema, next, task.type, 'cursor');
      const write = await deps.advanceCursor(encodePayload(next, `cursor of ${task.type}`));
      if (write !== 'written') {
        throw new TaskqError(
          'LEASE_LOST',
          `task ${task.id} (${task.type}): the cursor was not saved, another worker holds the task`,
        );
      }
      progress.advanced = true;
    },
  };
  return sliced;
}
