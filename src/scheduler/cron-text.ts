// Reads cron text before croner does. croner also takes what other crons read differently ('?', '+MON', a '*'
// inside a list, a year), and its messages count months and days from zero: what passes here means one thing.

/** Ends the reading with the reason, which the caller completes with the entry's name. */
export type Refuse = (reason: string) => never;

export interface CronText {
  /** Upper case, single spaces, no leading zeros, no seconds field of '0', no nickname: alike for equal text. */
  readonly text: string;
  /** Whether the hour field names hours of the day, instead of beginning with a star. */
  readonly listsHours: boolean;
}

interface Field {
  readonly name: string;
  readonly min: number;
  readonly max: number;
  /** Names by their number, counted from `min`. */
  readonly names?: readonly string[];
  /** What may stand behind a number or name. */
  readonly suffix?: RegExp;
  /** What the field knows besides numbers, for the message. */
  readonly also?: string;
}

const SECOND: Field = { name: 'second', min: 0, max: 59 };
const MINUTE: Field = { name: 'minute', min: 0, max: 59 };
const HOUR: Field = { name: 'hour', min: 0, max: 23 };
const DAY_OF_MONTH: Field = {
  name: 'day of month',
  min: 1,
  max: 31,
  suffix: /(?<=^\d+)W$/,
  also: "'L' (the last day), '15W' (the weekday nearest to the 15th) or 'LW' alone (the last weekday)",
};
const MONTH: Field = {
  name: 'month',
  min: 1,
  max: 12,
  names: ['JAN', 'FEB', 'MAR', 'APR', 'MAY', 'JUN', 'JUL', 'AUG', 'SEP', 'OCT', 'NOV', 'DEC'],
};
const DAY_OF_WEEK: Field = {
  name: 'day of week',
  min: 0,
  max: 7,
  names: ['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT'],
  suffix: /(?<=^\w+)(#[1-5L]|L)$/,
  also: "'FRI#2' (the second Friday) or 'FRIL' (the last Friday)",
};
const FIELDS = [SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK] as const;

const NICKNAMES: Readonly<Record<string, string>> = {
  '@HOURLY': '0 * * * *',
  '@DAILY': '0 0 * * *',
  '@MIDNIGHT': '0 0 * * *',
  '@WEEKLY': '0 0 * * 0',
  '@MONTHLY': '0 0 1 * *',
  '@YEARLY': '0 0 1 1 *',
  '@ANNUALLY': '0 0 1 1 *',
};

/** Reads cron text of 5 fields, of 6 with seconds first, or a nickname; calls `refuse` for anything else. */
export function readCronText(schedule: string, refuse: Refuse): CronText {
  const given = schedule.trim().toUpperCase();
  if (given.startsWith('@') && NICKNAMES[given] === undefined) {
    refuse(
      'there is no such word: write @every with a duration, @hourly, @daily, @midnight, @weekly, @monthly, @yearly or ' +
        '@annually, or the fields',
    );
  }
  const words = (NICKNAMES[given] ?? given).split(/\s+/);
  if (words.length !== 5 && words.length !== 6) {
    refuse(
      `cron text has 5 fields (minute, hour, day of month, month, day of week), or 6 with the second first; here are ` +
        `${given === '' ? 0 : words.length}`,
    );
  }
  if (words.length === 5) words.unshift('0');
  const fields = words.map((word, index) => readField(word, FIELDS[index] as Field, refuse));
  const [second = '', , hour = '', dayOfMonth = '', , dayOfWeek = ''] = fields;
  refuseUnclearDays(dayOfMonth, dayOfWeek, refuse);
  return { text: (second === '0' ? fields.slice(1) : fields).join(' '), listsHours: !hour.startsWith('*') };
}

function readField(word: string, field: Field, refuse: Refuse): string {
  if (/^\*(\/\d+)?$/.test(word)) {
    const step = word.slice(2);
    if (step !== '') checkStep(step, field, refuse);
    return step === '' || Number(step) === 1 ? '*' : `*/${Number(step)}`;
  }
  const elements = word.split(',');
  for (const element of elements) checkElement(element, elements.length, field, refuse);
  return elements.map((element) => element.replace(/\b0+(?=\d)/g, '')).join(',');
}

function checkElement(element: string, count: number, field: Field, refuse: Refuse): void {
  if (field === DAY_OF_MONTH && (element === 'L' || (element === 'LW' && count === 1))) return;
  const range = /^(\w+)(?:-(\w+)(?:\/(\d+))?)?$/.exec(
    field.suffix === undefined ? element : element.replace(field.suffix, ''),
  );
  if (range === null) notUnderstood(element, field, refuse);
  const [, first = '', last, step] = range;
  const from = numberOf(first, element, field, refuse);
  if (last === undefined) return;
  // A week may be written to end on Sunday, which is 7 there.
  const to = field === DAY_OF_WEEK && last === 'SUN' ? 7 : numberOf(last, element, field, refuse);
  if (from > to) {
    refuse(
      `${field.name} '${element}' runs backwards: write the part before and the part after the turn, with a comma`,
    );
  }
  if (step !== undefined) checkStep(step, field, refuse);
}

function numberOf(text: string, element: string, field: Field, refuse: Refuse): number {
  const named = field.names?.indexOf(text) ?? -1;
  if (named !== -1) return named + field.min;
  if (!/^\d+$/.test(text)) return notUnderstood(element, field, refuse);
  const value = Number(text);
  if (value < field.min || value > field.max) {
    refuse(`${field.name} ${text} is not between ${field.min} and ${field.max}`);
  }
  return value;
}

function checkStep(step: string, field: Field, refuse: Refuse): void {
  const value = Number(step);
  if (value < 1 || value > field.max) {
    refuse(`${field.name}: the step /${step} is not between 1 and ${field.max}`);
  }
}

function notUnderstood(element: string, field: Field, refuse: Refuse): never {
  const names = field.names === undefined ? '' : ` or a name (${field.names.join(' ')})`;
  const also = field.also === undefined ? '' : `; also ${field.also}`;
  return refuse(
    `${field.name} '${element}' is not understood: write '*' or '*/n' alone, or a list of numbers from ${field.min} to ` +
      `${field.max}${names}, ranges a-b and ranges with a step a-b/n${also}`,
  );
}

/** With a stepped star in one day field and days in the other, some crons fire on either and some on both. */
function refuseUnclearDays(dayOfMonth: string, dayOfWeek: string, refuse: Refuse): void {
  const isSteppedBesideDays = (a: string, b: string) => a.startsWith('*/') && b !== '*';
  if (isSteppedBesideDays(dayOfMonth, dayOfWeek) || isSteppedBesideDays(dayOfWeek, dayOfMonth)) {
    refuse(
      'a step in one day field beside days in the other is read differently by different crons: write it as a range, such ' +
        "as 1-31/2, for 'on either', or let the handler decide on the day",
    );
  }
}
