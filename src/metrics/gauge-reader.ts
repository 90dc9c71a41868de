import { GAUGE_READ_MS_MAX, RETRY_FIRST_MS } from '../domain/limits.ts';
import { type AppClock, type MonotonicMs, sleep, type Timers } from '../domain/time.ts';
import type { GaugeReading } from '../statements/gauges.ts';

export interface GaugeReaderDeps {
  /** Rejects when the database does not answer. */
  readonly read: () => Promise<GaugeReading>;
  readonly intervalMs: number;
  readonly clock: AppClock;
  readonly timers: Timers;
  readonly onFailure: () => void;
}

/** What a scrape shows. `reading` is undefined when the last read failed: old numbers do not pass for fresh ones. */
export interface GaugeAnswer {
  readonly reading: GaugeReading | undefined;
  /** Since the last read that was answered; undefined when none was. */
  readonly ageMs: number | undefined;
}

interface Read {
  readonly startedAt: MonotonicMs;
  /** Never rejects; undefined when the read failed. */
  readonly answered: Promise<GaugeReading | undefined>;
}

/**
 * Reads the gauges of one database: at most once in an interval, whether it succeeds or fails, one read at a time,
 * shared by all who scrape meanwhile. Nobody waits for one longer than its time limit.
 */
export class GaugeReader {
  readonly #deps: GaugeReaderDeps;
  #underWay: Read | undefined;
  #startedAt: MonotonicMs | undefined;
  #reading: GaugeReading | undefined;
  #readAt: MonotonicMs | undefined;

  constructor(deps: GaugeReaderDeps) {
    this.#deps = deps;
  }

  async read(): Promise<GaugeAnswer> {
    if (this.#underWay === undefined && this.#isDue()) this.#start();
    if (this.#underWay !== undefined) await this.#answeredInTime(this.#underWay);
    const now = this.#deps.clock.monotonic();
    return { reading: this.#reading, ageMs: this.#readAt === undefined ? undefined : now - this.#readAt };
  }

  #isDue(): boolean {
    const { clock, intervalMs } = this.#deps;
    return this.#startedAt === undefined || clock.monotonic() - this.#startedAt >= intervalMs;
  }

  #start(): void {
    const { clock, onFailure } = this.#deps;
    const startedAt = clock.monotonic();
    this.#startedAt = startedAt;
    const answered = this.#readTwice().then(
      (reading) => {
        this.#reading = reading;
        this.#readAt = startedAt;
        return reading;
      },
      () => {
        this.#reading = undefined;
        onFailure();
        return undefined;
      },
    );
    const underWay = { startedAt, answered };
    this.#underWay = underWay;
    void answered.then(() => {
      this.#underWay = undefined;
    });
  }

  /**
   * After a failover the connections of the pool are dead, and the first to notice is whoever uses them: that is no
   * reason for gauges that are absent for an interval. A read that the server gave up is not sent again.
   */
  async #readTwice(): Promise<GaugeReading> {
    const { read, timers } = this.#deps;
    try {
      return await read();
    } catch (error) {
      if (isGivenUp(error)) throw error;
      await sleep(timers, RETRY_FIRST_MS);
      return await read();
    }
  }

  /** A read that is too late stays under way, so that no second one is sent after it; what was read before is old. */
  async #answeredInTime({ startedAt, answered }: Read): Promise<void> {
    const { clock, timers } = this.#deps;
    const leftMs = GAUGE_READ_MS_MAX - (clock.monotonic() - startedAt);
    const over = new AbortController();
    const late = sleep(timers, Math.max(0, leftMs), over.signal);
    await Promise.race([answered, late]);
    over.abort();
    if (this.#underWay?.startedAt === startedAt) this.#reading = undefined;
  }
}

/** By its statement_timeout. */
function isGivenUp(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === '57014';
}
