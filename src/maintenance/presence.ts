import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { POLL_JITTER, REPLICA_REPORT_MS, REPLICA_RUNNING_MAX } from '../domain/limits.ts';
import type { Observer, QueueEvent, TaskFacts } from '../domain/observer.ts';
import type { Outcome } from '../domain/outcome.ts';
import { toError } from '../domain/thrown.ts';
import { type AppClock, type MonotonicMs, sleep, type Timers } from '../domain/time.ts';
import { VERSION } from '../domain/version.ts';
import type { WriteLane } from '../statements/lanes.ts';
import { forgetReplica, reportReplica, type SettledSince } from '../statements/replicas.ts';

export interface PresenceDeps {
  readonly clock: AppClock;
  readonly timers: Timers;
  readonly roles: readonly string[];
  /** Undefined for every queue. */
  readonly queues: readonly string[] | undefined;
}

/** What a replica has once it has started. */
export interface PresenceSource {
  readonly write: WriteLane;
  readonly observe: Observer;
  /** What it does now; all zero without the processor. */
  readonly status: () => {
    readonly slots: number;
    readonly busy: number;
    readonly overrun: number;
    readonly running: readonly TaskFacts[];
  };
}

/**
 * Writes every quarter of a minute that this replica is there, what it runs and what it has settled. Nothing depends
 * on it: a report that fails is said once, and the next one tells of the whole time since the last.
 */
export class Presence {
  readonly #deps: PresenceDeps;
  readonly #id = randomUUID();
  readonly #stopping = new AbortController();
  #source: PresenceSource | undefined;
  #running: Promise<void> | undefined;
  #tally: Tally;
  #clockOffsetMs: number | undefined;
  #isFailing = false;

  constructor(deps: PresenceDeps) {
    this.#deps = deps;
    this.#tally = new Tally(deps.clock.monotonic());
  }

  begin(source: PresenceSource): void {
    this.#source ??= source;
    this.#running ??= this.#run(source);
  }

  /** Hears what the replica does. */
  readonly observe = (event: QueueEvent): void => {
    if (event.kind === 'claimed') this.#clockOffsetMs = event.clockOffsetMs;
    this.#tally.add(event);
  };

  /** Takes the row away; of a database that does not answer it is left to be forgotten. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
    if (this.#source === undefined || this.#isFailing) return;
    await forgetReplica(this.#source.write, this.#id).catch(() => undefined);
  }

  async #run(source: PresenceSource): Promise<void> {
    const { timers } = this.#deps;
    const stopping = this.#stopping.signal;
    while (!stopping.aborted) {
      await this.#report(source);
      await sleep(timers, REPLICA_REPORT_MS * (1 + POLL_JITTER * (Math.random() * 2 - 1)), stopping);
    }
  }

  async #report({ write, observe, status }: PresenceSource): Promise<void> {
    const { clock, roles, queues } = this.#deps;
    const { running, ...slots } = status();
    const told = this.#tally;
    this.#tally = new Tally(clock.monotonic());
    try {
      await reportReplica(write, {
        id: this.#id,
        host: hostname(),
        pid: process.pid,
        version: VERSION,
        roles,
        queues,
        ...slots,
        running: running
          .slice(0, REPLICA_RUNNING_MAX)
          .map(({ id, type, queue, attempt }) => ({ id, type, queue, attempt })),
        clockOffsetMs: this.#clockOffsetMs,
        settled: told.report(clock.monotonic()),
      });
      if (this.#isFailing) observe({ kind: 'database_recovered', during: 'report' });
      this.#isFailing = false;
    } catch (error) {
      told.merge(this.#tally);
      this.#tally = told;
      if (!this.#isFailing) {
        observe({
          kind: 'database_failed',
          during: 'report',
          error: toError(error),
          retryMs: REPLICA_REPORT_MS,
        });
      }
      this.#isFailing = true;
    }
  }
}

/** What was claimed and settled since a moment. */
class Tally {
  readonly #since: MonotonicMs;
  readonly #outcomes: Partial<Record<Outcome, number>> = {};
  #waitMs = 0;
  #waited = 0;
  #ranMs = 0;
  #ran = 0;

  constructor(since: MonotonicMs) {
    this.#since = since;
  }

  add(event: QueueEvent): void {
    if (event.kind === 'claimed') {
      this.#waitMs += Math.max(event.waitedMs, 0);
      this.#waited += 1;
    } else if (event.kind === 'settled') {
      this.#outcomes[event.outcome] = (this.#outcomes[event.outcome] ?? 0) + 1;
      if (event.ranMs === undefined) return;
      this.#ranMs += event.ranMs;
      this.#ran += 1;
    }
  }

  merge(later: Tally): void {
    for (const [outcome, runs] of Object.entries(later.#outcomes) as [Outcome, number][]) {
      this.#outcomes[outcome] = (this.#outcomes[outcome] ?? 0) + runs;
    }
    this.#waitMs += later.#waitMs;
    this.#waited += later.#waited;
    this.#ranMs += later.#ranMs;
    this.#ran += later.#ran;
  }

  report(now: MonotonicMs): SettledSince {
    return {
      intervalMs: Math.round(now - this.#since),
      outcomes: this.#outcomes,
      waitMs: Math.round(this.#waitMs),
      waited: this.#waited,
      ranMs: Math.round(this.#ranMs),
      ran: this.#ran,
    };
  }
}
