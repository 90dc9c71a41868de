import { expect, test } from 'vitest';
import { parseSchedule } from '../../src/scheduler/schedule.ts';

function refusal(schedule: unknown, timeZone?: unknown): string {
  try {
    parseSchedule(schedule as string, timeZone as string | undefined, "cron entry 'purge'");
  } catch (error) {
    expect(error).toMatchObject({ name: 'TaskqError', code: 'DEFINITION_INVALID' });
    return (error as Error).message;
  }
  throw new Error(`'${schedule}' was accepted`);
}

function textOf(schedule: string, timeZone?: string): string {
  return parseSchedule(schedule, timeZone, 'an entry').text;
}

/** The local days of the first `count` ticks of 2027, in UTC. */
function daysOf2027(schedule: string, count: number): string[] {
  const { next } = parseSchedule(schedule, undefined, 'an entry');
  const days: string[] = [];
  for (let ms: number | undefined = Date.UTC(2027, 0, 1) - 1; days.length < count; ) {
    ms = next(ms) as number;
    days.push(new Date(ms).toISOString().slice(0, 10));
  }
  return days;
}

test('@every counts in multiples of its interval since the epoch, whenever it was started', () => {
  const { next, latest } = parseSchedule('@every 30s', undefined, 'an entry');
  expect([0, 1, 29_999, 30_000, 30_001].map(next)).toEqual([30_000, 30_000, 30_000, 60_000, 60_000]);
  expect([0, 1, 29_999, 30_000, 30_001].map(latest)).toEqual([0, 0, 0, 30_000, 30_000]);
  const seven = parseSchedule('@every 7d', undefined, 'an entry');
  expect(new Date(seven.next(Date.UTC(2027, 0, 1)) as number).toISOString()).toBe('2027-01-07T00:00:00.000Z');
});

test.each([
  ['@every 60s', '@every 1m'],
  ['@every 1.5h', '@every 90m'],
  [' @EVERY   1.1m ', '@every 66s'],
  ['@every 366d', '@every 366d'],
  ['@every 86401s', '@every 86401s'],
])('the text of %s is %s', (schedule, text) => {
  expect(textOf(schedule)).toBe(text);
  expect(textOf(text)).toBe(text);
});

test.each([
  ['30 2 * * *', undefined, '30 2 * * * UTC'],
  ['  30  02 * *\tmon-fri', 'america/new_york', '30 2 * * MON-FRI America/New_York'],
  ['0 30 2 * * *', 'Europe/Berlin', '30 2 * * * Europe/Berlin'],
  ['15 30 2 * * *', 'Europe/Berlin', '15 30 2 * * * Europe/Berlin'],
  ['*/1 */05 * * *', 'UTC', '* */5 * * * UTC'],
  ['@hourly', undefined, '0 * * * * UTC'],
  ['@daily', undefined, '0 0 * * * UTC'],
  ['@Midnight', undefined, '0 0 * * * UTC'],
  ['@weekly', undefined, '0 0 * * 0 UTC'],
  ['@monthly', undefined, '0 0 1 * * UTC'],
  ['@yearly', undefined, '0 0 1 1 * UTC'],
  ['@annually', 'Asia/Kolkata', '0 0 1 1 * Asia/Kolkata'],
])('the text of %j in %s is %j', (schedule, timeZone, text) => {
  expect(textOf(schedule, timeZone)).toBe(text);
});

test.each([
  ['0 0 L * *', ['2027-01-31', '2027-02-28', '2027-03-31']],
  ['0 0 LW * *', ['2027-01-29', '2027-02-26', '2027-03-31']],
  ['0 0 15W * *', ['2027-01-15', '2027-02-15', '2027-03-15', '2027-04-15', '2027-05-14']],
  ['0 0 1W * *', ['2027-01-01', '2027-02-01', '2027-03-01', '2027-04-01', '2027-05-03']],
  ['0 0 * * FRI#2', ['2027-01-08', '2027-02-12', '2027-03-12']],
  ['0 0 * * 5L', ['2027-01-29', '2027-02-26', '2027-03-26']],
  ['0 0 * * FRI#L', ['2027-01-29', '2027-02-26', '2027-03-26']],
  ['0 0 * * FRI-SUN', ['2027-01-01', '2027-01-02', '2027-01-03', '2027-01-08']],
  ['0 0 * * 0,7', ['2027-01-03', '2027-01-10']],
  ['0 0 * JAN,MAR-MAY TUE', ['2027-01-05', '2027-01-12', '2027-01-19', '2027-01-26', '2027-03-02']],
  ['0 0 13 * FRI', ['2027-01-01', '2027-01-08', '2027-01-13', '2027-01-15']],
  ['0 0 29 2 *', ['2028-02-29', '2032-02-29', '2036-02-29']],
  ['0 0 * 2 FRI#5', ['2036-02-29', '2064-02-29', '2092-02-29', '2104-02-29']],
])('%s names the days %j', (schedule, days) => {
  expect(daysOf2027(schedule, days.length)).toEqual(days);
});

test('the seconds come first in six fields', () => {
  const { next } = parseSchedule('*/20 59 23 * * *', undefined, 'an entry');
  const start = Date.UTC(2027, 0, 1, 23, 59, 20);
  expect(next(start - 1)).toBe(start);
  expect(next(start)).toBe(start + 20_000);
  expect(next(start + 20_000)).toBe(start + 86_400_000 - 20_000);
});

test('a leap day is found across the eight years around 2100, in both directions', () => {
  for (const hour of ['0', '*']) {
    const { next, latest } = parseSchedule(`0 ${hour} 29 2 *`, 'America/New_York', 'an entry');
    const last2096 = Date.parse(`2096-02-29T${hour === '*' ? '23' : '00'}:00:00-05:00`);
    const first2104 = Date.parse('2104-02-29T00:00:00-05:00');
    expect(next(last2096)).toBe(first2104);
    expect(latest(first2104 - 1)).toBe(last2096);
  }
});

test('at the ends of the calendar there is no tick any more', () => {
  for (const schedule of ['0 0 1 1 *', '0 * 1 1 *']) {
    const { next, latest } = parseSchedule(schedule, 'Europe/Berlin', 'an entry');
    expect(next(Date.UTC(2999, 0, 1))).toBeUndefined();
    expect(next(8.64e15)).toBeUndefined();
    expect(latest(Date.UTC(1899, 0, 1))).toBeUndefined();
    expect(latest(-8.64e15)).toBeUndefined();
    const first = next(-8.64e15) as number;
    expect(latest(first)).toBe(first);
    const last = latest(8.64e15) as number;
    expect(latest(last)).toBe(last);
    expect(next(last)).toBeUndefined();
  }
});

const NUMBERS_OF_MINUTE =
  "write '*' or '*/n' alone, or a list of numbers from 0 to 59, ranges a-b and ranges with a step a-b/n";

const EVERY = "write @every with whole seconds from 1s to 366d, such as '@every 30s' or '@every 1.5h'";

test.each([
  ['? * * * *', `minute '?' is not understood: ${NUMBERS_OF_MINUTE}`],
  ['H * * * *', `minute 'H' is not understood: ${NUMBERS_OF_MINUTE}`],
  ['0~30 * * * *', `minute '0~30' is not understood: ${NUMBERS_OF_MINUTE}`],
  ['5/10 * * * *', `minute '5/10' is not understood: ${NUMBERS_OF_MINUTE}`],
  ['1,,2 * * * *', `minute '' is not understood: ${NUMBERS_OF_MINUTE}`],
  ['1.5 * * * *', `minute '1.5' is not understood: ${NUMBERS_OF_MINUTE}`],
  ['3,* * * * *', `minute '*' is not understood: ${NUMBERS_OF_MINUTE}`],
  ['0 *,3 * * *', "hour '*' is not understood: write '*' or '*/n' alone"],
  ['0 0 ? * *', "day of month '?' is not understood"],
  ['0 0 * * ?', "day of week '?' is not understood"],
  ['0 0 * * +MON', "day of week '+MON' is not understood"],
  [
    '0 0 * * MONDAY',
    "day of week 'MONDAY' is not understood: write '*' or '*/n' alone, or a list of numbers from 0",
  ],
  ['0 0 * * L', "day of week 'L' is not understood"],
  ['0 0 * * MON#6', "day of week 'MON#6' is not understood"],
  ['0 0 * * 1-5#2', "day of week '1-5#2' is not understood"],
  ['0 0 L-3 * *', "day of month 'L-3' is not understood"],
  ['0 0 1,LW * *', "day of month 'LW' is not understood"],
  ['0 0 1-5W * *', "day of month '1-5W' is not understood"],
  ['0 0 * L *', "month 'L' is not understood"],
  ['L 0 * * *', "minute 'L' is not understood"],
  ['60 * * * *', 'minute 60 is not between 0 and 59'],
  ['60 0 0 * * *', 'second 60 is not between 0 and 59'],
  ['0 24 * * *', 'hour 24 is not between 0 and 23'],
  ['0 0 0 * *', 'day of month 0 is not between 1 and 31'],
  ['0 0 32W * *', 'day of month 32 is not between 1 and 31'],
  ['0 0 * 13 *', 'month 13 is not between 1 and 12'],
  ['0 0 * * 8', 'day of week 8 is not between 0 and 7'],
  ['*/0 * * * *', 'minute: the step /0 is not between 1 and 59'],
  ['*/60 * * * *', 'minute: the step /60 is not between 1 and 59'],
  [
    '0 22-2 * * *',
    "hour '22-2' runs backwards: write the part before and the part after the turn, with a comma",
  ],
  ['0 0 * * SAT-MON', "day of week 'SAT-MON' runs backwards"],
  [
    '0 0 */2 * MON',
    'a step in one day field beside days in the other is read differently by different crons',
  ],
  ['0 0 1 * */2', 'a step in one day field beside days in the other is read differently by different crons'],
  ['0 0 0 1 1 * 2027', 'or 6 with the second first; here are 7'],
  ['* * * *', 'cron text has 5 fields (minute, hour, day of month, month, day of week)'],
  ['', 'here are 0'],
  ['every minute', 'here are 2'],
  ['2027-01-01T00:00:00', 'here are 1'],
  ['CRON_TZ=Europe/Berlin 0 2 * * *', "second 'CRON_TZ=EUROPE/BERLIN' is not understood"],
  ['@reboot', 'there is no such word: write @every with a duration, @hourly, @daily'],
  ['@everyday', 'there is no such word'],
  ['@every', EVERY],
  ['@every 30', EVERY],
  ['@every 500ms', EVERY],
  ['@every 367d', EVERY],
  ['@every 1.5s', EVERY],
  ['0 0 30 2 *', 'there is no such day in any year, so it would never fire'],
  ['0 0 31 4,6,9,11 *', 'there is no such day in any year, so it would never fire'],
  ['0 0 31W 2 *', 'there is no such day in any year, so it would never fire'],
])('the schedule %j is refused: %s', (schedule, reason) => {
  expect(refusal(schedule)).toContain(`cron entry 'purge': schedule '${schedule}': `);
  expect(refusal(schedule)).toContain(reason);
});

test.each([
  [
    '0 2 * * *',
    'Mars/Phobos',
    "there is no time zone 'Mars/Phobos': write an IANA name such as Europe/Berlin, or UTC",
  ],
  ['0 2 * * *', '+02:00', "the time zone '+02:00' is a fixed offset"],
  ['0 2 * * *', '2', "the time zone '2' is a fixed offset"],
  ['0 2 * * *', 'EST', "the time zone 'EST' is not an IANA name such as Europe/Berlin, nor UTC"],
  ['0 2 * * *', 'BST', "the time zone 'BST' is not an IANA name"],
  ['0 2 * * *', '', "the time zone '' is not an IANA name"],
  ['0 2 * * *', 2, 'the time zone must be text such as Europe/Berlin'],
  ['@every 30s', 'UTC', "@every counts real time and has no time zone: leave 'UTC' out, or write cron text"],
  [30, undefined, "cron entry 'purge': schedule 30: expected text such as '@every 30s' or '30 2 * * *'"],
])('the schedule %j in the time zone %j is refused: %s', (schedule, timeZone, reason) => {
  expect(refusal(schedule, timeZone)).toContain(reason);
});

test('a fixed offset has an IANA name', () => {
  const { next } = parseSchedule('0 2 * * *', 'Etc/GMT-2', 'an entry');
  expect(next(Date.UTC(2027, 6, 1) - 1)).toBe(Date.UTC(2027, 6, 1));
});
