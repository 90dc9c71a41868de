// `taskq/metrics`, name by name: every export is a promise. Apart from `taskq`, so that whoever only enqueues does not
// load prom-client. Pinned by test/types/public-surface.test-d.ts.
export type { MetricsRegistry } from './metric-set.ts';
export { createMetrics, type Metrics, type MetricsOptions } from './metrics.ts';
export {
  type EndpointOptions,
  type Endpoints,
  type MetricsServer,
  metricsHandler,
  type ServerOptions,
  startMetricsServer,
} from './server.ts';
