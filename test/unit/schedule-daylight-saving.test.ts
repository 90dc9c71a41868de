import { describe, expect, test } from 'vitest';
import { parseSchedule } from '../../src/scheduler/schedule.ts';

interface Case {
  schedule: string;
  /** Local time with its offset, inclusive. */
  from: string;
  /** Exclusive. */
  to: string;
  /** Each with the offset that tells the first pass of a repeated hour from the second. */
  ticks: readonly string[];
  because: string;
}

const ZONES: Record<string, readonly Case[]> = {
  'America/New_York': [
    {
      schedule: '30 1 * * *',
      from: '2026-10-31T00:00-04:00',
      to: '2026-11-03T00:00-05:00',
      ticks: ['2026-10-31T01:30-04:00', '2026-11-01T01:30-04:00', '2026-11-02T01:30-05:00'],
      because: 'a repeated time fires in its first pass',
    },
    {
      schedule: '30 2 * * *',
      from: '2027-03-13T00:00-05:00',
      to: '2027-03-16T00:00-04:00',
      ticks: ['2027-03-13T02:30-05:00', '2027-03-14T03:00-04:00', '2027-03-15T02:30-04:00'],
      because: 'a skipped time fires at the end of the gap',
    },
    {
      schedule: '0 2,3 * * *',
      from: '2027-03-14T00:00-05:00',
      to: '2027-03-15T00:00-04:00',
      ticks: ['2027-03-14T03:00-04:00'],
      because: 'a skipped time and one at the end of the gap are one run',
    },
    {
      schedule: '*/15 2 * * *',
      from: '2027-03-14T00:00-05:00',
      to: '2027-03-15T00:00-04:00',
      ticks: ['2027-03-14T03:00-04:00'],
      because: 'several skipped times are one run',
    },
    {
      schedule: '*/30 1-2 * * *',
      from: '2026-11-01T00:00-04:00',
      to: '2026-11-02T00:00-05:00',
      ticks: [
        '2026-11-01T01:00-04:00',
        '2026-11-01T01:30-04:00',
        '2026-11-01T02:00-05:00',
        '2026-11-01T02:30-05:00',
      ],
      because: 'a range of hours lists them',
    },
    {
      schedule: '0 */2 * * *',
      from: '2027-03-14T00:00-05:00',
      to: '2027-03-14T07:00-04:00',
      ticks: ['2027-03-14T00:00-05:00', '2027-03-14T04:00-04:00', '2027-03-14T06:00-04:00'],
      because: 'an entry with a star fires when its hours are shown',
    },
    {
      schedule: '30 2 14 3 *',
      from: '2027-01-01T00:00-05:00',
      to: '2028-12-31T00:00-05:00',
      ticks: ['2027-03-14T03:00-04:00', '2028-03-14T02:30-04:00'],
      because: 'the day of a skipped time is the day that was named',
    },
  ],
  'Europe/Berlin': [
    {
      schedule: '30 2 * * *',
      from: '2026-10-24T00:00+02:00',
      to: '2026-10-27T00:00+01:00',
      ticks: ['2026-10-24T02:30+02:00', '2026-10-25T02:30+02:00', '2026-10-26T02:30+01:00'],
      because: 'a repeated time fires in its first pass',
    },
    {
      schedule: '59 59 2 * * *',
      from: '2027-03-27T00:00+01:00',
      to: '2027-03-30T00:00+02:00',
      ticks: ['2027-03-27T02:59:59+01:00', '2027-03-28T03:00+02:00', '2027-03-29T02:59:59+02:00'],
      because: 'a skipped time fires at the end of the gap',
    },
    {
      schedule: '0 */1 * * *',
      from: '2026-10-25T01:00+02:00',
      to: '2026-10-25T04:00+01:00',
      ticks: [
        '2026-10-25T01:00+02:00',
        '2026-10-25T02:00+02:00',
        '2026-10-25T02:00+01:00',
        '2026-10-25T03:00+01:00',
      ],
      because: 'an entry of every hour fires in both passes',
    },
  ],
  'Australia/Lord_Howe': [
    {
      schedule: '15 2 * * *',
      from: '2026-10-03T00:00+10:30',
      to: '2026-10-06T00:00+11:00',
      ticks: ['2026-10-03T02:15+10:30', '2026-10-04T02:30+11:00', '2026-10-05T02:15+11:00'],
      because: 'the gap is half an hour, from 02:00 to 02:30',
    },
    {
      schedule: '30 2 * * *',
      from: '2026-10-03T12:00+10:30',
      to: '2026-10-05T00:00+11:00',
      ticks: ['2026-10-04T02:30+11:00'],
      because: 'the end of the gap is a time like any other',
    },
    {
      schedule: '45 1 * * *',
      from: '2027-04-03T00:00+11:00',
      to: '2027-04-06T00:00+10:30',
      ticks: ['2027-04-03T01:45+11:00', '2027-04-04T01:45+11:00', '2027-04-05T01:45+10:30'],
      because: 'from 01:30 the half hour comes twice',
    },
    {
      schedule: '*/15 * * * *',
      from: '2027-04-04T01:30+11:00',
      to: '2027-04-04T02:15+10:30',
      ticks: [
        '2027-04-04T01:30+11:00',
        '2027-04-04T01:45+11:00',
        '2027-04-04T01:30+10:30',
        '2027-04-04T01:45+10:30',
        '2027-04-04T02:00+10:30',
      ],
      because: 'every quarter of an hour is even in real time',
    },
  ],
  'America/Sao_Paulo': [
    {
      schedule: '0 0 * * *',
      from: '2018-11-03T00:00-03:00',
      to: '2018-11-06T00:00-02:00',
      ticks: ['2018-11-03T00:00-03:00', '2018-11-04T01:00-02:00', '2018-11-05T00:00-02:00'],
      because: '4 November 2018 began at 01:00',
    },
    {
      schedule: '30 23 * * *',
      from: '2019-02-16T00:00-02:00',
      to: '2019-02-18T00:00-03:00',
      ticks: ['2019-02-16T23:30-02:00', '2019-02-17T23:30-03:00'],
      because: 'on 16 February 2019 the hour before midnight came twice',
    },
    {
      schedule: '0 0 * * SUN',
      from: '2019-02-16T00:00-02:00',
      to: '2019-02-18T00:00-03:00',
      ticks: ['2019-02-17T00:00-03:00'],
      because: 'the midnight after the repeated hour is one',
    },
    {
      schedule: '30 */23 16 2 *',
      from: '2019-02-16T00:00-02:00',
      to: '2019-02-17T00:00-03:00',
      ticks: ['2019-02-16T00:30-02:00', '2019-02-16T23:30-02:00', '2019-02-16T23:30-03:00'],
      because: 'the tick a year later does not hide the second pass from the first',
    },
    {
      schedule: '0 0 * * *',
      from: '2019-11-02T00:00-03:00',
      to: '2019-11-05T00:00-03:00',
      ticks: ['2019-11-02T00:00-03:00', '2019-11-03T00:00-03:00', '2019-11-04T00:00-03:00'],
      because: 'daylight saving was given up in 2019',
    },
  ],
  'Atlantic/Azores': [
    {
      schedule: '30 */23 25 10 *',
      from: '2026-10-25T00:00+00:00',
      to: '2026-10-26T00:00-01:00',
      ticks: ['2026-10-25T00:30+00:00', '2026-10-25T00:30-01:00', '2026-10-25T23:30-01:00'],
      because: 'the tick a year before does not hide the first pass from the second',
    },
  ],
  'America/Nuuk': [
    {
      schedule: '30 23 * * SAT',
      from: '2025-03-29T00:00-02:00',
      to: '2025-04-01T00:00-01:00',
      ticks: ['2025-03-30T00:00-01:00'],
      because: 'the gap is the last hour of Saturday, and its end is on Sunday',
    },
  ],
  'Pacific/Apia': [
    {
      schedule: '0 9 * * FRI',
      from: '2011-12-24T00:00-10:00',
      to: '2012-01-07T00:00+14:00',
      ticks: ['2011-12-31T00:00+14:00', '2012-01-06T09:00+14:00'],
      because: 'there was no Friday 30 December 2011, and its run is not lost',
    },
    {
      schedule: '0 0 * * *',
      from: '2011-12-29T00:00-10:00',
      to: '2012-01-02T00:00+14:00',
      ticks: ['2011-12-29T00:00-10:00', '2011-12-31T00:00+14:00', '2012-01-01T00:00+14:00'],
      because: 'the skipped midnight and the one after it are one moment',
    },
    {
      schedule: '0 */12 * * *',
      from: '2011-12-29T12:00-10:00',
      to: '2012-01-01T00:00+14:00',
      ticks: ['2011-12-29T12:00-10:00', '2011-12-31T00:00+14:00', '2011-12-31T12:00+14:00'],
      because: 'an entry with a star does not notice the missing day',
    },
  ],
  'Pacific/Chatham': [
    {
      schedule: '0 3 * * *',
      from: '2026-09-27T00:00+12:45',
      to: '2026-09-28T00:00+13:45',
      ticks: ['2026-09-27T03:45+13:45'],
      because: 'the gap from 02:45 to 03:45 lies on no full hour',
    },
    {
      schedule: '0 3 * * *',
      from: '2027-04-04T00:00+13:45',
      to: '2027-04-05T00:00+12:45',
      ticks: ['2027-04-04T03:00+13:45'],
      because: 'a repeated time fires in its first pass',
    },
  ],
  UTC: [
    {
      schedule: '30 2 * * *',
      from: '2027-03-14T00:00Z',
      to: '2027-03-16T00:00Z',
      ticks: ['2027-03-14T02:30Z', '2027-03-15T02:30Z'],
      because: 'nothing is skipped',
    },
    {
      schedule: '30 1 * * *',
      from: '2026-11-01T00:00Z',
      to: '2026-11-03T00:00Z',
      ticks: ['2026-11-01T01:30Z', '2026-11-02T01:30Z'],
      because: 'nothing is repeated',
    },
  ],
};

/** All ticks from `from` (inclusive) to `to` (exclusive), walked forwards. */
function ticksBetween(schedule: string, timeZone: string, from: string, to: string): number[] {
  const { next } = parseSchedule(schedule, timeZone, 'an entry');
  const ticks: number[] = [];
  for (let ms = next(Date.parse(from) - 1); ms !== undefined && ms < Date.parse(to); ms = next(ms)) {
    ticks.push(ms);
  }
  return ticks;
}

function ticksBackwards(schedule: string, timeZone: string, from: string, to: string): number[] {
  const { latest } = parseSchedule(schedule, timeZone, 'an entry');
  const ticks: number[] = [];
  for (let ms = latest(Date.parse(to) - 1); ms !== undefined && ms >= Date.parse(from); ms = latest(ms - 1)) {
    ticks.unshift(ms);
  }
  return ticks;
}

const iso = (ms: number) => new Date(ms).toISOString();

for (const [timeZone, cases] of Object.entries(ZONES)) {
  describe(timeZone, () => {
    test.each(cases)('$schedule from $from: $because', ({ schedule, from, to, ticks }) => {
      const expected = ticks.map((tick) => iso(Date.parse(tick)));
      expect(ticksBetween(schedule, timeZone, from, to).map(iso)).toEqual(expected);
      expect(ticksBackwards(schedule, timeZone, from, to).map(iso)).toEqual(expected);
    });
  });
}

describe.each([
  ['the autumn day has 25 hours', '2026-11-01T00:00-04:00', '2026-11-02T00:00-05:00', 25],
  ['the spring day has 23 hours', '2027-03-14T00:00-05:00', '2027-03-15T00:00-04:00', 23],
])('New York: %s', (_title, from, to, hours) => {
  test.each([
    ['0 * * * *', 1],
    ['*/15 * * * *', 4],
    ['@hourly', 1],
    ['*/30 * * * * *', 120],
  ])('%s fires evenly in real time, %i times in each of them', (schedule, perHour) => {
    const ticks = ticksBetween(schedule, 'America/New_York', from, to);
    expect(ticks).toHaveLength(hours * perHour);
    const distances = ticks.map((tick, index) => tick - (ticks[index - 1] ?? tick - 3_600_000 / perHour));
    expect(new Set(distances)).toEqual(new Set([3_600_000 / perHour]));
  });

  test('@every does not notice', () => {
    const { next } = parseSchedule('@every 1h', undefined, 'an entry');
    expect(next(Date.parse(from))).toBe(Date.parse(from) + 3_600_000);
  });

  test.each(['0 0-23 * * *', '30 0-23 * * *'])('%s lists the hours, and fires once for each', (schedule) => {
    // In spring the skipped hour and the end of the gap are one run on the full hour, and two on the half.
    const expected = hours === 25 ? 24 : schedule.startsWith('0 ') ? 23 : 24;
    expect(ticksBetween(schedule, 'America/New_York', from, to)).toHaveLength(expected);
  });
});
