import type { GaugeCounts, GaugeReading } from '../statements/gauges.ts';
import { boundedLabels } from './bounded-labels.ts';
import type { CappedGauge } from './names.ts';
import type { KnownType } from './source.ts';

// From what was read to series: names that are no label values of their own are folded, and what is registered is
// there at zero when it has no row, so that a chart shows a line and an alert on its growth has a beginning.

/** One type in one queue, as it is shown. */
export interface CountSeries {
  readonly type: string;
  readonly queue: string;
  pending: number;
  running: number;
  due: number;
  dead: number;
  completed: number;
  oldestDueSeconds: number;
  readonly capped: Set<CappedGauge>;
}

export interface GaugeSeries {
  readonly counts: readonly CountSeries[];
  /** Undefined where nothing is registered at all: an exporter has no opinion. */
  readonly unregistered: ReadonlyMap<string, number> | undefined;
  readonly queues: ReadonlyMap<string, boolean>;
}

export function gaugeSeries(reading: GaugeReading, known: readonly KnownType[]): GaugeSeries {
  const knownTypes = new Set(known.map(({ type }) => type));
  const knownQueues = new Set(known.map(({ queue }) => queue));
  const typeLabel = boundedLabels(
    [...reading.counts.map(({ type }) => type), ...reading.revisions.map(({ type }) => type)],
    knownTypes,
  );
  const queueLabel = boundedLabels(
    [...reading.counts.map(({ queue }) => queue), ...reading.queues.map(({ queue }) => queue)],
    knownQueues,
  );
  const series = new Map<string, CountSeries>();
  const at = (type: string, queue: string) => {
    const key = JSON.stringify([type, queue]);
    const found = series.get(key) ?? emptySeries(type, queue);
    series.set(key, found);
    return found;
  };
  for (const { type, queue } of known) at(type, queue);
  for (const counts of reading.counts) addTo(at(typeLabel(counts.type), queueLabel(counts.queue)), counts);
  return {
    counts: [...series.values()],
    unregistered: known.length === 0 ? undefined : unregisteredOf(reading, known, typeLabel),
    queues: pausedQueues(reading, knownQueues, queueLabel),
  };
}

function emptySeries(type: string, queue: string): CountSeries {
  const zeros = { pending: 0, running: 0, due: 0, dead: 0, completed: 0, oldestDueSeconds: 0 };
  return { type, queue, ...zeros, capped: new Set() };
}

function addTo(series: CountSeries, counts: GaugeCounts): void {
  series.pending += counts.pending;
  series.running += counts.running;
  series.due += counts.due;
  series.dead += counts.dead;
  series.completed += counts.completed;
  series.oldestDueSeconds = Math.max(series.oldestDueSeconds, counts.oldestDueSeconds);
  for (const gauge of counts.capped) series.capped.add(gauge);
}

/** A replica that registers several revisions of a type (two apps in one process) knows the newest. */
function unregisteredOf(
  { revisions }: GaugeReading,
  known: readonly KnownType[],
  typeLabel: (type: string) => string,
): Map<string, number> {
  const newest = new Map<string, number>();
  for (const { type, revision } of known) newest.set(type, Math.max(revision, newest.get(type) ?? 0));
  // The registered ones are there at zero.
  const unregistered = new Map([...newest.keys()].map((type) => [type, 0]));
  for (const { type, revision, tasks } of revisions) {
    if (revision <= (newest.get(type) ?? 0)) continue;
    const label = typeLabel(type);
    unregistered.set(label, (unregistered.get(label) ?? 0) + tasks);
  }
  return unregistered;
}

/** Of queues that share a label one that is paused is shown. */
function pausedQueues(
  { queues }: GaugeReading,
  knownQueues: ReadonlySet<string>,
  queueLabel: (queue: string) => string,
): Map<string, boolean> {
  const paused = new Map([...knownQueues].map((queue) => [queue, false]));
  for (const { queue, isPaused } of queues) {
    const label = queueLabel(queue);
    paused.set(label, isPaused || (paused.get(label) ?? false));
  }
  return paused;
}
