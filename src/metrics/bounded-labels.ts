import { LABEL_VALUES_MAX } from '../domain/limits.ts';
import { OTHER } from './names.ts';

// Names that come out of the table are not ours to bound: anybody may enqueue into any queue, or write a row of any
// type by SQL. Every name would be a series for as long as the process lives, here and in Prometheus.

/** Label values of what is counted: known names, those met first, and one value for the rest. */
export class BoundedLabels {
  readonly #known = new Set<string>();
  readonly #met = new Set<string>();

  know(name: string): void {
    this.#known.add(name);
  }

  label(name: string): string {
    if (this.#known.has(name) || this.#met.has(name)) return name;
    if (this.#met.size >= LABEL_VALUES_MAX) return OTHER;
    this.#met.add(name);
    return name;
  }
}

/**
 * Label values of what is read: known names, the first of the others by name, and one value for the rest. By name, so
 * that every replica keeps the same ones: a type that two replicas fold differently would be summed twice.
 */
export function boundedLabels(names: Iterable<string>, known: ReadonlySet<string>): (name: string) => string {
  const others = [...new Set(names)].filter((name) => !known.has(name)).sort();
  const kept = new Set(others.slice(0, LABEL_VALUES_MAX));
  return (name) => (known.has(name) || kept.has(name) ? name : OTHER);
}
