import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import { TaskqError } from '../domain/errors.ts';
import { BoundedLabels } from './bounded-labels.ts';
import { type KeyOf, type LabelsOf, METRICS, type MetricDescription, type MetricKey } from './names.ts';

/**
 * A registry of prom-client, of the application's copy of it or of ours: told by its members, since two copies of a
 * class are two classes.
 */
export interface MetricsRegistry {
  readonly contentType: string;
  /** The text that is scraped. */
  metrics(): Promise<string>;
  getSingleMetric(name: string): unknown;
  registerMetric(metric: never): void;
}

/** The label that tells apps of one process apart; without a value where no name was given. */
export type AppLabel = Readonly<{ app?: string }>;

/** One value of a gauge, with its labels. */
export interface Sample<Key extends KeyOf<'gauge'>> {
  readonly labels: AppLabel & LabelsOf<Key>;
  readonly value: number;
}

/** What the gauges show, asked at each scrape. */
export interface Sampler {
  sample<Key extends KeyOf<'gauge'>>(key: Key): Sample<Key>[] | Promise<Sample<Key>[]>;
}

type AnyMetric = Counter | Gauge | Histogram;

/** Every metric of the table under one prefix in one registry, made once however often it is asked for. */
export class MetricSet<Gauges extends Sampler = Sampler> {
  readonly gauges: Gauges;
  /** Queues as counters name them. */
  readonly queues = new BoundedLabels();
  readonly #registry: MetricsRegistry;
  readonly #prefix: string;
  readonly #metrics = new Map<MetricKey, AnyMetric>();

  constructor(registry: MetricsRegistry, prefix: string, gauges: () => Gauges) {
    this.#registry = registry;
    this.#prefix = prefix;
    for (const description of descriptions()) {
      if (registry.getSingleMetric(prefix + description[1].name) !== undefined)
        throw nameTaken(prefix + description[1].name);
    }
    this.gauges = gauges();
    for (const [key, description] of descriptions()) this.#metrics.set(key, this.#make(key, description));
  }

  /** Puts back what the application has cleared from its registry. What was counted stays. */
  register(): void {
    for (const [key, { name }] of descriptions()) {
      const metric = this.#metrics.get(key);
      const registered = this.#registry.getSingleMetric(this.#prefix + name);
      if (registered === metric) continue;
      if (registered !== undefined) throw nameTaken(this.#prefix + name);
      this.#registry.registerMetric(metric as never);
    }
  }

  count<Key extends KeyOf<'counter'>>(key: Key, labels: AppLabel & LabelsOf<Key>, by = 1): void {
    (this.#metrics.get(key) as Counter).inc({ ...labels }, by);
  }

  observe<Key extends KeyOf<'histogram'>>(key: Key, labels: AppLabel & LabelsOf<Key>, seconds: number): void {
    (this.#metrics.get(key) as Histogram).observe({ ...labels }, seconds);
  }

  #make(key: MetricKey, { kind, name, labels, help, buckets }: MetricDescription): AnyMetric {
    // prom-client takes the labels once and for all, so that `app` is there before anybody has given it a value.
    const config = {
      name: this.#prefix + name,
      help,
      labelNames: [...labels, 'app'],
      registers: [this.#registry as unknown as Registry],
    };
    if (kind === 'counter') return new Counter(config);
    if (kind === 'histogram') return new Histogram({ ...config, buckets: [...(buckets ?? [])] });
    const { gauges } = this;
    const gauge = new Gauge({
      ...config,
      async collect() {
        const samples = await gauges.sample(key as KeyOf<'gauge'>);
        // In one turn, or a scrape beside this one would see half of it. A series that is not there any more goes.
        gauge.reset();
        for (const { labels: values, value } of samples) gauge.set({ ...values }, value);
      },
    });
    return gauge;
  }
}

function descriptions(): [MetricKey, MetricDescription][] {
  return Object.entries(METRICS) as [MetricKey, MetricDescription][];
}

function nameTaken(name: string): TaskqError {
  return new TaskqError(
    'CONFIG_INVALID',
    `metrics: the registry has a metric '${name}' that is not of this version of taskq; give another prefix`,
  );
}
