// Figures of a shared machine move together with its load. So both sides are measured in the same round, each
// round yields a ratio of its own, and what is reported is the median of those ratios with their spread.

/** What one round measured for one side. */
export type Figures = readonly number[];

export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

export interface Target {
  readonly at: 'least' | 'most';
  readonly value: number;
}

/** A figure of taskq beside the raw floor of the same rounds. */
export interface Comparison {
  readonly kind: 'comparison';
  readonly name: string;
  readonly unit: string;
  readonly better: 'higher' | 'lower';
  readonly taskq: Figures;
  readonly floor: Figures;
  /** taskq / floor, round by round. */
  readonly ratios: Figures;
  /** For the median of the ratios. */
  readonly target: Target | undefined;
}

/** A figure that has no floor. */
export interface Measurement {
  readonly kind: 'measurement';
  readonly name: string;
  readonly unit: string;
  readonly values: Figures;
  /** For the median of the values. */
  readonly target: Target | undefined;
}

export type Line = Comparison | Measurement;

export function comparison(
  line: Pick<Comparison, 'name' | 'unit' | 'better' | 'taskq' | 'floor'>,
  target?: Target,
): Comparison {
  const ratios = line.taskq.map((value, round) => value / (line.floor[round] as number));
  return { kind: 'comparison', ...line, ratios, target };
}

export function measurement(
  line: Pick<Measurement, 'name' | 'unit' | 'values'>,
  target?: Target,
): Measurement {
  return { kind: 'measurement', ...line, target };
}

/** Undefined for a line without a target. */
export function isMet(line: Line): boolean | undefined {
  if (line.target === undefined) return undefined;
  const { median } = spread(line.kind === 'comparison' ? line.ratios : line.values);
  return line.target.at === 'least' ? median >= line.target.value : median <= line.target.value;
}

export function spread(values: Figures): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  return { median: percentile(sorted, 50), min: sorted[0] as number, max: sorted.at(-1) as number };
}

/** Of values in any order; between two neighbours it is interpolated. */
export function percentile(values: Figures, percent: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const position = ((sorted.length - 1) * percent) / 100;
  const below = sorted[Math.floor(position)] as number;
  const above = sorted[Math.ceil(position)] as number;
  return below + (above - below) * (position - Math.floor(position));
}
