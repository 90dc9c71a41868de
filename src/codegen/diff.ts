/** Lines kept around a change. */
const CONTEXT_LINES = 3;
/** Above this many pairs of lines the changed middle is shown as replaced, instead of compared line by line. */
const COMPARED_PAIRS_MAX = 4_000_000;

type Line = { readonly mark: ' ' | '-' | '+'; readonly text: string };

/** What would change in `file`, in unified form; empty when nothing would. */
export function unifiedDiff(file: string, before: string, after: string): string {
  if (before === after) return '';
  const lines = compare(toLines(before), toLines(after));
  const hunks = hunksOf(lines).map(({ from, to }) => renderHunk(lines, from, to));
  return [`--- ${file} (on disk)`, `+++ ${file} (generated)`, ...hunks, ''].join('\n');
}

function toLines(text: string): string[] {
  if (text === '') return [];
  const lines = text.split('\n');
  if (lines.at(-1) === '') lines.pop();
  else lines.push('\\ no line end at the end of the file');
  return lines;
}

function compare(before: readonly string[], after: readonly string[]): Line[] {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head += 1;
  let tail = 0;
  const shorter = Math.min(before.length, after.length) - head;
  while (tail < shorter && before.at(-1 - tail) === after.at(-1 - tail)) tail += 1;
  const same = (text: string): Line => ({ mark: ' ', text });
  return [
    ...before.slice(0, head).map(same),
    ...compareMiddle(before.slice(head, before.length - tail), after.slice(head, after.length - tail)),
    ...before.slice(before.length - tail).map(same),
  ];
}

/** By the longest common subsequence. */
function compareMiddle(before: readonly string[], after: readonly string[]): Line[] {
  const width = after.length + 1;
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  if (before.length * after.length <= COMPARED_PAIRS_MAX) {
    const common = new Uint32Array((before.length + 1) * width);
    const at = (row: number, column: number) => common[row * width + column] as number;
    for (let row = before.length - 1; row >= 0; row -= 1) {
      for (let column = after.length - 1; column >= 0; column -= 1) {
        const equal = before[row] === after[column];
        common[row * width + column] = equal
          ? at(row + 1, column + 1) + 1
          : Math.max(at(row + 1, column), at(row, column + 1));
      }
    }
    while (i < before.length && j < after.length) {
      if (before[i] === after[j]) {
        lines.push({ mark: ' ', text: before[i] as string });
        i += 1;
        j += 1;
      } else if (at(i + 1, j) >= at(i, j + 1)) lines.push({ mark: '-', text: before[i++] as string });
      else lines.push({ mark: '+', text: after[j++] as string });
    }
  }
  lines.push(...before.slice(i).map((text): Line => ({ mark: '-', text })));
  lines.push(...after.slice(j).map((text): Line => ({ mark: '+', text })));
  return lines;
}

function hunksOf(lines: readonly Line[]): { from: number; to: number }[] {
  const hunks: { from: number; to: number }[] = [];
  for (const [at, { mark }] of lines.entries()) {
    if (mark === ' ') continue;
    const from = Math.max(0, at - CONTEXT_LINES);
    const to = Math.min(lines.length, at + CONTEXT_LINES + 1);
    const last = hunks.at(-1);
    if (last !== undefined && from <= last.to) last.to = to;
    else hunks.push({ from, to });
  }
  return hunks;
}

function renderHunk(lines: readonly Line[], from: number, to: number): string {
  const count = (part: readonly Line[], hidden: '-' | '+') =>
    part.filter(({ mark }) => mark !== hidden).length;
  const [above, shown] = [lines.slice(0, from), lines.slice(from, to)];
  const range = (hidden: '-' | '+') => `${count(above, hidden) + 1},${count(shown, hidden)}`;
  return [`@@ -${range('+')} +${range('-')} @@`, ...shown.map(({ mark, text }) => mark + text)].join('\n');
}
