import { pino } from 'pino';
import type { LOG_LEVELS } from '../src/config.ts';
import type { Logger } from '../src/domain/logger.ts';
import { oneLine } from './failure.ts';

/** The worker's logger: JSON lines on stdout, or on a terminal one readable line each. */
export function workerLog(level: (typeof LOG_LEVELS)[number]): Logger {
  const isTerminal = process.stdout.isTTY === true;
  const destination = {
    // Not pino's own destination: process.stdout is written at once, so that nothing is lost at an exit.
    write: (line: string) => process.stdout.write(isTerminal ? readable(line) : line),
  };
  const base = isTerminal ? {} : { pid: process.pid };
  return pino(
    {
      level,
      base,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination,
  );
}

/** `{"level":"info","time":"…","event":"started","slots":4,"msg":"replica started"}` for people. */
export function readable(line: string): string {
  const { level, time, msg, event: _event, ...fields } = JSON.parse(line) as Record<string, unknown>;
  const clock = String(time).slice(11, 23);
  const shown = Object.entries(fields).map(([name, value]) => `${name}=${readableValue(value)}`);
  return `${oneLine([clock, String(level).padEnd(5), String(msg), ...shown].join(' '))}\n`;
}

function readableValue(value: unknown): string {
  if (typeof value === 'number') return String(Math.round(value * 10) / 10);
  return typeof value === 'string' ? value : JSON.stringify(value);
}
