import { say } from './output.ts';

/** Without a terminal a line stays: one each this long is enough. */
const LINE_INTERVAL_MS = 1_000;

export interface ProgressLine {
  show(text: string): void;
  /** Before anything else is said. */
  end(): void;
}

/** How far a long command is, on stderr: one line that is written over on a terminal, a line a second elsewhere. */
export function progressLine(): ProgressLine {
  let shown = 0;
  let saidAt = performance.now();
  if (!process.stderr.isTTY) {
    return {
      show(text) {
        const now = performance.now();
        if (now - saidAt < LINE_INTERVAL_MS) return;
        saidAt = now;
        say(text);
      },
      end: () => undefined,
    };
  }
  return {
    show(text) {
      // Spaces over what the line before had more: nothing here needs an escape sequence.
      process.stderr.write(`\r${text.padEnd(shown)}`);
      shown = text.length;
    },
    end() {
      if (shown > 0) process.stderr.write('\n');
      shown = 0;
    },
  };
}
