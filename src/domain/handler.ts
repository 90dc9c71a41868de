import type { ZodType } from 'zod';
import type { Duration } from './duration.ts';
import type { TaskId } from './ids.ts';
import type { SliceBudget, SliceProgress, StoppedEarly } from './slice.ts';
import type { CursorInput, CursorOf, PayloadOutput, TaskDefinition } from './task-definition.ts';

/** What a handler says when it does not throw. Returning nothing means `'done'`. */
export type HandlerResult = 'done' | 'continue';

/**
 * Where a context carries the signal of the very end: the replica is leaving and waits for nobody any more.
 * Only what can be ended from outside (a thread) listens to it. No part of what handlers are promised.
 */
export const LEAVING: unique symbol = Symbol('taskq.leaving');

/**
 * A transaction of the caller's: a Kysely transaction over whatever tables, or what `queryExecutor` made of
 * another driver's. Only named by its shape here, since the domain knows no database.
 */
export interface HandlerTransaction {
  executeQuery<Row>(query: never): Promise<{ readonly rows: Row[] }>;
  withoutPlugins(): HandlerTransaction;
}

/** What a handler may know of its task, and how it is told to stop. It never sees the row or a lane. */
export interface HandlerContext {
  readonly id: TaskId;
  readonly type: string;
  readonly queue: string;
  /** 1 for the first run. Burnt by the claim, so a crashed run counts. */
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly enqueuedAt: Date;
  /**
   * Aborts at the deadline, at shutdown, and when the heartbeats of its type lose the lease; its `reason` is a
   * TaskqError `DEADLINE_REACHED`, `SHUTDOWN` or `LEASE_LOST`.
   * Pass it to everything that waits. A handler that ignores it keeps running beside its own re-run.
   */
  readonly signal: AbortSignal;
  /** Milliseconds until the deadline. */
  remainingMs(): number;
  /**
   * Dequeues the task inside the handler's own transaction, for a handler whose work is in the queue's database:
   * effect and dequeue commit together, and a crash between them cannot happen. Return `'done'` after the commit.
   * Not in a thread, which no transaction can enter.
   * @throws TaskqError `LEASE_LOST` when another worker holds the task: let it propagate, so that the work rolls back
   */
  complete(transaction: HandlerTransaction): Promise<void>;
  /**
   * What `taskq task show` and the record of the task shall say of this run, for a task that is kept once it is done
   * (`retention` of its type or its enqueue). Any value that a payload may hold, up to 64 KiB as stored. The last call
   * wins; a run that throws leaves none, and of slices only the last one's counts.
   * Of a task without a retention the value is checked and dropped, so that the handler need not know.
   * With `complete`, call it before: what comes after a completion that commits is not in the record (event
   * `result_dropped`).
   * @throws TaskqError `RESULT_TOO_LARGE`, `PAYLOAD_UNSTORABLE` with the path of a value that cannot be stored
   *   unchanged. Uncaught, it fails the run
   */
  result(value: unknown): void;
}

/** The context of a sliced type, one whose definition has a `cursor`. */
export interface SlicedHandlerContext<Cursor, NextCursor> extends HandlerContext {
  /** Where this slice begins; undefined in the first. */
  readonly cursor: Cursor | undefined;
  /** What was saved with `cursor`; undefined in the first slice, or when nothing was. */
  readonly progress: SliceProgress | undefined;
  /**
   * Commits where the next slice begins, resets the attempts and gives the row back, in one fenced
   * statement: so once in a slice, at its end. Return `'continue'` after it.
   * @param progress how far the task is over all its slices: for `taskq stats` and `taskq task show`. Whole numbers
   * @throws TaskqError `LEASE_LOST` when another worker holds the task: let it propagate, never return `'continue'`
   */
  advanceCursor(next: NextCursor, progress?: SliceProgress): Promise<void>;
  /**
   * As `advanceCursor`, but answers false when another worker holds the task, or the database could not be reached
   * for as long as the lease lived. Nothing was saved then: throw. A `'continue'` is recorded `lost`.
   */
  tryAdvanceCursor(next: NextCursor, progress?: SliceProgress): Promise<boolean>;
  /**
   * When this slice is to end: `duration` after the handler was started, on the monotonic clock, but always some
   * seconds before the deadline (a tenth of a short ceiling), which are left for saving the cursor.
   */
  sliceBudget(duration: Duration): SliceBudget;
  /**
   * Reports that this slice has saved its cursor and ends before its time: event `slice_stopped_early`, which is
   * logged as a warning. The saved cursor resets attempts and error, so nothing else tells of it. `walkPages` does it.
   */
  stoppedEarly(why: StoppedEarly): void;
}

export type ContextOf<D extends TaskDefinition> = D['cursor'] extends ZodType
  ? SlicedHandlerContext<CursorOf<D>, CursorInput<D>>
  : HandlerContext;

/**
 * The function run for one task type. Async, always: with a plain value allowed beside the promise, TypeScript
 * would take the `'done'` that an async function returns for any string.
 */
export type Handler<D extends TaskDefinition> = (
  payload: PayloadOutput<D>,
  context: ContextOf<D>,
  // biome-ignore lint/suspicious/noConfusingVoidType: a handler without a return statement is the plain case.
) => Promise<HandlerResult | undefined | void>;
