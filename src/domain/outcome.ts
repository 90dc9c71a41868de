/** What the processor records about a run. One meaning each, in metrics, logs and the admin API. */
export const OUTCOMES = ['success', 'failure', 'timeout', 'cancelled', 'continued', 'lost'] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** Why a handler's signal fired; the first reason wins. Passed as data, never read out of an error's text. */
export type Interruption =
  | { readonly kind: 'deadline' }
  | { readonly kind: 'shutdown' }
  /** A heartbeat was refused, or none could be written in time. */
  | { readonly kind: 'lease_lost' };

/** How a run ended, before anything is decided. */
export type RunEnd =
  | { readonly kind: 'done' }
  | { readonly kind: 'continue' }
  | { readonly kind: 'threw'; readonly thrown: unknown }
  /** The stored payload does not parse: the handler was not started. */
  | { readonly kind: 'poison'; readonly problem: string }
  /** The claim outlasted the ceiling: the handler was not started. */
  | { readonly kind: 'never_started' };

export interface Run {
  readonly end: RunEnd;
  /** The first reason for which the signal fired; undefined when it did not. */
  readonly interruption: Interruption | undefined;
  /** What the signal was aborted with, to recognise it in what the handler threw. */
  readonly abortReason: unknown;
  /** Whether the deadline had passed when the handler returned, whatever fired first. */
  readonly pastDeadline: boolean;
  /** Whether the handler committed a cursor; the row is no longer leased then. */
  readonly advanced: boolean;
  /** Whether the handler dequeued the task in a transaction of its own, which may have been rolled back since. */
  readonly completed: boolean;
  /** What the handler last gave `context.result`, encoded; undefined for nothing, or when no record is kept. */
  readonly resultText: string | undefined;
  /** What that was when it completed: a record that its transaction wrote holds this, and nothing said later. */
  readonly completedWith: string | undefined;
  /** The handler's run time; undefined when it was not started. */
  readonly ranMs: number | undefined;
}

/** One failure as it is kept on the row. */
export interface FailureRecord {
  readonly attempt: number;
  readonly outcome: Outcome;
  readonly message: string;
  readonly stack?: string;
}

/** The consequence to write. */
export type Settlement =
  /** `resultText` goes into the record, of a task whose record is kept. */
  | { readonly kind: 'dequeue'; readonly resultText?: string }
  | { readonly kind: 'record_failure'; readonly failure: FailureRecord; readonly backoffMs: number }
  | { readonly kind: 'retire'; readonly failure: FailureRecord }
  /** `failure` is stamped only when this was the final attempt, so that the dead letter explains itself. */
  | { readonly kind: 'release'; readonly failure: FailureRecord };

/** Whether a fenced statement matched its row. */
export type Write = 'written' | 'refused';

export function unreachable(value: never): never {
  throw new Error(`unreachable: ${JSON.stringify(value)}`);
}
