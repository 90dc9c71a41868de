import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseSchedule } from '../../src/scheduler/schedule.ts';

// The calendar below is written without croner and without the code under test: it asks Intl for the local time of
// every minute around a change of the clocks, and applies the rule of docs/cron.md to each, one by one.

const MINUTE_MS = 60_000;
const DAY_MINUTES = 1_440;
/** The window reaches this far to both sides of its change, and schedules are compared in its inner half. */
const WINDOW_DAYS = 4;
const SEED = 51;
const RUNS = 1_500;
/** Ticks compared in one walk; an entry of every second has 345,600 in a window. */
const TICKS_MAX = 60;

const CHANGES = [
  ['America/New_York', '2026-11-01T06:00Z'],
  ['America/New_York', '2027-03-14T07:00Z'],
  ['Europe/Berlin', '2026-10-25T01:00Z'],
  ['Europe/Berlin', '2027-03-28T01:00Z'],
  ['Australia/Lord_Howe', '2026-10-03T15:30Z'],
  ['Australia/Lord_Howe', '2027-04-03T15:00Z'],
  ['America/Sao_Paulo', '2018-11-04T03:00Z'],
  ['America/Sao_Paulo', '2019-02-17T02:00Z'],
  ['Pacific/Apia', '2011-12-30T10:00Z'],
  ['Pacific/Kwajalein', '1993-08-21T12:00Z'],
  ['Pacific/Chatham', '2026-09-26T14:00Z'],
  ['Pacific/Chatham', '2027-04-03T14:00Z'],
  ['Asia/Kathmandu', '1985-12-31T18:30Z'],
  ['America/Nuuk', '2025-03-30T01:00Z'],
  ['America/Nuuk', '2024-10-27T01:00Z'],
  ['Antarctica/Troll', '2027-03-28T01:00Z'],
  ['Antarctica/Troll', '2026-10-25T01:00Z'],
  ['Antarctica/Casey', '2020-10-03T16:01Z'],
  ['Antarctica/Vostok', '1994-01-31T17:00Z'],
  ['America/Boa_Vista', '2000-10-15T03:00Z'],
  ['UTC', '2028-02-29T00:00Z'],
] as const;

interface Window {
  timeZone: string;
  startMs: number;
  /** The local time of each minute, in minutes as if it were UTC. */
  walls: readonly number[];
  /** Per local time, the minute that showed it first. */
  firstShown: ReadonlyMap<number, number>;
  /** Minutes before which the clocks were put forward. */
  gapEnds: readonly number[];
}

function windowAround(timeZone: string, change: string): Window {
  const startMs = Date.parse(change) - WINDOW_DAYS * DAY_MINUTES * MINUTE_MS;
  const format = new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'short' });
  const walls = Array.from(
    { length: 2 * WINDOW_DAYS * DAY_MINUTES },
    (_, minute) =>
      Date.parse(`${format.format(startMs + minute * MINUTE_MS).replace(' ', 'T')}Z`) / MINUTE_MS,
  );
  const firstShown = new Map<number, number>();
  const gapEnds: number[] = [];
  for (const [minute, wall] of walls.entries()) {
    if (!firstShown.has(wall)) firstShown.set(wall, minute);
    if (minute > 0 && wall - (walls[minute - 1] as number) > 1) gapEnds.push(minute);
  }
  return { timeZone, startMs, walls, firstShown, gapEnds };
}

const windows = CHANGES.map(([timeZone, change]) => windowAround(timeZone, change));

/** What a schedule means, beside its text. */
interface Meaning {
  text: string;
  seconds: readonly number[];
  minutes: ReadonlySet<number>;
  hours: ReadonlySet<number>;
  listsHours: boolean;
  isDay(wall: Date): boolean;
}

/** Whether the entry names a local minute; a day is asked about once. */
function minuteNames({ minutes, hours, isDay }: Meaning): (wall: number) => boolean {
  const days = new Map<number, boolean>();
  return (wall) => {
    const day = Math.floor(wall / DAY_MINUTES);
    const minute = wall - day * DAY_MINUTES;
    if (!minutes.has(minute % 60) || !hours.has(Math.floor(minute / 60))) return false;
    const known = days.get(day) ?? isDay(new Date(day * DAY_MINUTES * MINUTE_MS));
    days.set(day, known);
    return known;
  };
}

/** The ticks by the rule, up to `fromMs` and after it: the nearest of those that are a day from the window's ends. */
function expectedTicks(
  window: Window,
  meaning: Meaning,
  fromMs: number,
): { earlier: number[]; later: number[] } {
  const { walls, firstShown, gapEnds, startMs } = window;
  const isNamed = minuteNames(meaning);
  const secondsOf = new Map<number, ReadonlySet<number>>();
  const add = (minute: number, seconds: readonly number[]) =>
    secondsOf.set(minute, new Set([...(secondsOf.get(minute) ?? []), ...seconds]));
  if (!meaning.listsHours) {
    for (const [minute, wall] of walls.entries()) if (isNamed(wall)) add(minute, meaning.seconds);
  } else {
    const highest = walls.at(-1) as number;
    for (let wall = walls[0] as number; wall <= highest; wall += 1) {
      if (!isNamed(wall)) continue;
      const shown = firstShown.get(wall);
      if (shown !== undefined) add(shown, meaning.seconds);
      else add(gapEnds.find((minute) => (walls[minute] as number) > wall) as number, [0]);
    }
  }
  const known = [...secondsOf.keys()].filter(
    (minute) => minute >= DAY_MINUTES && minute < walls.length - DAY_MINUTES,
  );
  const ticksOf = (minute: number) =>
    [...(secondsOf.get(minute) as ReadonlySet<number>)].map(
      (second) => startMs + minute * MINUTE_MS + second * 1_000,
    );
  const fromMinute = Math.floor((fromMs - startMs) / MINUTE_MS);
  const ascending = (a: number, b: number) => a - b;
  known.sort(ascending);
  // Each minute holds a tick at least, so this many hold as many ticks as are compared.
  const until = known.filter((minute) => minute <= fromMinute).slice(-TICKS_MAX - 1);
  const after = known.filter((minute) => minute >= fromMinute).slice(0, TICKS_MAX + 1);
  return {
    earlier: until
      .flatMap(ticksOf)
      .filter((tick) => tick <= fromMs)
      .sort(ascending)
      .slice(-TICKS_MAX),
    later: after
      .flatMap(ticksOf)
      .filter((tick) => tick > fromMs)
      .sort(ascending)
      .slice(0, TICKS_MAX),
  };
}

const WEEKDAYS = ['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT'];
const DAY_MS = DAY_MINUTES * MINUTE_MS;

function monthLength(date: Date): number {
  return new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 0)).getUTCDate();
}

/** The weekday of the month nearest to `day`, as a date; undefined when the month has no such day. */
function nearestWeekday(date: Date, day: number): number | undefined {
  if (day > monthLength(date)) return undefined;
  const candidates = [0, -1, 1, -2, 2].map((shift) => day + shift);
  return candidates.find((candidate) => {
    if (candidate < 1 || candidate > monthLength(date)) return false;
    const weekday = new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), candidate)).getUTCDay();
    return weekday !== 0 && weekday !== 6;
  });
}

interface Part<T> {
  text: string;
  matches: (value: T) => boolean;
}

/** A list of numbers, ranges and stepped ranges. */
function listOf(min: number, max: number): fc.Arbitrary<Part<number>> {
  const element = fc
    .record({
      a: fc.integer({ min, max }),
      b: fc.integer({ min, max }),
      step: fc.integer({ min: 1, max: Math.min(max, 7) }),
      form: fc.constantFrom('number', 'number', 'range', 'stepped'),
    })
    .map(({ a, b, step, form }): Part<number> => {
      const [low, high] = a < b ? [a, b] : [b, a];
      if (form === 'number') return { text: String(a), matches: (value) => value === a };
      const by = form === 'range' ? 1 : step;
      return {
        text: `${low}-${high}${form === 'range' ? '' : `/${step}`}`,
        matches: (value) => value >= low && value <= high && (value - low) % by === 0,
      };
    });
  return fc.array(element, { minLength: 1, maxLength: 3 }).map((elements) => ({
    text: elements.map(({ text }) => text).join(','),
    matches: (value) => elements.some(({ matches }) => matches(value)),
  }));
}

const star: fc.Arbitrary<Part<number>> = fc.constant({ text: '*', matches: () => true });

/** Of a field that counts from 0. */
const steppedStar = (max: number): fc.Arbitrary<Part<number>> =>
  fc
    .integer({ min: 2, max })
    .map((step) => ({ text: `*/${step}`, matches: (value: number) => value % step === 0 }));

/** A day of month below 29, or one of the special ones that every month has. */
const dayOfMonth: fc.Arbitrary<Part<Date>> = fc.oneof(
  listOf(1, 28).map(({ text, matches }) => ({ text, matches: (date: Date) => matches(date.getUTCDate()) })),
  fc.constant({ text: 'L', matches: (date: Date) => date.getUTCDate() === monthLength(date) }),
  fc.constant({
    text: 'LW',
    matches: (date: Date) => date.getUTCDate() === nearestWeekday(date, monthLength(date)),
  }),
  fc.integer({ min: 1, max: 31 }).map((day) => ({
    text: `${day}W,L`,
    matches: (date: Date) =>
      date.getUTCDate() === nearestWeekday(date, day) || date.getUTCDate() === monthLength(date),
  })),
);

const dayOfWeek: fc.Arbitrary<Part<Date>> = fc.oneof(
  listOf(0, 7).map(({ text, matches }) => ({
    text,
    matches: (date: Date) => matches(date.getUTCDay()) || (date.getUTCDay() === 0 && matches(7)),
  })),
  fc
    .record({ day: fc.integer({ min: 0, max: 6 }), nth: fc.integer({ min: 1, max: 4 }) })
    .map(({ day, nth }) => ({
      text: `${WEEKDAYS[day]}#${nth}`,
      matches: (date: Date) => date.getUTCDay() === day && Math.ceil(date.getUTCDate() / 7) === nth,
    })),
  fc.integer({ min: 0, max: 6 }).map((day) => ({
    text: `${WEEKDAYS[day]}L`,
    matches: (date: Date) =>
      date.getUTCDay() === day && new Date(date.getTime() + 7 * DAY_MS).getUTCMonth() !== date.getUTCMonth(),
  })),
);

const anyDay: fc.Arbitrary<Part<Date>> = fc.constant({ text: '*', matches: () => true });
const month = fc.oneof({ weight: 6, arbitrary: star }, { weight: 1, arbitrary: listOf(1, 12) });

const meanings: fc.Arbitrary<Meaning> = fc
  .record({
    second: fc.option(fc.oneof(star, steppedStar(59), listOf(0, 59)), { nil: undefined, freq: 4 }),
    minute: fc.oneof(star, steppedStar(59), listOf(0, 59)),
    hour: fc.oneof(
      star,
      steppedStar(23),
      // Hours near midnight and the small hours are where clocks change.
      { weight: 3, arbitrary: listOf(0, 4) },
      listOf(0, 23),
    ),
    dom: fc.oneof({ weight: 4, arbitrary: anyDay }, dayOfMonth),
    month,
    dow: fc.oneof({ weight: 4, arbitrary: anyDay }, dayOfWeek),
  })
  .map(({ second, minute, hour, dom, month, dow }) => {
    const upTo = (max: number, part: Part<number>) =>
      Array.from({ length: max + 1 }, (_, value) => value).filter(part.matches);
    const isEither = dom.text !== '*' && dow.text !== '*';
    return {
      text: [...(second === undefined ? [] : [second]), minute, hour, dom, month, dow]
        .map(({ text }) => text)
        .join(' '),
      seconds: second === undefined ? [0] : upTo(59, second),
      minutes: new Set(upTo(59, minute)),
      hours: new Set(upTo(23, hour)),
      listsHours: !hour.text.startsWith('*'),
      isDay: (date) =>
        month.matches(date.getUTCMonth() + 1) &&
        (isEither ? dom.matches(date) || dow.matches(date) : dom.matches(date) && dow.matches(date)),
    };
  });

/** Minutes from the change, mostly near it, within the part of the window in which ticks are known. */
const offsets = fc.oneof(
  fc.integer({ min: -240, max: 240 }),
  fc.integer({ min: -DAY_MINUTES, max: 2 * DAY_MINUTES }),
);

const cases = fc.record({
  window: fc.constantFrom(...windows),
  meaning: meanings,
  offset: offsets,
  ms: fc.integer({ min: 0, max: MINUTE_MS - 1 }),
});

function changeMsOf({ startMs }: Window): number {
  return startMs + WINDOW_DAYS * DAY_MINUTES * MINUTE_MS;
}

const describeCase = ({
  window,
  meaning,
  offset,
  ms,
}: {
  window: Window;
  meaning: Meaning;
  offset: number;
  ms: number;
}) =>
  `'${meaning.text}' in ${window.timeZone} from ${new Date(changeMsOf(window) + offset * MINUTE_MS + ms).toISOString()}`;

describe('against a calendar that looks at every minute', () => {
  test('each window but that of UTC holds a change of the clocks at its middle', () => {
    for (const { timeZone, walls } of windows) {
      const middle = WINDOW_DAYS * DAY_MINUTES;
      const step = (walls[middle] as number) - (walls[middle - 1] as number);
      expect(step === 1, timeZone).toBe(timeZone === 'UTC');
    }
  });

  test('next and latest name the ticks of the rule, in every zone and around every change', () => {
    let compared = 0;
    fc.assert(
      fc.property(cases, (example) => {
        const { window, meaning, offset, ms } = example;
        const { next, latest } = parseSchedule(meaning.text, window.timeZone, describeCase(example));
        const fromMs = changeMsOf(window) + offset * MINUTE_MS + ms;
        const { earlier, later } = expectedTicks(window, meaning, fromMs);
        const walked: (number | undefined)[] = [];
        for (let at: number | undefined = fromMs; walked.length < later.length && at !== undefined; ) {
          at = next(at);
          walked.push(at);
        }
        const back: (number | undefined)[] = [];
        for (let at: number | undefined = fromMs; back.length < earlier.length && at !== undefined; at -= 1) {
          at = latest(at);
          if (at === undefined) break;
          back.unshift(at);
        }
        const iso = (ticks: (number | undefined)[]) =>
          ticks.map((tick) => (tick === undefined ? 'none' : new Date(tick).toISOString()));
        expect(iso(walked), describeCase(example)).toEqual(iso(later));
        expect(iso(back), describeCase(example)).toEqual(iso(earlier));
        if (later.length < TICKS_MAX) {
          const end = window.startMs + (window.walls.length - DAY_MINUTES) * MINUTE_MS;
          expect(next(later.at(-1) ?? fromMs) ?? Number.POSITIVE_INFINITY).toBeGreaterThanOrEqual(end);
        }
        for (const tick of later) expect(latest(tick)).toBe(tick);
        compared += later.length + earlier.length;
      }),
      { seed: SEED, numRuns: RUNS },
    );
    // A generator whose schedules never fire in the windows would compare nothing.
    expect(compared).toBeGreaterThan(RUNS * 10);
  });
});

test('next rises, and latest of it is itself, in any zone at any time of this century', () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...Intl.supportedValuesOf('timeZone').filter((name) => name.includes('/'))),
      meanings,
      fc.integer({ min: Date.UTC(1990, 0, 1), max: Date.UTC(2090, 0, 1) }),
      (timeZone, meaning, fromMs) => {
        const { next, latest } = parseSchedule(meaning.text, timeZone, meaning.text);
        let atMs = fromMs;
        for (let count = 0; count < 20; count += 1) {
          const tick = next(atMs) as number;
          expect(tick).toBeGreaterThan(atMs);
          expect(latest(tick)).toBe(tick);
          const before = latest(tick - 1) as number;
          expect(before).toBeLessThanOrEqual(atMs);
          expect(next(before)).toBe(tick);
          atMs = tick;
        }
      },
    ),
    { seed: SEED, numRuns: 500 },
  );
});
