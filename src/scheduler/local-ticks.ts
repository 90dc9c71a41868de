import { OFFSET_SHIFT_MS_MAX, type Span, type TimeZone } from './time-zone.ts';

// Cron text names local times; a tick is an instant. Between the two stands daylight saving: a local time may not
// exist, or come twice. Local times are held as if they were UTC (`wallMs`), in whole seconds.

/** The local times that cron text names, in an unbroken calendar. */
export interface WallTimes {
  /** The first one at or after `wallMs`. */
  first(wallMs: number): number | undefined;
  /** The last one at or before `wallMs`. */
  last(wallMs: number): number | undefined;
}

/** Instants, in milliseconds since the epoch, each a whole second. */
export interface Ticks {
  /** The first one after `afterMs`. */
  next(afterMs: number): number | undefined;
  /** The last one at or before `atMs`. */
  latest(atMs: number): number | undefined;
}

const SECOND_MS = 1_000;

/**
 * Each local time once: at the first moment at which a clock on the wall shows it or a later one. So a time that is
 * repeated has its first pass, and all times inside a gap have one moment together, the end of the gap.
 */
export function ticksOncePerLocalTime(walls: WallTimes, zone: TimeZone): Ticks {
  return {
    next(afterMs) {
      const wallMs = walls.first(highestWallAt(afterMs, zone) + SECOND_MS);
      return wallMs === undefined ? undefined : firstInstantAtOrPast(wallMs, zone);
    },
    latest(atMs) {
      const wallMs = walls.last(highestWallAt(atMs, zone));
      return wallMs === undefined ? undefined : firstInstantAtOrPast(wallMs, zone);
    },
  };
}

/** Every instant at which a clock on the wall shows one of the local times. */
export function ticksWheneverShown(walls: WallTimes, zone: TimeZone): Ticks {
  return {
    next(afterMs) {
      let cursorMs = wholeSecond(afterMs) + SECOND_MS;
      for (;;) {
        const span = zone.spanAt(cursorMs);
        const wallMs = walls.first(cursorMs + span.offsetMs);
        if (wallMs === undefined) return undefined;
        const tickMs = wallMs - span.offsetMs;
        if (tickMs < span.endMs) return tickMs;
        // Far from the last change no passed local time can come again, so the time until the found one is empty:
        // without this leap an entry of every 28 years would look at each change of the clocks on the way.
        const canLeap = span.endMs - cursorMs >= OFFSET_SHIFT_MS_MAX;
        cursorMs = canLeap ? Math.max(span.endMs, tickMs - OFFSET_SHIFT_MS_MAX) : span.endMs;
      }
    },
    latest(atMs) {
      let cursorMs = wholeSecond(atMs);
      for (;;) {
        const span = zone.spanAt(cursorMs);
        const wallMs = walls.last(cursorMs + span.offsetMs);
        if (wallMs === undefined) return undefined;
        const tickMs = wallMs - span.offsetMs;
        if (tickMs >= span.startMs) return tickMs;
        const canLeap = cursorMs - span.startMs >= OFFSET_SHIFT_MS_MAX;
        const endMs = span.startMs - SECOND_MS;
        cursorMs = canLeap ? Math.min(endMs, tickMs + OFFSET_SHIFT_MS_MAX) : endMs;
      }
    },
  };
}

function wholeSecond(ms: number): number {
  return Math.floor(ms / SECOND_MS) * SECOND_MS;
}

/** The spans that touch the time from `fromMs` to `toMs`, in order. */
function spansOf(zone: TimeZone, fromMs: number, toMs: number): Span[] {
  const spans: Span[] = [];
  for (let ms = fromMs; ms <= toMs; ) {
    const span = zone.spanAt(ms);
    spans.push(span);
    ms = span.endMs;
  }
  return spans;
}

/** The highest local time, in whole seconds, that a clock on the wall has shown until `ms`: it never falls. */
function highestWallAt(ms: number, zone: TimeZone): number {
  const nowMs = wholeSecond(ms);
  const shown = spansOf(zone, nowMs - OFFSET_SHIFT_MS_MAX, nowMs).map(
    (span) => Math.min(nowMs, span.endMs - SECOND_MS) + span.offsetMs,
  );
  return Math.max(...shown);
}

function firstInstantAtOrPast(wallMs: number, zone: TimeZone): number {
  const spans = spansOf(zone, wallMs - OFFSET_SHIFT_MS_MAX, wallMs + OFFSET_SHIFT_MS_MAX);
  const span = spans.find(({ endMs, offsetMs }) => endMs + offsetMs > wallMs) as Span;
  return Math.max(span.startMs, wallMs - span.offsetMs);
}
