import { expectTypeOf, test } from 'vitest';
import type * as embedded from '../../src/embedded/index.ts';
import type * as taskq from '../../src/index.ts';
import type * as metrics from '../../src/metrics/index.ts';
import type * as testing from '../../src/testing/index.ts';

// Every export is a promise: a name is added or taken away here too, on purpose.

test('the values that taskq exports are these', () => {
  expectTypeOf<keyof typeof taskq>().toEqualTypeOf<
    | 'PreparingClient'
    | 'SkipRetry'
    | 'TaskqError'
    | 'createApp'
    | 'createCron'
    | 'createEnqueuer'
    | 'createRegistry'
    | 'defineConfig'
    | 'defineTask'
    | 'dequeueUnleased'
    | 'inThread'
    | 'migrateUp'
    | 'queryExecutor'
    | 'traceEnqueue'
    | 'traceRuns'
    | 'walkPages'
  >();
});

test('the values that taskq/embedded exports are these', () => {
  expectTypeOf<keyof typeof embedded>().toEqualTypeOf<'startEmbeddedPostgres'>();
});

test('the values that taskq/metrics exports are these', () => {
  expectTypeOf<keyof typeof metrics>().toEqualTypeOf<
    'createMetrics' | 'metricsHandler' | 'startMetricsServer'
  >();
});

test('the values that taskq/testing exports are these', () => {
  expectTypeOf<keyof typeof testing>().toEqualTypeOf<
    'createTestClock' | 'drain' | 'enqueuedIn' | 'expectEnqueued' | 'runTask'
  >();
});
