import { createRequire } from 'node:module';
import { sql } from 'kysely';
import { register as defaultRegistry, Registry } from 'prom-client';
import { afterEach, vi } from 'vitest';
import { LABEL_VALUES_MAX } from '../../src/domain/limits.ts';
import { createMetrics } from '../../src/metrics/index.ts';
import { METRICS } from '../../src/metrics/names.ts';
import { scrape, testMetrics } from '../support/metrics.ts';
import { test } from '../support/replica.ts';
import { insertRow } from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/schema.ts';
import { enqueue, enqueueMany } from '../support/tasks.ts';
import { expect } from '../support/test.ts';

// Hazard 67: a second instance registers the same names and the application falls over, or its counters begin anew;
// and labels whose values come from data make series without end.

const PLAIN = { task_type: 'plain', queue: 'default' };
const SUCCESS = { ...PLAIN, outcome: 'success' };

afterEach(() => defaultRegistry.clear());

test('the default registry of prom-client is left alone unless it is given', async () => {
  createMetrics();
  expect(defaultRegistry.getMetricsAsArray()).toEqual([]);

  createMetrics({ registry: defaultRegistry });

  expect(defaultRegistry.getMetricsAsArray()).toHaveLength(Object.keys(METRICS).length);
});

test('two workers in one process on one registry share its metrics, and reset nothing', async ({
  db,
  startReplica,
}) => {
  const registry = new Registry();
  const first = await startReplica({ metrics: createMetrics({ registry }), slots: 1, queues: ['default'] });
  await enqueue(db, 'plain', {});
  await first.events.first('settled');

  const second = await startReplica({ metrics: createMetrics({ registry }), slots: 1, queues: ['low'] });
  await enqueue(db, 'plain', {}, { queue: 'low' });
  await second.events.first('settled');

  const { value } = await scrape(createMetrics({ registry }));
  expect(value('taskq_runs_total', SUCCESS)).toBe(1);
  expect(value('taskq_runs_total', { ...SUCCESS, queue: 'low' })).toBe(1);
  expect(value('taskq_slots')).toBe(2);
});

test('on registries of their own two workers count apart', async ({ db, startReplica }) => {
  const [one, other] = [testMetrics(), testMetrics()];
  const { events } = await startReplica({ metrics: one });
  await startReplica({ metrics: other, queues: ['no_such_queue'] });

  await enqueue(db, 'plain', {});
  await events.first('settled');

  expect((await scrape(one)).value('taskq_runs_total', SUCCESS)).toBe(1);
  expect((await scrape(other)).value('taskq_runs_total', SUCCESS)).toBe(0);
});

test('a worker that is stopped and started ten times goes on counting', async ({ db, startReplica }) => {
  const metrics = testMetrics();

  for (let starts = 1; starts <= 10; starts += 1) {
    const { app, events } = await startReplica({ metrics });
    await enqueue(db, 'plain', {});
    await events.first('settled');
    metrics.refresh();
    const { value } = await scrape(metrics);
    expect(value('taskq_runs_total', SUCCESS)).toBe(starts);
    expect(value('taskq_slots')).toBe(4);
    await app.stop();
  }
});

test('two copies of the package share what is in a registry', async () => {
  const registry = new Registry();
  createMetrics({ registry });
  vi.resetModules();
  const copy = await import('../../src/metrics/index.ts');
  expect(copy.createMetrics).not.toBe(createMetrics);

  const metrics = copy.createMetrics({ registry });

  const { text } = await scrape(metrics);
  expect(text.match(/^# TYPE taskq_runs_total counter$/gm)).toHaveLength(1);
});

test('a registry of another copy of prom-client will do', async ({ db, startReplica }) => {
  const require = createRequire(import.meta.url);
  for (const file of Object.keys(require.cache)) {
    if (file.includes('/prom-client/')) delete require.cache[file];
  }
  const copy = require('prom-client') as typeof import('prom-client');
  expect(copy.Registry).not.toBe(Registry);
  const metrics = createMetrics({ registry: new copy.Registry() });

  const { events } = await startReplica({ metrics });
  await enqueue(db, 'plain', {});
  await events.first('settled');

  expect((await scrape(metrics)).value('taskq_runs_total', SUCCESS)).toBe(1);
});

test('a registry that was cleared gets its metrics back', async () => {
  const registry = new Registry();
  createMetrics({ registry });
  registry.clear();

  createMetrics({ registry });

  expect(registry.getMetricsAsArray()).toHaveLength(Object.keys(METRICS).length);
});

test('a name that somebody else has is refused, and another prefix is the way out', async () => {
  const registry = new Registry();
  const { Gauge } = await import('prom-client');
  new Gauge({ name: 'taskq_dead', help: 'of somebody else', registers: [registry] });

  expect(() => createMetrics({ registry })).toThrow(
    expect.objectContaining({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(/'taskq_dead'.*prefix/),
    }),
  );
  const { text } = await scrape(createMetrics({ registry, prefix: 'jobs_' }));
  expect(text).toContain('# TYPE jobs_dead gauge');
});

test('a flood of keys, errors, queues and types that nobody registers makes no series without end', async ({
  db,
  startReplica,
}) => {
  const metrics = testMetrics();
  const { events } = await startReplica({
    metrics,
    slots: 20,
    handlers: {
      plain: async ({ n }) => {
        throw new Error(`error ${n}`);
      },
    },
  });
  const before = await scrape(metrics);
  await enqueueMany(
    db,
    'plain',
    Array.from({ length: 2_000 }, (_, n) => ({ payload: { n }, unique: { key: `key ${n}` } })) as never,
  );
  await sql`insert into ${sql.table(`${TEST_SCHEMA}.async_tasks`)} (task_type, queue, payload)
    select 'type ' || n % 500, 'queue ' || n % 300, '{}' from generate_series(1, 10000) n`.execute(db);
  await events.atLeast(500, 'settled');
  metrics.refresh();

  const after = await scrape(metrics);

  const ofPlain = (of: typeof after) => of.series.filter(({ labels }) => labels['task_type'] === 'plain');
  // Of what is registered there are as many series as before, and those of an outcome that had not been met.
  const met = new Set(ofPlain(before).map(({ name, labels }) => JSON.stringify([name, labels])));
  const added = ofPlain(after).filter(({ name, labels }) => !met.has(JSON.stringify([name, labels])));
  expect(new Set(added.map(({ name }) => name.replace(/_(bucket|sum|count)$/, '')))).toEqual(
    new Set(['taskq_run_duration_seconds', 'taskq_wait_seconds']),
  );
  const types = new Set(after.of('taskq_pending').map(({ labels }) => labels['task_type']));
  const queues = new Set(after.of('taskq_pending').map(({ labels }) => labels['queue']));
  expect(types.size).toBeLessThanOrEqual(LABEL_VALUES_MAX + 5);
  expect(queues.size).toBeLessThanOrEqual(LABEL_VALUES_MAX + 3);
  expect(types).toContain('other');
  const pending = after.of('taskq_pending').reduce((sum, { value }) => sum + value, 0);
  expect(pending, 'what is folded is counted').toBe(12_000);
  expect(Buffer.byteLength(after.text)).toBeLessThan(1_048_576);
});

test('a label value with quotes, backslashes and line breaks is the value it was', async ({
  db,
  startReplica,
}) => {
  const metrics = testMetrics();
  await startReplica({ metrics, queues: ['no_such_queue'] });
  const queue = 'a "quoted" \\ name\nof two lines';
  await insertRow(db, { queue });

  expect((await scrape(metrics)).value('taskq_pending', { queue })).toBe(1);
});
