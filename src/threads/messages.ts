import type { SliceProgress, StoppedEarly } from '../domain/slice.ts';
import type { ThrownMessage } from './thrown-message.ts';

// What a replica and the thread of one run say to each other. Everything here is structured-cloned on its way.

/** What a thread is started with. */
export interface ThreadStart {
  /** A file: URL. */
  readonly module: string;
  readonly exportName: string;
  readonly payload: unknown;
  readonly context: ThreadContextFields;
  /** When the run began: its slice budgets are counted from here. */
  readonly startedAtMs: number;
  /** On `process.hrtime`, which is one clock for all threads of a process; `performance.now` is not. */
  readonly deadlineAtMs: number;
  /** Not 0 once an abort message is under way: a loop that never yields sees this, and no message. */
  readonly aborting: Int32Array;
}

/** The part of a handler's context that is data. */
export interface ThreadContextFields {
  readonly id: string;
  readonly type: string;
  readonly queue: string;
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly enqueuedAt: Date;
  /** Undefined for a type without slices. */
  readonly sliced: { readonly cursor: unknown; readonly progress: SliceProgress | undefined } | undefined;
}

export type ToThread =
  | { readonly taskq: 'abort'; readonly reason: ThrownMessage }
  /** The answer to an advance: whether it was written, or what it threw. */
  | {
      readonly taskq: 'advanced';
      readonly call: number;
      readonly written: boolean;
      readonly thrown: ThrownMessage | undefined;
    };

export type FromThread =
  | {
      readonly taskq: 'advance';
      readonly call: number;
      readonly next: unknown;
      readonly progress: SliceProgress | undefined;
    }
  | {
      readonly taskq: 'stopped_early';
      readonly why: Omit<StoppedEarly, 'error'>;
      readonly thrown: ThrownMessage;
    }
  /** The last `context.result`, as encoded in the thread: what a clone would change was refused there. */
  | { readonly taskq: 'result'; readonly text: string }
  | { readonly taskq: 'returned'; readonly result: unknown }
  | { readonly taskq: 'threw'; readonly thrown: ThrownMessage };

/** The handler's module may post messages of its own: they are nobody's here. */
export function isFromThread(message: unknown): message is FromThread {
  return typeof message === 'object' && message !== null && 'taskq' in message;
}

/** Milliseconds on the clock that every thread of the process shares. */
export function sharedClockMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
