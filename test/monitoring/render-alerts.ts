import { stringify } from 'yaml';
import type { Alert } from './alerts.ts';

// The same alerts twice: for Prometheus (a rule file), and for Grafana (a file of its alerting provisioning).

/** Where the section of an alert is, in the documentation. */
export const runbookOf = ({ name }: Pick<Alert, 'name'>): string => `docs/runbook.md#${name.toLowerCase()}`;

const GENERATED = [
  'The alerts of taskq. Written by `npm run monitoring`: do not edit.',
  'A fleet is one scrape job (and `namespace`, and `app`, where there are such labels): give all workers of one queue',
  'the same `job`. With another prefix than `taskq_`, replace it here.',
];

/** Values, as the two template languages name them. */
const PROMETHEUS_VALUE = '$value';
const GRAFANA_VALUE = '$values.A.Value';

function annotationsOf(alert: Alert, value: string): Record<string, string> {
  const shown = alert.unit === undefined ? `{{ ${value} }}` : `{{ ${alert.unit} ${value} }}`;
  return {
    summary: alert.summary,
    description: alert.description.replaceAll('{VALUE}', shown),
    runbook: runbookOf(alert),
  };
}

export function prometheusAnnotations(alert: Alert): Record<string, string> {
  return annotationsOf(alert, PROMETHEUS_VALUE);
}

/** A rule file: `rule_files: [taskq-alerts.yml]`. */
export function renderPrometheus(alerts: readonly Alert[]): string {
  const rules = alerts.map((alert) => ({
    alert: alert.name,
    expr: alert.expression,
    for: alert.for,
    labels: { severity: alert.severity },
    annotations: prometheusAnnotations(alert),
  }));
  const text = stringify({ groups: [{ name: 'taskq', rules }] }, YAML_OPTIONS);
  return `${comments(GENERATED)}\n${withReasons(text, alerts, /^( *)- alert: (\w+)$/gm)}`;
}

/** Grafana puts its environment in here, but neither in expressions nor in `$labels`. */
export const GRAFANA_DATASOURCE = '$TASKQ_PROMETHEUS_UID';

/** A provisioning file: `provisioning/alerting/`. */
export function renderGrafana(alerts: readonly Alert[]): string {
  const rules = alerts.map((alert) => ({
    uid: uidOf(alert),
    title: alert.name,
    condition: 'B',
    data: [queryOf(alert), CONDITION],
    // An expression without an answer is an alert that is not in alarm; that of no metrics at all has one of its own.
    noDataState: 'OK',
    execErrState: 'Error',
    for: alert.for,
    annotations: annotationsOf(alert, GRAFANA_VALUE),
    labels: { severity: alert.severity },
    isPaused: false,
  }));
  const group = { orgId: 1, name: 'taskq', folder: 'taskq', interval: '1m', rules };
  const text = stringify({ apiVersion: 1, groups: [group] }, YAML_OPTIONS);
  const head = [
    ...GENERATED,
    `Set the environment variable ${GRAFANA_DATASOURCE.slice(1)} of Grafana to the uid of its Prometheus data source.`,
  ];
  return `${comments(head)}\n${withReasons(text, alerts, /^( *)title: (\w+)$/gm)}`;
}

/** `TaskqQueueStarving` → `taskq-queue-starving`; Grafana takes 40 characters at the most. */
function uidOf({ name }: Alert): string {
  return name.replaceAll(/(?<=[a-z])(?=[A-Z])/g, '-').toLowerCase();
}

function queryOf({ expression }: Alert) {
  return {
    refId: 'A',
    relativeTimeRange: { from: 600, to: 0 },
    datasourceUid: GRAFANA_DATASOURCE,
    model: { refId: 'A', expr: expression, instant: true, range: false },
  };
}

/** The expression answers what is in alarm, whatever its value: any number will do, a zero too. */
const CONDITION = {
  refId: 'B',
  relativeTimeRange: { from: 0, to: 0 },
  datasourceUid: '__expr__',
  model: {
    refId: 'B',
    type: 'threshold',
    expression: 'A',
    conditions: [{ type: 'query', evaluator: { type: 'gt', params: [-1] }, query: { params: ['B'] } }],
  },
};

/** Long lines stay whole: a folded expression is another text. */
const YAML_OPTIONS = { lineWidth: 0 } as const;

function comments(lines: readonly string[]): string {
  return lines.map((line) => `# ${line}`).join('\n');
}

function withReasons(text: string, alerts: readonly Alert[], at: RegExp): string {
  return text.replaceAll(at, (line, space: string, name: string) => {
    const reason = alerts.find((alert) => alert.name === name)?.reason ?? '';
    const commented = wrapped(reason, COMMENT_WIDTH_MAX - space.length).map((part) => `${space}# ${part}`);
    return `${commented.join('\n')}\n${line}`;
  });
}

const COMMENT_WIDTH_MAX = 108;

function wrapped(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const line = lines.at(-1);
    if (line !== undefined && line.length + 1 + word.length <= width)
      lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines;
}
