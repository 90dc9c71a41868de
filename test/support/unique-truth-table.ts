import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { OnConflict, UniqueWhile } from '../../src/domain/uniqueness.ts';

// What becomes of a unique enqueue, by the state of the task that has the key already. The tests of
// test/guarantees/a-unique-enqueue-keeps-to-its-truth-table.test.ts and the table of docs/uniqueness.md are
// both made from this.

export type Answer = 'enqueued' | 'existing' | 'replaced' | 'TASK_EXISTS';

/** State of the task with the key → how the docs say it. */
export const STATES = {
  none: 'none: the key is new',
  waitingDue: 'waits, due',
  waitingLater: 'waits for its time',
  backingOff: 'backs off after a failure',
  abandoned: 'waits again: its worker died, and the lease has lapsed',
  running: 'runs',
  runningFinally: 'runs on its final attempt',
  dead: 'is a dead letter',
  dropped: 'was a dead letter, and was dropped or pruned',
  finished: 'is done',
} as const;

export type State = keyof typeof STATES;

export interface Mode {
  readonly while: UniqueWhile;
  /** Whether the window of the first enqueue still stands when the second comes. */
  readonly windowIsOver?: boolean;
  readonly title: string;
}

export const MODES = {
  live: { while: 'live', title: "`'live'`" },
  waiting: { while: 'waiting', title: "`'waiting'`" },
  window: { while: { window: '1h' }, title: '`{ window }`, in it' },
  windowOver: { while: { window: '1h' }, windowIsOver: true, title: '`{ window }`, after it' },
} as const satisfies Readonly<Record<string, Mode>>;

export type ModeName = keyof typeof MODES;

/** The answer to each `onConflict`. */
export type Cell = Readonly<Record<OnConflict, Answer>>;

/** Nothing is in the way. */
const free: Cell = { skip: 'enqueued', replace: 'enqueued', error: 'enqueued' };
/** A task is in the way, and nobody holds it. */
const taken: Cell = { skip: 'existing', replace: 'replaced', error: 'TASK_EXISTS' };
/** Something is in the way that cannot be replaced: a task that a worker holds, or the window of one that is done. */
const fixed: Cell = { skip: 'existing', replace: 'existing', error: 'TASK_EXISTS' };

export const TRUTH_TABLE: Readonly<Record<State, Readonly<Record<ModeName, Cell>>>> = {
  none: { live: free, waiting: free, window: free, windowOver: free },
  waitingDue: { live: taken, waiting: taken, window: taken, windowOver: free },
  waitingLater: { live: taken, waiting: taken, window: taken, windowOver: free },
  backingOff: { live: taken, waiting: taken, window: taken, windowOver: free },
  abandoned: { live: taken, waiting: taken, window: taken, windowOver: free },
  running: { live: fixed, waiting: free, window: fixed, windowOver: free },
  runningFinally: { live: fixed, waiting: free, window: fixed, windowOver: free },
  dead: { live: free, waiting: free, window: free, windowOver: free },
  dropped: { live: free, waiting: free, window: free, windowOver: free },
  finished: { live: free, waiting: free, window: fixed, windowOver: free },
};

export const answersOf = (cell: Cell): string => `${cell.skip} / ${cell.replace} / ${cell.error}`;

const DOCUMENT = fileURLToPath(new URL('../../docs/uniqueness.md', import.meta.url));
const BLOCK = /<!-- truth-table:begin -->\n[\s\S]*?<!-- truth-table:end -->/;

/** The table of docs/uniqueness.md, with its markers. */
export function renderTruthTable(): string {
  const modes = Object.keys(MODES) as ModeName[];
  const rows = (Object.keys(STATES) as State[]).map((state) => {
    const cells = modes.map((mode) => answersOf(TRUTH_TABLE[state][mode]));
    return `| ${STATES[state]} | ${cells.join(' | ')} |`;
  });
  return [
    '<!-- truth-table:begin -->',
    `| the task with the key | ${modes.map((mode) => MODES[mode].title).join(' | ')} |`,
    `| --- | ${modes.map(() => '---').join(' | ')} |`,
    ...rows,
    '<!-- truth-table:end -->',
  ].join('\n');
}

export function truthTableInDocument(): string | undefined {
  return BLOCK.exec(readFileSync(DOCUMENT, 'utf8'))?.[0];
}

/** Writes the table into docs/uniqueness.md. */
export function writeTruthTable(): void {
  const document = readFileSync(DOCUMENT, 'utf8');
  writeFileSync(
    DOCUMENT,
    document.replace(BLOCK, () => renderTruthTable()),
  );
}
