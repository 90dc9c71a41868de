import { type Duration, durationMs } from './duration.ts';
import { TaskqError } from './errors.ts';
import { SLICE_RESERVE_MS, SLICE_RESERVE_SHARE } from './limits.ts';

/** How far a sliced task has come, over all its slices, in a unit of its own (items, bytes). */
export interface SliceProgress {
  readonly done: number;
  /** Left out when nobody knows it. */
  readonly total?: number | undefined;
}

/** How long a slice may still go on. */
export interface SliceBudget {
  /** Time to save the cursor and return `'continue'`: the budget is used up, or the signal has aborted. */
  isSpent(): boolean;
  /** Milliseconds; 0 once it is spent. */
  remainingMs(): number;
}

/** Why a slice that has saved its progress ended before its time. */
export interface StoppedEarly {
  /** A page could not be read, or its work threw. */
  readonly on: 'page_read' | 'page_work';
  readonly error: unknown;
  /** The cursor that was saved. It is logged. */
  readonly cursor: unknown;
  readonly pagesRead: number;
  /** Further fields of the log line, such as `{ org_id: 'acme' }`. */
  readonly fields?: Readonly<Record<string, unknown>> | undefined;
}

/** The clocks of one slice. Milliseconds. */
export interface SliceClocks {
  readonly signal: AbortSignal;
  /** Since the handler was started, on the monotonic clock. */
  ranMs(): number;
  /** Until the deadline. */
  remainingMs(): number;
}

/**
 * A budget counted from the start of the handler, and never up to its deadline: what is left before that is for
 * the cursor's own write.
 * @throws TaskqError `DURATION_INVALID` for anything below 1 ms
 */
export function makeSliceBudget(duration: Duration, type: string, clocks: SliceClocks): SliceBudget {
  const budgetMs = durationMs(duration, `slice budget of ${type}`, { minMs: 1 });
  const wholeMs = clocks.ranMs() + clocks.remainingMs();
  const reserveMs = Math.min(SLICE_RESERVE_MS, wholeMs * SLICE_RESERVE_SHARE);
  const remainingMs = () => {
    if (clocks.signal.aborted) return 0;
    return Math.max(0, Math.min(budgetMs - clocks.ranMs(), clocks.remainingMs() - reserveMs));
  };
  return { remainingMs, isSpent: () => remainingMs() <= 0 };
}

/**
 * The text that is stored; undefined for no progress.
 * @throws TaskqError `OPTION_INVALID` for anything but whole numbers from 0
 */
export function encodeProgress(progress: SliceProgress | undefined, type: string): string | undefined {
  if (progress === undefined) return undefined;
  const { done, total } = progress;
  for (const [name, value] of Object.entries({ done, total: total ?? 0 })) {
    if (Number.isSafeInteger(value) && value >= 0) continue;
    throw new TaskqError(
      'OPTION_INVALID',
      `progress of ${type}: ${name} must be a whole number from 0, received ${String(value)}`,
    );
  }
  return JSON.stringify(total === undefined ? { done } : { done, total });
}

/** The other way. */
export function decodeProgress(text: string | null | undefined): SliceProgress | undefined {
  return text === null || text === undefined ? undefined : (JSON.parse(text) as SliceProgress);
}

/** What a refused advance is to its handler. */
export function cursorRefused(id: string, type: string, cause?: unknown): TaskqError {
  const message = `task ${id} (${type}): the cursor was not saved, another worker holds the task`;
  return new TaskqError('LEASE_LOST', message, cause === undefined ? {} : { cause });
}
