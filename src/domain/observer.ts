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
      /** What went wrong, for every outcome but success and continued. */
      readonly error: string | undefined;
      /** The task is a dead letter now. */
      readonly dead: boolean;
    }
  /** A slice said `continue` without having advanced: the next attempt repeats exactly what this one did. */
  | { readonly kind: 'slice_advanced_nothing'; readonly task: TaskFacts }
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
  /** A heartbeat was refused, or none could be written in time: the handler was told to stop. */
  | { readonly kind: 'lease_lost'; readonly task: TaskFacts; readonly reason: string }
  | {
      readonly kind: 'database_failed';
      readonly during: string;
      readonly error: Error;
      readonly retryMs: number;
    }
  | { readonly kind: 'database_recovered'; readonly during: string }
  | { readonly kind: 'discovered'; readonly candidates: number }
  /** A claim that returned no row although candidates were given: another replica was faster, or the lane lags. */
  | { readonly kind: 'claim_empty'; readonly candidates: number }
  | { readonly kind: 'wake_received' }
  | { readonly kind: 'listener_connected'; readonly again: boolean }
  | { readonly kind: 'listener_lost'; readonly error: Error; readonly retryMs: number }
  | { readonly kind: 'clock_offset'; readonly offsetMs: number }
  | { readonly kind: 'loop_delayed'; readonly delayMs: number }
  | { readonly kind: 'pruned'; readonly deleted: number }
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
