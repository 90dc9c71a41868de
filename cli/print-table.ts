import Table from 'cli-table3';
import { oneLine } from './failure.ts';
import { print } from './output.ts';

/** Between two columns. */
const GAP = '  ';
/** A column that is cut shows at least this many characters. */
const CUT_WIDTH_MIN = 20;
/** What is written to a file or a pipe is cut to nobody's window. */
const UNLIMITED = Number.POSITIVE_INFINITY;

const NO_BORDERS = Object.fromEntries(
  ['top', 'bottom', 'left', 'right', 'mid'].flatMap((side) =>
    ['', '-mid', '-left', '-right'].map((part) => [side + part, '']),
  ),
);

export interface TableOptions {
  /** Columns of numbers, by heading. */
  readonly alignRight?: readonly string[];
  /** Characters of a line. Default: the terminal's, or no limit without one. */
  readonly width?: number;
}

/** Prints rows in plain columns: no colours, no borders, and the last column cut to what the terminal has left. */
export function printTable(
  headings: readonly string[],
  rows: readonly (readonly string[])[],
  options: TableOptions = {},
): void {
  for (const line of tableLines(headings, rows, options)) print(line);
}

export function tableLines(
  headings: readonly string[],
  rows: readonly (readonly string[])[],
  options: TableOptions = {},
): string[] {
  const { alignRight = [], width = process.stdout.columns ?? UNLIMITED } = options;
  const shown = rows.map((row) => row.map(oneLine));
  const last = headings.length - 1;
  const taken = headings
    .slice(0, last)
    .reduce((sum, heading, at) => sum + widest(heading, shown, at) + GAP.length, 0);
  const room = Math.max(width - taken, CUT_WIDTH_MIN);
  const table = new Table({
    head: [...headings],
    chars: { ...NO_BORDERS, middle: GAP },
    style: { head: [], border: [], 'padding-left': 0, 'padding-right': 0, compact: true },
    colAligns: headings.map((heading) => (alignRight.includes(heading) ? 'right' : 'left')),
  });
  for (const row of shown) table.push(row.map((cell, at) => (at === last ? cut(cell, room) : cell)));
  return table
    .toString()
    .split('\n')
    .map((line) => line.trimEnd());
}

function widest(heading: string, rows: readonly (readonly string[])[], at: number): number {
  return rows.reduce((most, row) => Math.max(most, row[at]?.length ?? 0), heading.length);
}

function cut(cell: string, width: number): string {
  return cell.length <= width ? cell : `${cell.slice(0, width - 1)}…`;
}
