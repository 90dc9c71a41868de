import type { Refuse } from './cron-text.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/**
 * No two offsets of a zone differ by more: the date line is worth 24 hours. A local time lies within this of the
 * same figures in UTC, and a repeated local time comes again within it.
 */
export const OFFSET_SHIFT_MS_MAX = 26 * HOUR_MS;

/** The offset is probed this often: the closest two changes since 1970 lie 6.96 days apart (Gaza, north-east Brazil). */
const PROBE_MS = 2 * DAY_MS;
/** Changes are looked for in pieces of this length, about a year, and kept. */
const PIECE_MS = 200 * PROBE_MS;
const SECOND_MS = 1_000;

/** A stretch of time in which the zone's offset from UTC is one. Neighbours may have the same offset. */
export interface Span {
  /** Inclusive. */
  readonly startMs: number;
  /** Exclusive. */
  readonly endMs: number;
  /** Local time minus UTC. */
  readonly offsetMs: number;
}

/** What the clocks on the wall show: instants to local times. A local time is held as if it were UTC. */
export interface TimeZone {
  readonly name: string;
  spanAt(ms: number): Span;
}

/** Entries of one zone share what was found out about it. */
const zones = new Map<string, TimeZone>();

/** The zone of that IANA name; calls `refuse` for anything else. */
export function timeZoneOf(given: string, refuse: Refuse): TimeZone {
  const name = canonicalName(given, refuse);
  const known = zones.get(name);
  if (known !== undefined) return known;
  const offsetAt = offsetReader(name);
  const pieces = new Map<number, readonly Span[]>();
  const zone: TimeZone = {
    name,
    spanAt(ms) {
      const index = Math.floor(ms / PIECE_MS);
      let spans = pieces.get(index);
      if (spans === undefined) {
        spans = spansBetween(index * PIECE_MS, (index + 1) * PIECE_MS, offsetAt);
        pieces.set(index, spans);
      }
      return spans.find((span) => ms < span.endMs) as Span;
    },
  };
  zones.set(name, zone);
  return zone;
}

function canonicalName(given: string, refuse: Refuse): string {
  if (/^[+-]?\d/.test(given)) {
    refuse(
      `the time zone '${given}' is a fixed offset: write the name of a place, such as Europe/Berlin, whose daylight ` +
        `saving is then kept, or Etc/GMT-2 for two hours ahead of UTC the whole year`,
    );
  }
  // Intl takes abbreviations, and reads BST as Bangladesh and EST as Panama.
  if (!/^([a-z_]+(\/[a-z0-9_+-]+)+|utc|gmt)$/i.test(given)) {
    refuse(`the time zone '${given}' is not an IANA name such as Europe/Berlin, nor UTC`);
  }
  let resolved: string;
  try {
    resolved = new Intl.DateTimeFormat('en-US', { timeZone: given }).resolvedOptions().timeZone;
  } catch {
    return refuse(`there is no time zone '${given}': write an IANA name such as Europe/Berlin, or UTC`);
  }
  // An alias stays as it was written: to which name it resolves differs between versions of Node.js.
  return resolved.toLowerCase() === given.toLowerCase() ? resolved : given;
}

function offsetReader(timeZone: string): (ms: number) => number {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  });
  return (ms) => {
    const [month = 0, day = 0, year = 0, hour = 0, minute = 0, second = 0] = (
      format.format(ms).match(/\d+/g) ?? []
    ).map(Number);
    return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(ms / SECOND_MS) * SECOND_MS;
  };
}

function spansBetween(startMs: number, endMs: number, offsetAt: (ms: number) => number): Span[] {
  const spans: Span[] = [];
  let spanStartMs = startMs;
  let offsetMs = offsetAt(startMs);
  for (let probeMs = startMs + PROBE_MS; probeMs <= endMs; probeMs += PROBE_MS) {
    const probed = offsetAt(probeMs);
    if (probed === offsetMs) continue;
    const changeMs = changeBetween(probeMs - PROBE_MS, probeMs, offsetMs, offsetAt);
    // A change on the very end belongs to the piece that begins there.
    if (changeMs === endMs) break;
    spans.push({ startMs: spanStartMs, endMs: changeMs, offsetMs });
    spanStartMs = changeMs;
    offsetMs = probed;
  }
  spans.push({ startMs: spanStartMs, endMs, offsetMs });
  return spans;
}

/** The first whole second whose offset is no longer `offsetMs`. */
function changeBetween(
  beforeMs: number,
  afterMs: number,
  offsetMs: number,
  offsetAt: (ms: number) => number,
): number {
  let before = beforeMs / SECOND_MS;
  let after = afterMs / SECOND_MS;
  while (after - before > 1) {
    const middle = Math.floor((before + after) / 2);
    if (offsetAt(middle * SECOND_MS) === offsetMs) before = middle;
    else after = middle;
  }
  return after * SECOND_MS;
}
