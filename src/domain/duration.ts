import { TaskqError } from './errors.ts';

const UNIT_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;
type Unit = keyof typeof UNIT_MS;

/** A length of time: milliseconds as a number, or text such as `'90s'`, `'1.5h'`, `'7d'`. */
export type Duration = number | `${number}${Unit}`;

/** A century: anything longer is a mistake of unit, and PostgreSQL's timestamps end not far beyond. */
const DURATION_MS_MAX = 100 * 365 * UNIT_MS.d;

const PATTERN = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/;

/**
 * Milliseconds of `duration`.
 * @param name what the duration is, for the message: `ceiling of explore_purge`
 * @throws TaskqError `DURATION_INVALID` for anything that is not a finite length of time within `bounds`
 */
export function durationMs(
  duration: unknown,
  name: string,
  bounds: { minMs?: number; maxMs?: number } = {},
): number {
  const { minMs = 0, maxMs = DURATION_MS_MAX } = bounds;
  const ms = toMs(duration);
  if (ms === undefined) {
    throw new TaskqError(
      'DURATION_INVALID',
      `${name}: expected milliseconds or text such as '90s', '5m', '1h', received ${describe(duration)}`,
    );
  }
  if (ms < minMs || ms > maxMs) {
    throw new TaskqError(
      'DURATION_INVALID',
      `${name}: must be between ${formatDuration(minMs)} and ${formatDuration(maxMs)}, received ${describe(duration)}`,
    );
  }
  return ms;
}

/** `90000` → `1m 30s`; for people. */
export function formatDuration(ms: number): string {
  if (!Number.isFinite(ms)) return String(ms);
  if (ms < 1_000) return `${Math.round(ms)}ms`;
  let rest = Math.round(ms / 1_000);
  const parts: string[] = [];
  for (const [unit, seconds] of [
    ['d', 86_400],
    ['h', 3_600],
    ['m', 60],
    ['s', 1],
  ] as const) {
    const count = Math.floor(rest / seconds);
    if (count > 0) parts.push(`${count}${unit}`);
    rest -= count * seconds;
  }
  return parts.slice(0, 2).join(' ');
}

function toMs(duration: unknown): number | undefined {
  if (typeof duration === 'number') return Number.isFinite(duration) ? duration : undefined;
  if (typeof duration !== 'string') return undefined;
  const match = PATTERN.exec(duration);
  if (match === null) return undefined;
  return Number(match[1]) * UNIT_MS[match[2] as Unit];
}

function describe(value: unknown): string {
  return typeof value === 'string' ? `'${value}'` : String(value);
}
