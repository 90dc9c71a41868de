import type { QueueEvent } from '../domain/observer.ts';
import { OUTCOMES } from '../domain/outcome.ts';
import type { AppLabel, MetricSet } from './metric-set.ts';
import { DATABASE_WORK, type DatabaseWork, TICK_OUTCOMES, type TickOutcome } from './names.ts';
import type { ReplicaFacts } from './source.ts';

type EventOf<Kind extends QueueEvent['kind']> = Extract<QueueEvent, { kind: Kind }>;

/** Counts the events of one replica, and keeps what its gauges show beside its status. */
export class Recorder {
  /** Undefined for a replica that runs no tasks, and so never listens. */
  isListening: boolean | undefined;
  /** Undefined before the first claim. */
  clockOffsetMs: number | undefined;
  readonly #set: MetricSet;
  readonly #app: AppLabel;

  /** Counters of what is known begin at zero, so that the first event is an increase. */
  constructor(set: MetricSet, app: AppLabel, { types, entries, listens }: ReplicaFacts) {
    this.#set = set;
    this.#app = app;
    if (listens) this.isListening = false;
    for (const { type, queue } of types) {
      set.queues.know(queue);
      const labels = { ...app, task_type: type, queue };
      for (const outcome of OUTCOMES) set.count('runs', { ...labels, outcome }, 0);
      set.count('deadLetters', labels, 0);
    }
    for (const entry of entries) {
      for (const outcome of TICK_OUTCOMES) this.#countTicks(entry, outcome, 0);
    }
    for (const during of DATABASE_WORK) set.count('databaseErrors', { ...app, during }, 0);
    for (const key of ['claimsEmpty', 'wakes', 'listenerReconnects', 'middlewareFailures'] as const) {
      set.count(key, app, 0);
    }
  }

  readonly observe = (event: QueueEvent): void => {
    switch (event.kind) {
      case 'claimed':
        this.#claimed(event);
        break;
      case 'settled':
        this.#settled(event);
        break;
      case 'claim_answered':
        this.#set.observe('claimDuration', this.#app, event.tookMs / 1_000);
        break;
      case 'claim_empty':
        this.#set.count('claimsEmpty', this.#app);
        break;
      case 'wake_received':
        this.#set.count('wakes', this.#app);
        break;
      case 'listener_connected':
        this.isListening = true;
        if (event.again) this.#set.count('listenerReconnects', this.#app);
        break;
      case 'listener_lost':
        this.isListening = false;
        this.databaseError('listen');
        break;
      case 'settlement_retried':
        this.databaseError('settle');
        break;
      case 'heartbeat_failed':
        this.databaseError('heartbeat');
        break;
      case 'database_failed':
        this.databaseError(event.during);
        break;
      case 'cron_enqueued':
        this.#set.observe('cronLag', { ...this.#app, entry: event.entry }, Math.max(0, event.lateMs) / 1_000);
        this.#countTicks(event.entry, 'enqueued');
        break;
      case 'cron_skipped':
        this.#countTicks(event.entry, 'skipped');
        break;
      case 'cron_missed':
        this.#countTicks(event.entry, 'missed', event.ticks);
        break;
      case 'cron_failed':
        this.#countTicks(event.entry, 'failed');
        break;
      case 'middleware_failed':
        this.#set.count('middlewareFailures', this.#app);
        break;
      default:
    }
  };

  databaseError(during: DatabaseWork): void {
    this.#set.count('databaseErrors', { ...this.#app, during });
  }

  #claimed({ task, waitedMs, clockOffsetMs }: EventOf<'claimed'>): void {
    this.clockOffsetMs = clockOffsetMs;
    const labels = { ...this.#app, task_type: task.type, queue: this.#set.queues.label(task.queue) };
    this.#set.observe('wait', labels, waitedMs / 1_000);
  }

  #settled({ task, outcome, ranMs, settleMs, dead }: EventOf<'settled'>): void {
    const labels = { ...this.#app, task_type: task.type, queue: this.#set.queues.label(task.queue) };
    this.#set.count('runs', { ...labels, outcome });
    if (dead) this.#set.count('deadLetters', labels);
    if (ranMs !== undefined) {
      this.#set.observe('runDuration', { ...this.#app, task_type: task.type, outcome }, ranMs / 1_000);
    }
    this.#set.observe('settleDuration', this.#app, settleMs / 1_000);
  }

  #countTicks(entry: string, outcome: TickOutcome, by = 1): void {
    this.#set.count('cronTicks', { ...this.#app, entry, outcome }, by);
  }
}
