import { Registry } from 'prom-client';
import { type Duration, durationMs } from '../domain/duration.ts';
import { TaskqError } from '../domain/errors.ts';
import { GAUGE_INTERVAL_MS, GAUGE_INTERVAL_MS_MAX, GAUGE_INTERVAL_MS_MIN } from '../domain/limits.ts';
import { checkName } from '../domain/task-definition.ts';
import { type AppClock, systemClock, systemTimers, type Timers } from '../domain/time.ts';
import { MetricSet, type MetricsRegistry } from './metric-set.ts';
import { PREFIX_DEFAULT } from './names.ts';
import { Replicas } from './replicas.ts';
import type { AppMetrics } from './source.ts';

export interface MetricsOptions {
  /** Where the metrics are registered, of whichever copy of prom-client. Default: a registry of their own. */
  readonly registry?: MetricsRegistry;
  /** In front of every name. Default `'taskq_'`. */
  readonly prefix?: string;
  /** Becomes the label `app` of every series, to tell apps of one process apart. Default: no such label. */
  readonly app?: string;
  /** The gauges of a database are read at most this often, whoever scrapes. 1 s to 1 h; default 15 s. */
  readonly gaugeInterval?: Duration;
  readonly clock?: AppClock;
  readonly timers?: Timers;
}

/** Metrics of one or several apps of this process, for Prometheus. */
export interface Metrics extends AppMetrics {
  readonly registry: MetricsRegistry;
  /** The text of a scrape, in the format of the registry's `contentType`. */
  render(): Promise<string>;
}

/**
 * Makes the metrics for `createApp({ metrics })`. The same registry and prefix give the same metrics, which every app
 * counts in: nothing is registered twice, and a second app resets nothing.
 * @throws TaskqError `CONFIG_INVALID`, also when the registry has another metric of one of the names;
 *   `DURATION_INVALID`
 */
export function createMetrics(options: MetricsOptions = {}): Metrics {
  const registry: MetricsRegistry = options.registry ?? new Registry();
  const prefix = checkPrefix(options.prefix ?? PREFIX_DEFAULT);
  const app = options.app === undefined ? {} : { app: checkName(options.app, 'metrics, app') };
  const intervalMs = durationMs(options.gaugeInterval ?? GAUGE_INTERVAL_MS, 'gaugeInterval', {
    minMs: GAUGE_INTERVAL_MS_MIN,
    maxMs: GAUGE_INTERVAL_MS_MAX,
  });
  const { clock = systemClock, timers = systemTimers } = options;
  const set = metricSet(registry, prefix, () => new Replicas({ intervalMs, clock, timers }));
  return {
    registry,
    render: () => registry.metrics(),
    replica: (facts) => set.gauges.replica(set, app, facts),
  };
}

type Sets = WeakMap<MetricsRegistry, Map<string, MetricSet<Replicas>>>;

/** Of the process, not of this module: the package may be loaded twice, and then shares the metrics. */
const SETS = Symbol.for('taskq.metrics.1');

function metricSet(registry: MetricsRegistry, prefix: string, replicas: () => Replicas): MetricSet<Replicas> {
  const shared = globalThis as { [SETS]?: Sets };
  shared[SETS] ??= new WeakMap();
  const ofRegistry = shared[SETS].get(registry) ?? new Map<string, MetricSet<Replicas>>();
  shared[SETS].set(registry, ofRegistry);
  const made = ofRegistry.get(prefix);
  if (made !== undefined) {
    made.register();
    return made;
  }
  const set = new MetricSet(registry, prefix, replicas);
  ofRegistry.set(prefix, set);
  return set;
}

function checkPrefix(prefix: string): string {
  if (/^[a-zA-Z_:][a-zA-Z0-9_:]*$/.test(prefix)) return prefix;
  throw new TaskqError(
    'CONFIG_INVALID',
    `metrics, prefix: expected letters, digits, '_' and ':', not beginning with a digit, received '${prefix}'`,
  );
}
