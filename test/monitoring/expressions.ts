import { METRICS, type MetricDescription, type MetricKey, PREFIX_DEFAULT } from '../../src/metrics/names.ts';

/** By these the replicas of one fleet are told from those of another. */
export const LABELS_OF_A_FLEET = ['job', 'namespace', 'app'] as const;

/** What Prometheus and the option `app` put beside a metric's own labels. */
const LABELS_OF_EVERY_SERIES: readonly string[] = [...LABELS_OF_A_FLEET, 'instance'];

/** The full name of a metric; of a histogram its buckets, sum or count. */
export function metric(key: MetricKey, part: '' | '_bucket' | '_sum' | '_count' = ''): string {
  return `${PREFIX_DEFAULT}${METRICS[key].name}${part}`;
}

/** One selector in an expression: its name, and the labels of its braces. */
interface Selector {
  readonly name: string;
  readonly labels: readonly string[];
}

/**
 * What is wrong with the metrics of a PromQL expression: names that the code does not have, and labels that none of the
 * metrics in it has. Not a parser: promtool says whether the expression is one.
 */
export function driftOf(expression: string): string[] {
  const withoutText = expression.replaceAll(/"(?:[^"\\]|\\.)*"/g, '""');
  const selectors = selectorsOf(withoutText);
  if (selectors.length === 0) return ['no metric of taskq in it'];
  const problems: string[] = [];
  const labelsOfAll = new Set<string>();
  for (const { name, labels } of selectors) {
    const known = labelsOf(name);
    if (known === undefined) {
      problems.push(`no such metric: ${name}`);
      continue;
    }
    for (const label of known) labelsOfAll.add(label);
    for (const label of labels) {
      if (!known.includes(label)) problems.push(`${name} has no label ${label}`);
    }
  }
  for (const label of groupedBy(withoutText)) {
    if (!labelsOfAll.has(label)) problems.push(`no metric of the expression has the label ${label}`);
  }
  return problems;
}

function selectorsOf(expression: string): Selector[] {
  const pattern = new RegExp(`\\b(${PREFIX_DEFAULT}\\w+)(?:\\{([^}]*)\\})?`, 'g');
  return [...expression.matchAll(pattern)].map(([, name = '', matchers = '']) => ({
    name,
    labels: [...matchers.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)].map(([, label = '']) => label),
  }));
}

/** Labels of `by (…)`, `on (…)` and the like. */
function groupedBy(expression: string): Set<string> {
  const lists = expression.matchAll(/\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)/g);
  return new Set(
    [...lists].flatMap(([, list = '']) => list.split(',').map((label) => label.trim())).filter(Boolean),
  );
}

/** Undefined when there is no such series. */
function labelsOf(name: string): string[] | undefined {
  for (const each of Object.values(METRICS) as MetricDescription[]) {
    const parts = each.kind === 'histogram' ? ['_bucket', '_sum', '_count'] : [''];
    const part = parts.find((ending) => name === `${PREFIX_DEFAULT}${each.name}${ending}`);
    if (part === undefined) continue;
    return [...LABELS_OF_EVERY_SERIES, ...each.labels, ...(part === '_bucket' ? ['le'] : [])];
  }
  return undefined;
}
