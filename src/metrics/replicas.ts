import { LOOP_DELAY_WINDOW_MS } from '../domain/limits.ts';
import type { AppClock, MonotonicMs, Timers } from '../domain/time.ts';
import { readGauges } from '../statements/gauges.ts';
import type { ReadLane } from '../statements/lanes.ts';
import { type GaugeAnswer, GaugeReader } from './gauge-reader.ts';
import { type GaugeSeries, gaugeSeries } from './gauges.ts';
import type { AppLabel, MetricSet, Sample, Sampler } from './metric-set.ts';
import { type KeyOf, METRICS } from './names.ts';
import { Recorder } from './recorder.ts';
import type { GaugeSource, ReplicaFacts, ReplicaMetrics, SlotStatus } from './source.ts';

export interface ReplicasOptions {
  readonly intervalMs: number;
  readonly clock: AppClock;
  readonly timers: Timers;
}

type GaugeKey = KeyOf<'gauge'>;

/** A replica from its start to its stop. */
interface Replica {
  readonly app: AppLabel;
  readonly facts: ReplicaFacts;
  readonly recorder: Recorder;
  readonly loop: LoopWindow;
  readonly source: GaugeSource;
  readonly status: (() => SlotStatus) | undefined;
}

/** The replicas of this process, and what the gauges show of them: together, for each name of an app. */
export class Replicas implements Sampler {
  readonly #options: ReplicasOptions;
  readonly #running = new Set<Replica>();
  readonly #readers = new Map<string, GaugeReader>();

  constructor(options: ReplicasOptions) {
    this.#options = options;
  }

  replica(set: MetricSet, app: AppLabel, facts: ReplicaFacts): ReplicaMetrics {
    const recorder = new Recorder(set, app, facts);
    const loop = new LoopWindow(this.#options.clock);
    let running: Replica | undefined;
    return {
      observe: recorder.observe,
      loopDelay: (delayMs) => loop.add(delayMs),
      begin: (source, status) => {
        running = { app, facts, recorder, loop, source, status };
        this.#running.add(running);
      },
      isDatabaseUp: async () => {
        if (running === undefined) return false;
        const { reading } = await this.#reader(running.source.database).read();
        return reading !== undefined;
      },
      end: () => {
        if (running === undefined) return;
        const { database } = running.source;
        this.#running.delete(running);
        if (this.#on(database).length === 0) this.#readers.delete(database);
      },
    };
  }

  async sample<Key extends GaugeKey>(key: Key): Promise<Sample<Key>[]> {
    const samples = METRICS[key].source === 'process' ? this.#ofProcess(key) : await this.#ofDatabases(key);
    return combined(key, samples) as Sample<Key>[];
  }

  #ofProcess(key: GaugeKey): Sample<GaugeKey>[] {
    return [...this.#running].flatMap((replica) => {
      const value = processValue(key, replica);
      return value === undefined ? [] : [{ labels: replica.app as Sample<GaugeKey>['labels'], value }];
    });
  }

  /** A database of several replicas of an app is shown once. */
  async #ofDatabases(key: GaugeKey): Promise<Sample<GaugeKey>[]> {
    const places = new Map<string, Replica[]>();
    for (const replica of this.#running) {
      const place = JSON.stringify([replica.app.app, replica.source.database]);
      places.set(place, [...(places.get(place) ?? []), replica]);
    }
    const shown = [...places.values()].map(async (replicas) => {
      const [{ app, source }] = replicas as [Replica];
      const answer = await this.#reader(source.database).read();
      return databaseValues(key, answer, replicas).map(([labels, value]) => ({
        labels: { ...app, ...labels } as Sample<GaugeKey>['labels'],
        value,
      }));
    });
    return (await Promise.all(shown)).flat();
  }

  #on(database: string): Replica[] {
    return [...this.#running].filter(({ source }) => source.database === database);
  }

  #reader(database: string): GaugeReader {
    const known = this.#readers.get(database);
    if (known !== undefined) return known;
    const lane = (): ReadLane => {
      const [replica] = this.#on(database);
      if (replica === undefined) throw new Error('the replica has ended');
      return replica.source.lane;
    };
    const reader = new GaugeReader({
      ...this.#options,
      read: async () => readGauges(lane()),
      onFailure: () => this.#on(database)[0]?.recorder.databaseError('gauges'),
    });
    this.#readers.set(database, reader);
    return reader;
  }
}

function processValue(key: GaugeKey, { status, recorder, loop }: Replica): number | undefined {
  switch (key) {
    case 'slots':
      return status?.().slots;
    case 'slotsBusy':
      return status?.().busy;
    case 'slotsOverrun':
      return status?.().overrun;
    case 'listenerConnected':
      return recorder.isListening === undefined ? undefined : Number(recorder.isListening);
    case 'clockOffset':
      return seconds(recorder.clockOffsetMs);
    case 'eventLoopDelay':
      return seconds(loop.worstMs());
    default:
      return undefined;
  }
}

type LabelledValue = readonly [labels: Readonly<Record<string, string>>, value: number];

function databaseValues(
  key: GaugeKey,
  { reading, ageMs }: GaugeAnswer,
  replicas: readonly Replica[],
): LabelledValue[] {
  if (key === 'databaseUp') return [[{}, reading === undefined ? 0 : 1]];
  if (key === 'gaugesAgeSeconds') return ageMs === undefined ? [] : [[{}, ageMs / 1_000]];
  if (reading === undefined) return [];
  const known = replicas.flatMap(({ facts }) => facts.types);
  return seriesValues(key, gaugeSeries(reading, known));
}

function seriesValues(key: GaugeKey, { counts, unregistered, queues }: GaugeSeries): LabelledValue[] {
  switch (key) {
    case 'unregisteredTasks':
      return [...(unregistered ?? [])].map(([type, tasks]) => [{ task_type: type }, tasks]);
    case 'queuePaused':
      return [...queues].map(([queue, isPaused]) => [{ queue }, Number(isPaused)]);
    case 'countsCapped':
      return counts.flatMap(({ type, queue, capped }) =>
        [...capped].map((gauge): LabelledValue => [{ gauge, task_type: type, queue }, 1]),
      );
    case 'pending':
    case 'running':
    case 'due':
    case 'dead':
    case 'completed':
    case 'oldestDueSeconds':
      return counts.map(({ type, queue, [key]: value }) => [{ task_type: type, queue }, value]);
    default:
      return [];
  }
}

/** How values of several replicas or databases under the same labels become one; those not named are added. */
const COMBINED: Partial<Record<GaugeKey, (left: number, right: number) => number>> = {
  oldestDueSeconds: Math.max,
  queuePaused: Math.max,
  countsCapped: Math.max,
  databaseUp: Math.min,
  gaugesAgeSeconds: Math.max,
  listenerConnected: Math.min,
  clockOffset: (left, right) => (Math.abs(right) > Math.abs(left) ? right : left),
  eventLoopDelay: Math.max,
};

function combined(key: GaugeKey, samples: readonly Sample<GaugeKey>[]): Sample<GaugeKey>[] {
  const combine = COMBINED[key] ?? ((left, right) => left + right);
  const byLabels = new Map<string, Sample<GaugeKey>>();
  for (const sample of samples) {
    const place = JSON.stringify(sample.labels);
    const before = byLabels.get(place);
    byLabels.set(
      place,
      before === undefined ? sample : { ...sample, value: combine(before.value, sample.value) },
    );
  }
  return [...byLabels.values()];
}

function seconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1_000;
}

/** The longest of the last minute. Not since the last scrape: of two that scrape, one would see nothing. */
class LoopWindow {
  readonly #clock: AppClock;
  /** Each is longer than those after it: the first is the longest there is. */
  #delays: { readonly at: MonotonicMs; readonly delayMs: number }[] = [];

  constructor(clock: AppClock) {
    this.#clock = clock;
  }

  add(delayMs: number): void {
    this.#delays = this.#delays.filter((each) => each.delayMs > delayMs);
    this.#delays.push({ at: this.#clock.monotonic(), delayMs });
    this.#forget();
  }

  worstMs(): number | undefined {
    this.#forget();
    return this.#delays[0]?.delayMs;
  }

  #forget(): void {
    const since = this.#clock.monotonic() - LOOP_DELAY_WINDOW_MS;
    this.#delays = this.#delays.filter(({ at }) => at >= since);
  }
}
