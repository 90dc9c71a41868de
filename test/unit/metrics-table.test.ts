import { expect, test } from 'vitest';
import { METRICS, type MetricDescription } from '../../src/metrics/names.ts';
import { metricsInPage, renderMetrics } from '../support/metrics-table.ts';

test('the page on metrics lists every one as the code has it', () => {
  expect(metricsInPage(), 'run `npm run readme`').toBe(renderMetrics());
});

test('names say their unit: counters end in _total, lengths of time are in seconds', () => {
  for (const { kind, name } of Object.values(METRICS) as MetricDescription[]) {
    expect(name.endsWith('_total'), name).toBe(kind === 'counter');
    if (kind === 'histogram') expect(name).toMatch(/_seconds$/);
    expect(name).not.toMatch(/_ms\b|milliseconds/);
  }
});

test('labels come from closed sets', () => {
  const labels = new Set((Object.values(METRICS) as MetricDescription[]).flatMap((metric) => metric.labels));
  expect([...labels].sort()).toEqual(['during', 'entry', 'gauge', 'outcome', 'queue', 'task_type']);
});
