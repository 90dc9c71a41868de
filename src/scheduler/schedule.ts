import { Cron } from 'croner';
import { durationMs } from '../domain/duration.ts';
import { TaskqError } from '../domain/errors.ts';
import { SCHEDULE_EVERY_MS_MAX, SCHEDULE_EVERY_MS_MIN } from '../domain/limits.ts';
import { type Refuse, readCronText } from './cron-text.ts';
import { type Ticks, ticksOncePerLocalTime, ticksWheneverShown, type WallTimes } from './local-ticks.ts';
import { timeZoneOf } from './time-zone.ts';

/** When a cron entry fires: a set of instants, the same on every replica, whatever its clock, zone or start. */
export interface Schedule {
  /** As text, with its zone: `'30 2 * * * America/New_York'`, `'@every 30s'`. Equal schedules have equal text; a change of it is a change of schedule. */
  readonly text: string;
  /** The first tick after `afterMs` (exclusive), milliseconds since the epoch. Undefined when there is none any more. */
  next(afterMs: number): number | undefined;
  /** The last tick at or before `atMs` (inclusive). Undefined when there is none. */
  latest(atMs: number): number | undefined;
}

const SECOND_MS = 1_000;

/** Cron text has ticks in this time only: croner's calendar ends in the year 3000, and zones are guesswork long before 1900. */
const CALENDAR_START_MS = Date.UTC(1900, 0, 1);
const CALENDAR_END_MS = Date.UTC(2999, 0, 1);

/**
 * Reads when a cron entry fires: `'@every 30s'`, or cron text in the calendar of `timeZone` (an IANA name; UTC when
 * undefined).
 * @param of for messages, such as `cron entry 'purge'`
 * @throws TaskqError `DEFINITION_INVALID` naming `of`, what is wrong, and the way out
 */
export function parseSchedule(schedule: string, timeZone: string | undefined, of: string): Schedule {
  const refuse: Refuse = (reason) => {
    throw new TaskqError('DEFINITION_INVALID', `${of}: schedule ${describe(schedule)}: ${reason}`);
  };
  if (typeof schedule !== 'string') return refuse("expected text such as '@every 30s' or '30 2 * * *'");
  const every = /^\s*@every\b\s*(.*?)\s*$/i.exec(schedule);
  if (every === null) return cronSchedule(schedule, timeZone ?? 'UTC', refuse);
  if (timeZone !== undefined) {
    refuse(`@every counts real time and has no time zone: leave '${timeZone}' out, or write cron text`);
  }
  return everySchedule(every[1] as string, refuse);
}

/** Counted from the epoch and not from a start, so that replicas and restarts agree. */
function everySchedule(duration: string, refuse: Refuse): Schedule {
  const intervalMs = intervalOf(duration, refuse);
  const latest = (atMs: number) => Math.floor(atMs / intervalMs) * intervalMs;
  return {
    text: `@every ${inLargestUnit(intervalMs)}`,
    next: (afterMs) => latest(afterMs) + intervalMs,
    latest,
  };
}

function intervalOf(duration: string, refuse: Refuse): number {
  const bounds = { minMs: SCHEDULE_EVERY_MS_MIN, maxMs: SCHEDULE_EVERY_MS_MAX };
  try {
    // '1.1m' is 66000.00000000001 ms.
    const intervalMs = Math.round(durationMs(duration, '@every', bounds));
    if (intervalMs % SECOND_MS === 0) return intervalMs;
  } catch (error) {
    if (!(error instanceof TaskqError)) throw error;
  }
  return refuse(
    `write @every with whole seconds from ${inLargestUnit(bounds.minMs)} to ${inLargestUnit(bounds.maxMs)}, such as ` +
      `'@every 30s' or '@every 1.5h'`,
  );
}

/** `5400000` → `90m`: exact, and a duration that can be read back. */
function inLargestUnit(ms: number): string {
  const [unit, size] = (
    [
      ['d', 86_400_000],
      ['h', 3_600_000],
      ['m', 60_000],
    ] as const
  ).find(([, candidate]) => ms % candidate === 0) ?? ['s', SECOND_MS];
  return `${ms / size}${unit}`;
}

function cronSchedule(schedule: string, timeZone: string, refuse: Refuse): Schedule {
  if (typeof timeZone !== 'string') return refuse('the time zone must be text such as Europe/Berlin');
  const { text, listsHours } = readCronText(schedule, refuse);
  const zone = timeZoneOf(timeZone, refuse);
  const walls = wallTimesOf(text, refuse);
  const ticks = listsHours ? ticksOncePerLocalTime(walls, zone) : ticksWheneverShown(walls, zone);
  return { text: `${text} ${zone.name}`, ...withinCalendar(ticks) };
}

/** croner answers for a calendar without daylight saving: its own rule takes a list of hours for an interval. */
function wallTimesOf(text: string, refuse: Refuse): WallTimes {
  let cron: Cron;
  try {
    cron = new Cron(text, { mode: '5-or-6-parts', utcOffset: 0 });
  } catch (error) {
    return refuse(error instanceof Error ? error.message : String(error));
  }
  const walls: WallTimes = {
    // Both of croner's searches leave out the second they begin at.
    first: (wallMs) => cron.nextRun(new Date(wallMs - SECOND_MS))?.getTime(),
    last: (wallMs) => cron.previousRuns(1, new Date(wallMs + SECOND_MS))[0]?.getTime(),
  };
  if (walls.first(0) === undefined) refuse('there is no such day in any year, so it would never fire');
  return walls;
}

function withinCalendar(ticks: Ticks): Ticks {
  const within = (tickMs: number | undefined) =>
    tickMs !== undefined && tickMs >= CALENDAR_START_MS && tickMs < CALENDAR_END_MS ? tickMs : undefined;
  return {
    next: (afterMs) =>
      afterMs < CALENDAR_END_MS ? within(ticks.next(Math.max(afterMs, CALENDAR_START_MS - 1))) : undefined,
    latest: (atMs) =>
      atMs >= CALENDAR_START_MS ? within(ticks.latest(Math.min(atMs, CALENDAR_END_MS - 1))) : undefined,
  };
}

function describe(schedule: unknown): string {
  return typeof schedule === 'string' ? `'${schedule}'` : String(schedule);
}
