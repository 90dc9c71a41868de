import { ADMIN_OVERVIEW_FRESH_MS } from '../domain/limits.ts';
import { OUTCOMES, type Outcome } from '../domain/outcome.ts';
import type { AppClock, MonotonicMs } from '../domain/time.ts';
import type { GaugeCounts, OperatorPages, QueueCounts, Replica } from '../operator-pages.ts';
import type { Wire } from './contracts.ts';

type Count = Wire<'Count'>;
type Counts = Wire<'Counts'>;

/**
 * The one reader of what every screen shows: callers that come at once, or within a second, share a reading. So the
 * database is asked as often for fifty tabs as for one.
 */
export class Overviews {
  readonly #pages: OperatorPages;
  readonly #clock: AppClock;
  #reading: Promise<Wire<'Overview'>> | undefined;
  #readAt = Number.NEGATIVE_INFINITY as MonotonicMs;

  constructor(pages: OperatorPages, clock: AppClock) {
    this.#pages = pages;
    this.#clock = clock;
  }

  read(): Promise<Wire<'Overview'>> {
    const now = this.#clock.monotonic();
    if (this.#reading !== undefined && now - this.#readAt < ADMIN_OVERVIEW_FRESH_MS) return this.#reading;
    this.#readAt = now;
    const reading = this.#readNow();
    this.#reading = reading;
    // A failure answers those who wait for it and nobody after them.
    reading.catch(() => {
      if (this.#reading === reading) this.#reading = undefined;
    });
    return reading;
  }

  /** After a deed: whoever looks next sees what it did. */
  forget(): void {
    this.#reading = undefined;
  }

  async #readNow(): Promise<Wire<'Overview'>> {
    const [counts, replicas] = await Promise.all([this.#pages.countQueues(), this.#pages.listReplicas()]);
    return overviewOf(counts, replicas, new Date(this.#clock.wall()));
  }
}

export function overviewOf(
  { counts, settings }: QueueCounts,
  replicas: readonly Replica[],
  at: Date,
): Wire<'Overview'> {
  const types = counts.map((of) => ({ type: of.type, queue: of.queue, ...toCounts(of) }));
  const alive = replicas.filter(({ isAlive }) => isAlive);
  const queues = queueSnapshots(types, settings);
  return {
    at: at.toISOString(),
    totals: sumOf(types),
    slots: {
      replicas: alive.length,
      total: total(alive.map(({ slots }) => slots)),
      busy: total(alive.map(({ busy }) => busy)),
      overrun: total(alive.map(({ overrun }) => overrun)),
    },
    throughput: throughputOf(alive),
    queues,
    types,
    unserved: queues
      .filter((queue) => queue.due.count > 0 && !queue.paused && !isServed(queue.queue, alive))
      .map(({ queue }) => queue),
  };
}

function isServed(queue: string, alive: readonly Replica[]): boolean {
  return alive.some(({ slots, queues }) => slots > 0 && (queues === undefined || queues.includes(queue)));
}

function queueSnapshots(
  types: readonly (Counts & { readonly queue: string })[],
  settings: QueueCounts['settings'],
): Wire<'QueueSnapshot'>[] {
  const said = new Map(settings.map((setting) => [setting.queue, setting]));
  const names = new Set([...types.map(({ queue }) => queue), ...said.keys()]);
  return [...names].sort().map((queue) => {
    const counts = sumOf(types.filter((of) => of.queue === queue));
    const { weight, pausedAt } = said.get(queue) ?? {};
    return {
      queue,
      ...counts,
      paused: pausedAt !== undefined,
      pausedAt: pausedAt?.toISOString() ?? null,
      weight: weight ?? null,
      size: added([counts.pending, counts.dead]),
      active: counts.running,
      retry: counts.retrying,
      archived: counts.dead,
      latencySeconds: counts.oldestDueSeconds,
    };
  });
}

// The gauges count up to a bound and say which counts have met it. What is running or scheduled beyond the bound of the
// due or delayed rows was not seen either.
function toCounts(of: GaugeCounts): Counts {
  const isCapped = (count: GaugeCounts['capped'][number]) => of.capped.includes(count);
  const bounded = (count: number, isAtLeast: boolean): Count => ({ count, isAtLeast });
  const scheduled = Math.max(of.pending - of.running - of.due - of.retrying, 0);
  return {
    pending: bounded(of.pending, isCapped('pending')),
    due: bounded(of.due, isCapped('due')),
    running: bounded(of.running, isCapped('due')),
    scheduled: bounded(scheduled, isCapped('pending')),
    retrying: bounded(of.retrying, isCapped('pending')),
    dead: bounded(of.dead, isCapped('dead')),
    completed: bounded(of.completed, isCapped('completed')),
    oldestDueSeconds: of.oldestDueSeconds,
  };
}

function sumOf(all: readonly Counts[]): Counts {
  const sum = (name: Exclude<keyof Counts, 'oldestDueSeconds'>) => added(all.map((counts) => counts[name]));
  return {
    pending: sum('pending'),
    due: sum('due'),
    running: sum('running'),
    scheduled: sum('scheduled'),
    retrying: sum('retrying'),
    dead: sum('dead'),
    completed: sum('completed'),
    oldestDueSeconds: Math.max(0, ...all.map(({ oldestDueSeconds }) => oldestDueSeconds)),
  };
}

function added(counts: readonly Count[]): Count {
  return {
    count: total(counts.map(({ count }) => count)),
    isAtLeast: counts.some(({ isAtLeast }) => isAtLeast),
  };
}

function throughputOf(alive: readonly Replica[]): Wire<'Throughput'> {
  const byOutcome = Object.fromEntries(OUTCOMES.map((outcome) => [outcome, 0])) as Record<Outcome, number>;
  for (const { settled } of alive) {
    // The first report of a replica spans next to no time.
    if (settled.intervalMs < INTERVAL_MS_MIN) continue;
    for (const outcome of OUTCOMES) {
      byOutcome[outcome] += ((settled.outcomes[outcome] ?? 0) * MINUTE_MS) / settled.intervalMs;
    }
  }
  const waited = total(alive.map(({ settled }) => settled.waited));
  const ran = total(alive.map(({ settled }) => settled.ran));
  return {
    perMinute: total(Object.values(byOutcome)),
    byOutcome,
    meanWaitMs: waited === 0 ? null : total(alive.map(({ settled }) => settled.waitMs)) / waited,
    meanRunMs: ran === 0 ? null : total(alive.map(({ settled }) => settled.ranMs)) / ran,
  };
}

const MINUTE_MS = 60_000;
/** Below it a rate is noise. */
const INTERVAL_MS_MIN = 1_000;

const total = (numbers: readonly number[]): number => numbers.reduce((sum, number) => sum + number, 0);
