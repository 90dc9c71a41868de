import { onTestFinished } from 'vitest';
import type { App } from '../../src/app.ts';
import { createMetrics, type Metrics, type MetricsOptions } from '../../src/metrics/index.ts';

/** One line of a scrape. */
export interface Series {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** What a Prometheus would read. */
export interface Scrape {
  readonly text: string;
  readonly series: readonly Series[];
  /** The value of the one series that has these labels, and perhaps others; undefined when there is none. */
  value(name: string, labels?: Readonly<Record<string, string>>): number | undefined;
  /** Every series of a name. */
  of(name: string): readonly Series[];
}

export async function scrape(metrics: Pick<Metrics, 'render'>): Promise<Scrape> {
  return parseScrape(await metrics.render());
}

export function parseScrape(text: string): Scrape {
  const series = text.split('\n').flatMap(parseLine);
  const of = (name: string) => series.filter((each) => each.name === name);
  return {
    text,
    series,
    of,
    value(name, labels = {}) {
      const found = of(name).filter((each) =>
        Object.entries(labels).every(([label, value]) => each.labels[label] === value),
      );
      if (found.length > 1) throw new Error(`${found.length} series of ${name} ${JSON.stringify(labels)}`);
      return found[0]?.value;
    },
  };
}

function parseLine(line: string): Series[] {
  const [, name, labelText = '', value] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
  if (name === undefined) return [];
  const labels = [...labelText.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, label, text]) => [
    label,
    text?.replaceAll(/\\(.)/g, (_, escaped: string) => (escaped === 'n' ? '\n' : escaped)),
  ]);
  return [{ name, labels: Object.fromEntries(labels), value: Number(value) }];
}

/** Metrics whose gauges are read anew at a scrape a second later: tests change the table and look at once. */
export function testMetrics(options: MetricsOptions = {}): Metrics & { refresh(): void } {
  let shiftMs = 0;
  const clock = {
    monotonic: () => performance.now() + shiftMs,
    wall: () => Date.now(),
  } as NonNullable<MetricsOptions['clock']>;
  return {
    ...createMetrics({ clock, ...options }),
    /** The interval of the gauges has gone by. */
    refresh() {
      shiftMs += 3_600_000;
    },
  };
}

/** Stops the app with the test, whatever becomes of it. */
export function stopWithTest(app: App): App {
  onTestFinished(() => app.stop());
  return app;
}
