import type { ZodType } from 'zod';
import { TaskqError } from '../domain/errors.ts';
import type { LeaseToken, TaskId } from '../domain/ids.ts';
import { LEASE_MARGIN_MS } from '../domain/limits.ts';
import type { Outcome, Settlement, Write } from '../domain/outcome.ts';
import { checkPayload } from '../domain/payload-check.ts';
import { decodePayload, encodePayload } from '../domain/payload-codec.ts';
import { decodeProgress, encodeProgress, type SliceProgress } from '../domain/slice.ts';
import type { ClaimedTask } from '../domain/task.ts';
import {
  type CursorInput,
  type CursorOf,
  checkMaxAttempts,
  type PayloadInput,
  type TaskDefinition,
} from '../domain/task-definition.ts';
import type { HandlerRegistry, RegisteredHandler, TaskSet } from '../domain/task-set.ts';
import { type AppClock, type MonotonicMs, systemClock, systemTimers, type Timers } from '../domain/time.ts';
import { readClocks } from '../processor/deadline.ts';
import { HeldTask } from '../processor/held-task.ts';
import type { RunMiddleware } from '../processor/run-middleware.ts';
import type { Advance } from '../processor/sliced-context.ts';
import type { WriteLane } from '../statements/lanes.ts';
import { type OneRun, registeredFor, runOnce, withoutHeartbeat } from './one-run.ts';

type TypeIn<Tasks extends TaskSet> = keyof Tasks & string;

// A registry whose task types are not known to the compiler takes and gives any cursor.
type NoCursor<D extends TaskDefinition> = D['cursor'] extends undefined ? never : unknown;
type CursorGiven<D extends TaskDefinition> = D['cursor'] extends ZodType ? CursorInput<D> : NoCursor<D>;
type CursorSaved<D extends TaskDefinition> = D['cursor'] extends ZodType ? CursorOf<D> : NoCursor<D>;

export interface RunTaskOptions<Cursor = unknown> {
  /** This run's number. Default 1, the first. */
  readonly attempt?: number;
  /** Default: the type's own limit. */
  readonly maxAttempts?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Where the slice begins, as an earlier slice gave it to `advanceCursor`. */
  readonly cursor?: Cursor;
  /** How far the task is, as an earlier slice gave it along with the cursor. */
  readonly progress?: SliceProgress;
  /** Interrupts the run when it aborts: the handler's own signal aborts then, as `interruptedBy` says. */
  readonly signal?: AbortSignal;
  /** What `signal` stands for. Default `'shutdown'`. */
  readonly interruptedBy?: 'shutdown' | 'deadline';
  /** Around the handler, as `createApp` takes it; what one throws is thrown here. */
  readonly middleware?: readonly RunMiddleware[];
  /** Whether the task's record is kept, as by an enqueue with a retention. Default: whether its type has one. */
  readonly isKept?: boolean;
  /** Another worker holds the task meanwhile: `advanceCursor` throws `LEASE_LOST`, and the settlement is refused. */
  readonly leaseLost?: boolean;
}

interface RunFacts<Cursor> {
  /** What the last `advanceCursor` saved, as the next slice receives it; undefined when nothing was saved. */
  readonly cursor: Cursor | undefined;
  /** What was saved with it. */
  readonly progress: SliceProgress | undefined;
  /** The handler has called `complete`: its task is dequeued by the handler's own transaction. */
  readonly completed: boolean;
  /** What the record would hold of `context.result`; undefined for nothing, or when no record would be written. */
  readonly keptResult: unknown;
  /** What a processor would have recorded. */
  readonly outcome: Outcome;
  /** What it would have written, or tried to when `outcome` is `lost`. */
  readonly settlement: Settlement;
  /** The task would be a dead letter now. */
  readonly dead: boolean;
}

/** How a run ended, and how a processor would have settled it. */
export type TaskRun<Cursor = unknown> =
  | (RunFacts<Cursor> & { readonly result: 'done' | 'continue'; readonly error: undefined })
  /** `error` is what the handler threw, as it is; or why it was not started. */
  | (RunFacts<Cursor> & { readonly result: 'error'; readonly error: unknown });

/**
 * Runs one handler here and now, without a database. The payload takes the way it takes in production: checked as
 * an enqueue checks it, encoded, decoded, parsed. What the handler throws comes back as `error`. Its `complete` writes
 * nothing, whatever transaction it is given; it counts as committed unless the handler throws.
 * @throws TaskqError `PAYLOAD_INVALID`, `PAYLOAD_UNSTORABLE` where an enqueue would; Error for a type without a handler
 */
export async function runTask<Tasks extends TaskSet, Type extends TypeIn<Tasks>>(
  handlers: HandlerRegistry<Tasks>,
  type: Type,
  payload: PayloadInput<Tasks[Type]['definition']>,
  options: RunTaskOptions<CursorGiven<Tasks[Type]['definition']>> = {},
): Promise<TaskRun<CursorSaved<Tasks[Type]['definition']>>> {
  const registered = withoutHeartbeat(registeredFor(handlers, type));
  const task = await claimedTask(registered, payload, options);
  const interruption = new Interruption(options);
  const row = new RowInMemory(options.leaseLost === true);
  const held = new HeldTask(task, readClocks(systemClock));
  const run = await runOnce(
    {
      registered,
      settler: row,
      write: NO_DATABASE,
      clock: interruption.clock,
      timers: interruption.timers,
      marginMs: LEASE_MARGIN_MS,
      aborting: interruption.aborting,
      middleware: options.middleware ?? [],
    },
    held,
  );
  const cursor = await row.cursor(registered);
  return { ...ended(run), cursor, ...row.settled(run) } as TaskRun<CursorSaved<Tasks[Type]['definition']>>;
}

// Heartbeats are taken off the definition, and nothing else of a run writes but through the settler.
const NO_DATABASE = undefined as unknown as WriteLane;

const ID = '1' as TaskId;
const LEASE = { id: ID, token: '00000000-0000-4000-8000-000000000001' as LeaseToken };

async function claimedTask(
  registered: RegisteredHandler,
  payload: unknown,
  options: RunTaskOptions,
): Promise<ClaimedTask> {
  const { definition, revision } = registered;
  const { type, ceilingMs } = definition;
  const maxAttempts = checkMaxAttempts(options.maxAttempts ?? definition.maxAttempts, 'runTask options');
  await checkPayload(definition.payload, payload, type);
  const now = { dbMs: systemClock.wall() as number };
  return {
    id: ID,
    lease: LEASE,
    leaseExpiresAt: { dbMs: now.dbMs + ceilingMs + LEASE_MARGIN_MS },
    claimedAt: now,
    type,
    queue: definition.queue,
    payloadText: encodePayload(payload, type),
    payloadRevision: revision,
    cursorText: await cursorText(registered, options.cursor),
    progress: decodeProgress(encodeProgress(options.progress, type)),
    headers: { ...options.headers },
    attempt: checkAttempt(options.attempt ?? 1, maxAttempts),
    maxAttempts,
    ceilingMs: undefined,
    isKept: options.isKept ?? definition.retentionMs !== undefined,
    runAt: now,
    enqueuedAt: now,
  };
}

async function cursorText({ definition }: RegisteredHandler, cursor: unknown): Promise<string | undefined> {
  if (cursor === undefined) return undefined;
  if (definition.cursor === undefined) {
    throw new TaskqError('OPTION_INVALID', `runTask of ${definition.type}: its definition has no cursor`);
  }
  await checkPayload(definition.cursor, cursor, definition.type, 'cursor');
  return encodePayload(cursor, `cursor of ${definition.type}`);
}

function checkAttempt(attempt: number, maxAttempts: number): number {
  if (Number.isInteger(attempt) && attempt >= 1 && attempt <= maxAttempts) return attempt;
  throw new TaskqError(
    'OPTION_INVALID',
    `runTask options: attempt must be a whole number from 1 to ${maxAttempts} (maxAttempts), received ${attempt}`,
  );
}

function ended({ settled, call }: OneRun): Pick<TaskRun, 'result' | 'error'> {
  if (call === undefined) return { result: 'error', error: new Error(settled.error) };
  if (call.threw) return { result: 'error', error: call.thrown };
  const { returned = 'done' } = call;
  if (returned === 'done' || returned === 'continue') return { result: returned, error: undefined };
  return { result: 'error', error: new TypeError(settled.error) };
}

/** The row that is not there: it remembers what would have been written about it. */
class RowInMemory {
  readonly #leaseLost: boolean;
  #cursorText: string | undefined;
  #progressText: string | undefined;
  #completed = false;
  #completedWith: string | undefined;
  #settlement: Settlement | undefined;

  constructor(leaseLost: boolean) {
    this.#leaseLost = leaseLost;
  }

  // As the fence: an advanced cursor has given the lease back, so nothing that follows matches the row.
  get #write(): Write {
    return this.#leaseLost || this.#completed || this.#cursorText !== undefined ? 'refused' : 'written';
  }

  async advanceCursor(_held: HeldTask, { cursorText, progressText }: Advance): Promise<Write> {
    const write = this.#write;
    if (write === 'written') {
      this.#cursorText = cursorText;
      this.#progressText = progressText;
    }
    return write;
  }

  async complete(_held: HeldTask, _transaction: unknown, resultText: string | undefined): Promise<Write> {
    const write = this.#write;
    if (write === 'written') {
      this.#completed = true;
      this.#completedWith = resultText;
    }
    return write;
  }

  async settle(_held: HeldTask, settlement: Settlement): Promise<Write> {
    this.#settlement = settlement;
    // What the handler threw has rolled its transaction back, and the row is there again.
    if (settlement.kind !== 'dequeue') this.#completed = false;
    return this.#write;
  }

  async cursor({ definition }: RegisteredHandler): Promise<unknown> {
    if (definition.cursor === undefined || this.#cursorText === undefined) return undefined;
    return checkPayload(definition.cursor, decodePayload(this.#cursorText), definition.type, 'cursor');
  }

  settled({ settled }: OneRun): Omit<RunFacts<unknown>, 'cursor'> {
    if (this.#settlement === undefined) throw new Error(`the run of ${settled.task.type} was not settled`);
    const { outcome, dead } = settled;
    const keptText = outcome === 'success' ? this.#keptText(this.#settlement) : undefined;
    const keptResult = keptText === undefined ? undefined : decodePayload(keptText);
    const progress = decodeProgress(this.#progressText);
    return { progress, completed: this.#completed, keptResult, outcome, settlement: this.#settlement, dead };
  }

  #keptText(settlement: Settlement): string | undefined {
    if (this.#completed) return this.#completedWith;
    return settlement.kind === 'dequeue' ? settlement.resultText : undefined;
  }
}

/** Turns the test's signal into what a replica would do: shut down, or see the deadline come. */
class Interruption {
  readonly aborting: AbortSignal;
  readonly #deadlineBy: AbortSignal | undefined;

  constructor({ signal, interruptedBy = 'shutdown' }: RunTaskOptions) {
    const never = new AbortController().signal;
    this.aborting = signal !== undefined && interruptedBy === 'shutdown' ? signal : never;
    this.#deadlineBy = interruptedBy === 'deadline' ? signal : undefined;
  }

  // Once the signal has aborted, every deadline lies in the past.
  get clock(): AppClock {
    const signal = this.#deadlineBy;
    if (signal === undefined) return systemClock;
    return {
      monotonic: () => (signal.aborted ? (Number.MAX_VALUE as MonotonicMs) : systemClock.monotonic()),
      wall: () => systemClock.wall(),
    };
  }

  // A timer comes early when the signal aborts: whoever set it then reads the clock again.
  get timers(): Timers {
    const signal = this.#deadlineBy;
    if (signal === undefined) return systemTimers;
    return {
      after(ms, fire, options) {
        const once = () => {
          timer.cancel();
          signal.removeEventListener('abort', once);
          fire();
        };
        const timer = systemTimers.after(ms, once, options);
        signal.addEventListener('abort', once, { once: true });
        return {
          cancel() {
            timer.cancel();
            signal.removeEventListener('abort', once);
          },
        };
      },
    };
  }
}
