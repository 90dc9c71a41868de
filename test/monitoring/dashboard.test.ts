import { SkipRetry } from '../../src/index.ts';
import { createMetrics } from '../../src/metrics/index.ts';
import { cronOf } from '../support/cron.ts';
import { test } from '../support/replica.ts';
import { enqueue } from '../support/tasks.ts';
import { expect } from '../support/test.ts';
import { driftOf } from './expressions.ts';
import { shipped } from './files.ts';
import { requirePromtool, type Series, testRules } from './promtool.ts';

interface Panel {
  readonly title: string;
  readonly targets?: readonly { readonly expr: string }[];
}

test('every panel of the dashboard has an answer from what a replica exports', async ({
  db,
  startReplica,
  skip,
}) => {
  await requirePromtool({ skip });
  const metrics = createMetrics({ gaugeInterval: '1s' });
  const { events } = await startReplica({
    metrics,
    roles: ['processor', 'cron'],
    cron: cronOf([{ schedule: '@every 1s', task: 'sliced', payload: { pages: 1 } }]),
    handlers: {
      brief: () => {
        throw new SkipRetry('on purpose');
      },
    },
  });
  const EACH = 3;
  const someOfEach = async (round: number) => {
    const ticks = events.of('cron_enqueued').length;
    for (let n = 0; n < EACH; n += 1) {
      await enqueue(db, 'plain', { n }, { retention: '1h' });
      await enqueue(db, 'brief', {});
    }
    const settledOf = (type: string) =>
      events.atLeast(round * EACH, 'settled', ({ task }) => task.type === type);
    await Promise.all([settledOf('plain'), settledOf('brief'), events.atLeast(ticks + 1, 'cron_enqueued')]);
  };

  await someOfEach(1);
  const first = await metrics.render();
  await someOfEach(2);
  const second = await metrics.render();

  // As if a quarter of an hour lay between two minutes of the first scrape and those of the second.
  const input_series = recorded(first, second);
  const panels: Panel[] = JSON.parse(shipped('grafana-dashboard.json')).panels;
  const expressions = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  expect(expressions.length).toBeGreaterThan(30);
  for (const expression of expressions) expect(driftOf(expression)).toEqual([]);
  await testRules(
    [],
    [
      {
        interval: '15s',
        input_series,
        promql_expr_test: expressions.map((expression) => ({
          // A quantile of no observations is NaN, which is greater than nothing.
          expr: `count((${chosen(expression)}) > -Inf) > bool 0`,
          eval_time: '5m',
          exp_samples: [{ labels: '{}', value: 1 }],
        })),
      },
    ],
  );
});

/** What Grafana makes of it when everything is chosen. */
function chosen(expression: string): string {
  return expression.replaceAll('$__rate_interval', '5m').replaceAll(/\$(job|queue|task_type)\b/g, '.*');
}

/** Two scrapes as the series of one target: the values of the first for two minutes, then those of the second. */
function recorded(first: string, second: string): Series[] {
  const before = samplesOf(first);
  return [...samplesOf(second)].map(([series, value]) => ({
    series: series.includes('{')
      ? series.replace('{', '{job="workers",instance="a",')
      : `${series}{job="workers",instance="a"}`,
    values: `${before.has(series) ? before.get(series) : '_'}x8 ${value}x40`,
  }));
}

function samplesOf(scrape: string): Map<string, string> {
  const lines = scrape.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => {
      const [, series = '', value = ''] = /^(.*) (\S+)$/.exec(line) ?? [];
      return [series, value];
    }),
  );
}
