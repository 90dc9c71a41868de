import { ALERTS } from './alerts.ts';
import { pathOf } from './files.ts';
import { type RuleTest, type Series, testRules } from './promtool.ts';

// Series of a fleet as Prometheus scrapes them four times a minute, and what the alerts say of them.

const STEP_SECONDS = 15;
const STEPS_OF_A_MINUTE = 60 / STEP_SECONDS;
const MINUTES_MAX = 420;

/** By series, without the prefix of the name and without the labels of a fleet; undefined takes one away. */
export type Values = Readonly<Record<string, string | undefined>>;

/** Two replicas of four slots, two types in queues of their own, and nothing to do. */
const IDLE: Values = {
  ...replica('a'),
  ...replica('b'),
};

/** What one replica exports when nothing happens. */
export function replica(
  instance: string,
  options: { readonly from?: number; readonly to?: number } = {},
): Values {
  const still = (value: number) => between(value, options);
  const at = `instance="${instance}"`;
  const perType = (name: string, rest = '') =>
    [
      ['mail', 'default'],
      ['report', 'low'],
    ].map(
      ([type, queue]) => [`${name}{${at},task_type="${type}",queue="${queue}"${rest}}`, still(0)] as const,
    );
  const outcomes = ['success', 'failure', 'timeout', 'cancelled', 'continued', 'lost'];
  return Object.fromEntries([
    [`slots{${at}}`, still(4)],
    [`slots_busy{${at}}`, still(0)],
    [`slots_overrun{${at}}`, still(0)],
    [`listener_connected{${at}}`, still(1)],
    [`clock_offset_seconds{${at}}`, still(0.01)],
    [`database_up{${at}}`, still(1)],
    [`queue_paused{${at},queue="default"}`, still(0)],
    [`queue_paused{${at},queue="low"}`, still(0)],
    [`unregistered_tasks{${at},task_type="mail"}`, still(0)],
    [`unregistered_tasks{${at},task_type="report"}`, still(0)],
    ...['pending', 'running', 'due', 'dead', 'completed', 'oldest_due_seconds'].flatMap((name) =>
      perType(name),
    ),
    ...perType('dead_letters_total'),
    ...outcomes.flatMap((outcome) => perType('runs_total', `,outcome="${outcome}"`)),
  ]);
}

/** A value from one minute to another, by default of the whole time; the series does not exist outside. */
export function between(
  value: number,
  { from = 0, to = MINUTES_MAX }: { readonly from?: number; readonly to?: number } = {},
): string {
  const steps = (minutes: number) => Math.round(minutes * STEPS_OF_A_MINUTE);
  const absent = from === 0 ? '' : `_x${steps(from)} `;
  return `${absent}${value}x${steps(to - from)}${to < MINUTES_MAX ? ' stale' : ''}`;
}

/** It begins at `value` and gains so much a second. */
export function growing(perSecond: number, value = 0): string {
  return `${value}+${perSecond * STEP_SECONDS}x${MINUTES_MAX * STEPS_OF_A_MINUTE}`;
}

/** The age of a task that was due when the test began, and is not taken. */
export const AGEING = growing(1);

/** The same value of the database, as each replica shows it. */
export function shared(name: string, values: string | undefined, instances = ['a', 'b']): Values {
  const [, metric = '', labels = ''] = /^(\w+)(?:\{(.*)\})?$/.exec(name) ?? [];
  const rest = labels === '' ? '' : `,${labels}`;
  return Object.fromEntries(
    instances.map((instance) => [`${metric}{instance="${instance}"${rest}}`, values]),
  );
}

export const MAIL = 'task_type="mail",queue="default"';
export const REPORT = 'task_type="report",queue="low"';

/** The labels of a firing alert, without its severity and the labels of the fleet. */
export interface Firing {
  readonly name: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly job?: string;
}

export interface Situation {
  /** Changes to a fleet with nothing to do, or, with `only`, all there is. */
  readonly values?: Values;
  readonly only?: Values;
  /** Other fleets beside it, by the name of their job. */
  readonly others?: Readonly<Record<string, Values>>;
  /** What fires at this minute: exactly so much, of all the alerts. */
  readonly at: Readonly<Record<string, readonly Firing[]>>;
}

export const idleWith = (values: Values): Values => ({ ...IDLE, ...values });

/** Rejects unless at each time exactly those alerts fire. */
export async function expectAlerts({ values = {}, only, others = {}, at }: Situation): Promise<void> {
  const fleets = { workers: only ?? idleWith(values), ...others };
  const test: RuleTest = {
    interval: `${STEP_SECONDS}s`,
    input_series: Object.entries(fleets).flatMap(([job, fleet]) => seriesOf(job, fleet)),
    promql_expr_test: Object.entries(at).map(([time, firing]) => ({
      expr: 'ALERTS{alertstate="firing"}',
      eval_time: time,
      exp_samples: firing.map((each) => ({ labels: `ALERTS${labelsOf(each)}`, value: 1 })),
    })),
  };
  await testRules([pathOf('taskq-alerts.yml')], [test]);
}

export function seriesOf(job: string, values: Values): Series[] {
  return Object.entries(values).flatMap(([series, each]) =>
    each === undefined ? [] : [{ series: `taskq_${series.replace('{', `{job="${job}",`)}`, values: each }],
  );
}

function labelsOf({ name, labels = {}, job = 'workers' }: Firing): string {
  const severity = ALERTS.find((alert) => alert.name === name)?.severity ?? '';
  const all = { alertname: name, alertstate: 'firing', severity, ...(job === '' ? {} : { job }), ...labels };
  return `{${Object.entries(all)
    .map(([label, value]) => `${label}="${value}"`)
    .join(', ')}}`;
}
