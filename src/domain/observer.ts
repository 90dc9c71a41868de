import type { TaskId } from './ids.ts';
import type { Outcome } from './outcome.ts';
import type { ClaimedTask } from './task.ts';

/** What an event says about the task it concerns. Never the payload: it may hold secrets. */
export interface TaskFacts {
  readonly id: TaskId;
  readonly type: string;
  readonly queue: string;
  readonly attempt: number;
  readonly maxAttempts: number;
}

/** What the core tells the world, as data. The names are stable: logs, metrics and alerts hang on them. */
export type QueueEvent =
  | {
      readonly kind: 'claimed';
      readonly task: TaskFacts;
      readonly waitedMs: number;
      readonly clockOffsetMs: number;
    }
  | {
      readonly kind: 'settled';
      readonly task: TaskFacts;
      readonly outcome: Outcome;
      /** Undefined when the handler was not started. */
      readonly ranMs: number | undefined;
      /** From the handler's return to the answer of the settlement, retries included. */
      readonly settleMs: number;
      /** What went wrong, for every outcome but success and continued. */
      readonly error: string | undefined;
      /** The task is a dead letter now. */
      readonly dead: boolean;
    }
  /** A slice said `continue` without having advanced: the next attempt repeats exactly what this one did. */
  | { readonly kind: 'slice_advanced_nothing'; readonly task: TaskFacts }
  /**
   * A slice ended early because of `error`, after it had saved its progress; nothing in the data shows it.
   * `fields` are as they are logged: the saved `cursor`, `pages_read`, and what the handler added (`org_id`).
   */
  | {
      readonly kind: 'slice_stopped_early';
      readonly task: TaskFacts;
      readonly on: 'page_read' | 'page_work';
      readonly error: Error;
      readonly fields: Readonly<Record<string, unknown>> & {
        readonly cursor: unknown;
        readonly pages_read: number;
      };
    }
  /** A handler called `context.result` after the `complete` that committed: the record does not have it. */
  | { readonly kind: 'result_dropped'; readonly task: TaskFacts }
  /** A handler has not returned by its deadline: its slot is not available until it does. */
  | { readonly kind: 'handler_overrun'; readonly task: TaskFacts; readonly overMs: number }
  /** A handler has not returned by the end of the shutdown: its lease is left to lapse. */
  | { readonly kind: 'handler_abandoned'; readonly task: TaskFacts }
  | {
      readonly kind: 'settlement_retried';
      readonly task: TaskFacts;
      readonly error: Error;
      readonly retryMs: number;
    }
  | {
      readonly kind: 'heartbeat_failed';
      readonly task: TaskFacts;
      readonly error: Error;
      readonly retryMs: number;
    }
  /** A middleware threw: the run went on without it. */
  | { readonly kind: 'middleware_failed'; readonly task: TaskFacts; readonly error: Error }
  /** A heartbeat was refused, or none could be written in time: the handler was told to stop. */
  | { readonly kind: 'lease_lost'; readonly task: TaskFacts; readonly reason: string }
  | {
      readonly kind: 'database_failed';
      readonly during: 'claim' | 'cron' | 'prune' | 'report';
      readonly error: Error;
      readonly retryMs: number;
    }
  | { readonly kind: 'database_recovered'; readonly during: 'claim' | 'cron' | 'prune' | 'report' }
  | { readonly kind: 'discovered'; readonly candidates: number }
  /** A claim was answered, with `claimed` rows. One claim may serve several slots. */
  | { readonly kind: 'claim_answered'; readonly claimed: number; readonly tookMs: number }
  /** A claim that returned no row although candidates were given: another replica was faster, or the lane lags. */
  | { readonly kind: 'claim_empty'; readonly candidates: number }
  | { readonly kind: 'wake_received' }
  | { readonly kind: 'listener_connected'; readonly again: boolean }
  | { readonly kind: 'listener_lost'; readonly error: Error; readonly retryMs: number }
  | { readonly kind: 'clock_offset'; readonly offsetMs: number }
  | { readonly kind: 'loop_delayed'; readonly delayMs: number }
  /** `deleted` dead letters and `completed` records were past their time. */
  | { readonly kind: 'pruned'; readonly deleted: number; readonly completed: number }
  /** A tick was taken by this replica, and its task enqueued. */
  | {
      readonly kind: 'cron_enqueued';
      readonly entry: string;
      /** The moment that the schedule names, ISO 8601. */
      readonly tick: string;
      readonly taskId: TaskId;
      /** From the tick to its enqueue, by the database's clock. */
      readonly lateMs: number;
    }
  /** A tick was taken, but task `taskId` stood in the way of its own: nothing was enqueued. */
  | {
      readonly kind: 'cron_skipped';
      readonly entry: string;
      readonly tick: string;
      readonly taskId: TaskId;
    }
  /** The scheduler has taken what was due, and looks again in `nextMs`. */
  | { readonly kind: 'cron_looked'; readonly nextMs: number }
  /** Ticks that no replica took in time, and that are not made up for. */
  | {
      readonly kind: 'cron_missed';
      readonly entry: string;
      /** How many; at 100 the counting ends. */
      readonly ticks: number;
      readonly first: string;
      readonly last: string;
    }
  /** A tick could not be taken; it is tried again. */
  | {
      readonly kind: 'cron_failed';
      readonly entry: string;
      readonly tick: string;
      readonly error: Error;
      readonly retryMs: number;
    }
  | { readonly kind: 'slot_failed'; readonly error: Error }
  | { readonly kind: 'started'; readonly slots: number; readonly types: readonly string[] }
  | { readonly kind: 'stopping' }
  | { readonly kind: 'stopped' };

export type Observer = (event: QueueEvent) => void;

export function taskFacts(task: ClaimedTask): TaskFacts {
  const { id, type, queue, attempt, maxAttempts } = task;
  return { id, type, queue, attempt, maxAttempts };
}

/**
 * Several observers as one. An observer that throws must not cost a task its settlement:
 * what it threw goes to `onError`, and the others still hear the event.
 */
export function contained(observers: readonly Observer[], onError: (error: unknown) => void): Observer {
  return (event) => {
    for (const observe of observers) {
      try {
        observe(event);
      } catch (error) {
        onError(error);
      }
    }
  };
}
