import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { METRICS, PREFIX_DEFAULT } from '../../src/metrics/names.ts';
import { ALERTS } from './alerts.ts';
import { VARIABLE_QUERIES } from './dashboard.ts';
import { driftOf } from './expressions.ts';
import { MONITORING_FILES, pathOf, rendered, shipped } from './files.ts';
import { promtool, requirePromtool } from './promtool.ts';
import { runbookOf } from './render-alerts.ts';

interface PrometheusRule {
  readonly alert: string;
  readonly expr: string;
  readonly for: string;
  readonly labels: { readonly severity: string };
  readonly annotations: Readonly<Record<string, string>>;
}

interface GrafanaQuery {
  readonly refId: string;
  readonly relativeTimeRange: { readonly from: number; readonly to: number };
  readonly datasourceUid: string;
  readonly model: Readonly<Record<string, unknown>>;
}

interface GrafanaRule {
  readonly uid: string;
  readonly title: string;
  readonly condition: string;
  readonly data: readonly GrafanaQuery[];
  readonly noDataState: string;
  readonly execErrState: string;
  readonly for: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

const prometheusRules = (): PrometheusRule[] => parse(shipped('taskq-alerts.yml')).groups[0].rules;
const grafana = () => parse(shipped('grafana-alerts.yml'));
const grafanaRules = (): GrafanaRule[] => grafana().groups[0].rules;

test.each(MONITORING_FILES)('docs/monitoring/%s is what `npm run monitoring` writes', (file) => {
  expect(shipped(file)).toBe(rendered(file));
});

describe('the rules for Prometheus', () => {
  test('are rules to promtool', async (context) => {
    await requirePromtool(context);
    const answer = await promtool('check', 'rules', pathOf('taskq-alerts.yml'));
    expect(answer).toContain(`SUCCESS: ${ALERTS.length} rules found`);
  });

  test('name metrics and labels that there are', () => {
    for (const { alert, expr } of prometheusRules()) expect([alert, driftOf(expr)]).toEqual([alert, []]);
  });

  test('one alone pages: starvation', () => {
    const pages = prometheusRules().filter(({ labels }) => labels.severity === 'page');
    expect(pages.map(({ alert }) => alert)).toEqual(['TaskqStarvation']);
  });

  test('each says what to run next, and has a section in the runbook', () => {
    const runbook = readFileSync(new URL('../../docs/runbook.md', import.meta.url), 'utf8');
    const anchors = [...runbook.matchAll(/^#+ (.+)$/gm)].map(([, title = '']) => anchorOf(title));
    for (const { alert, annotations } of prometheusRules()) {
      expect(annotations['description'], alert).toMatch(/`taskq \w+/);
      expect(annotations['runbook']).toBe(runbookOf({ name: alert }));
      expect(anchors).toContain(annotations['runbook']?.split('#')[1]);
    }
  });
});

describe('the rules for Grafana', () => {
  test('are a provisioning file: a group with an interval, a folder and rules', () => {
    expect(grafana()).toMatchObject({
      apiVersion: 1,
      groups: [{ orgId: 1, name: 'taskq', folder: 'taskq', interval: '1m' }],
    });
    expect(grafana().groups).toHaveLength(1);
  });

  test('have the expressions, durations, labels and texts of those for Prometheus', () => {
    const ofGrafana = grafanaRules().map((rule) => ({
      alert: rule.title,
      expr: rule.data[0]?.model['expr'],
      for: rule.for,
      labels: rule.labels,
      annotations: rule.annotations,
    }));
    const ofPrometheus = prometheusRules().map((rule) => ({
      ...rule,
      annotations: Object.fromEntries(
        Object.entries(rule.annotations).map(([name, text]) => [
          name,
          text.replaceAll('$value', '$values.A.Value'),
        ]),
      ),
    }));
    expect(ofGrafana).toEqual(ofPrometheus);
  });

  test('have unique uids and titles, of characters that Grafana takes', () => {
    const rules = grafanaRules();
    expect(new Set(rules.map(({ uid }) => uid)).size).toBe(ALERTS.length);
    expect(new Set(rules.map(({ title }) => title)).size).toBe(ALERTS.length);
    for (const { uid } of rules) expect(uid).toMatch(/^[a-z0-9-]{1,40}$/);
  });

  test('evaluate the query, and are in alarm for every series that it answers', () => {
    for (const rule of grafanaRules()) {
      expect(rule).toMatchObject({ condition: 'B', noDataState: 'OK', execErrState: 'Error' });
      const [query, condition] = rule.data;
      expect(rule.data.map(({ refId, model }) => [refId, model['refId']])).toEqual([
        ['A', 'A'],
        ['B', 'B'],
      ]);
      expect(query).toMatchObject({ datasourceUid: '$TASKQ_PROMETHEUS_UID', model: { instant: true } });
      expect(query?.relativeTimeRange.from).toBeGreaterThan(0);
      expect(condition).toMatchObject({
        datasourceUid: '__expr__',
        model: {
          type: 'threshold',
          expression: 'A',
          conditions: [{ evaluator: { type: 'gt', params: [-1] } }],
        },
      });
    }
  });
});

interface DashboardPanel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly gridPos: Readonly<Record<'x' | 'y' | 'w' | 'h', number>>;
  readonly datasource?: { readonly uid: string };
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

describe('the dashboard', () => {
  const panels = (): DashboardPanel[] => JSON.parse(shipped('grafana-dashboard.json')).panels;
  const targets = () => panels().flatMap((panel) => panel.targets ?? []);

  test('names metrics and labels that there are, in panels and in variables', () => {
    for (const { expr } of targets()) expect([expr, driftOf(expr)]).toEqual([expr, []]);
    for (const query of Object.values(VARIABLE_QUERIES)) expect(driftOf(query)).toEqual([]);
  });

  test('shows every metric', () => {
    const shown = targets()
      .map(({ expr }) => expr)
      .join('\n');
    for (const { name } of Object.values(METRICS)) expect(shown).toContain(PREFIX_DEFAULT + name);
  });

  test('has a panel for each place, and an id for each panel', () => {
    const all = panels();
    expect(new Set(all.map(({ id }) => id)).size).toBe(all.length);
    const taken = new Set<string>();
    for (const { title, gridPos } of all) {
      expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(24);
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
          expect(taken, title).not.toContain(`${x},${y}`);
          taken.add(`${x},${y}`);
        }
      }
    }
  });

  test('asks the data source that is chosen, for what is chosen', () => {
    const { templating } = JSON.parse(shipped('grafana-dashboard.json'));
    const names = templating.list.map(({ name }: { name: string }) => name);
    expect(names).toEqual(['datasource', 'job', 'queue', 'task_type']);
    for (const panel of panels().filter(({ type }) => type !== 'row')) {
      expect(panel.datasource?.uid).toBe('$datasource');
      for (const { expr } of panel.targets ?? []) {
        const used = [...expr.matchAll(/\$(\w+)/g)].map(([, name = '']) => name);
        expect(used).toContain('job');
        for (const name of used) expect([...names, '__rate_interval']).toContain(name);
      }
    }
  });
});

describe('the check of names', () => {
  test.each([
    ['taskq_gone > 1', 'no such metric: taskq_gone'],
    ['taskq_pending{outcome="success"}', 'taskq_pending has no label outcome'],
    ['sum by (entry) (taskq_pending)', 'no metric of the expression has the label entry'],
    ['rate(taskq_wait_seconds[5m])', 'no such metric: taskq_wait_seconds'],
    ['taskq_wait_seconds_sum{le="1"}', 'taskq_wait_seconds_sum has no label le'],
    ['vector(1)', 'no metric of taskq in it'],
  ])('finds that %s drifts', (expression, problem) => {
    expect(driftOf(expression)).toEqual([problem]);
  });
});

/** As GitHub makes it of a heading. */
function anchorOf(title: string): string {
  return title
    .toLowerCase()
    .replaceAll(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');
}
