import type { Writable } from 'node:stream';

/** Tells people what happens: plain lines with the time, readable in a terminal, a file and a CI log alike. */
export class Story {
  readonly #out: Writable;

  constructor(out: Writable) {
    this.#out = out;
  }

  say(text: string): void {
    this.#out.write(`${timeOfDay(new Date())}  ${text}\n`);
  }

  /** A line that begins a new part of the story. */
  chapter(title: string): void {
    this.#out.write(`\n${title}\n`);
  }

  /** Lines that stand for themselves. */
  print(text: string): void {
    this.#out.write(`${text}\n`);
  }
}

/** Columns under their headings: the first to the left, the others, which are numbers, to the right. */
export function table(headings: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const lines = [headings, ...rows].map((cells) => cells.map(String));
  const widths = headings.map((_, column) => Math.max(...lines.map((cells) => (cells[column] ?? '').length)));
  const aligned = lines.map((cells) =>
    cells.map((cell, column) => {
      const width = widths[column] ?? 0;
      return column === 0 ? cell.padEnd(width) : cell.padStart(width);
    }),
  );
  return aligned.map((cells) => `  ${cells.join('  ')}`).join('\n');
}

/** `8412` → `8.4 s`. */
export function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}

function timeOfDay(date: Date): string {
  const two = (value: number) => String(value).padStart(2, '0');
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(':');
  return `${time}.${String(date.getMilliseconds()).padStart(3, '0')}`;
}
