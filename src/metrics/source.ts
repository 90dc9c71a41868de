import type { Observer } from '../domain/observer.ts';
import type { ReadLane } from '../statements/lanes.ts';

// What a replica and its metrics say to each other. No word of Prometheus: an app without metrics loads nothing of it.

/** A task type as the replica registers it. */
export interface KnownType {
  readonly type: string;
  /** That of its definition; an enqueue may name another. */
  readonly queue: string;
  /** The newest payload revision that the replica knows. */
  readonly revision: number;
}

/** What is known of a replica before it starts. */
export interface ReplicaFacts {
  readonly types: readonly KnownType[];
  /** The names of its cron entries. */
  readonly entries: readonly string[];
  /** Whether it runs tasks, and so listens for wakes. */
  readonly listens: boolean;
}

/** Where the gauges of the database are read. */
export interface GaugeSource {
  readonly lane: ReadLane;
  /** The same for replicas of one process on the same database: their gauges are read once. */
  readonly database: string;
}

export interface SlotStatus {
  readonly slots: number;
  readonly busy: number;
  readonly overrun: number;
}

/** The metrics of one replica. */
export interface ReplicaMetrics {
  readonly observe: Observer;
  /** It has its lanes: from here on it is part of each scrape. Without a status it has no slots to show. */
  begin(source: GaugeSource, status: (() => SlotStatus) | undefined): void;
  /** Whether the gauges can be read, as of the last read, which may be made for it. */
  isDatabaseUp(): Promise<boolean>;
  /** How long the event loop was blocked at the most since the last call. Milliseconds. */
  loopDelay(delayMs: number): void;
  /** It is no longer part of a scrape. What it has counted stays. */
  end(): void;
}

/** What `createApp` asks of its `metrics`. */
export interface AppMetrics {
  /** Called by `createApp`. */
  replica(facts: ReplicaFacts): ReplicaMetrics;
}
