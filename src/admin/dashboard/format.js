// Numbers and times as people read them. Instants are shown in the reader's own time zone; the title says them in UTC.

import { h } from './view.js';

/** @import { Wire } from '../contracts.ts' */

const WHOLE = new Intl.NumberFormat('en');
const ONE_DIGIT = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;

/** @param {number} value */
export function whole(value) {
  return WHOLE.format(Math.round(value));
}

/** A rate: with one digit where it is small. @param {number} value */
export function rate(value) {
  return value < 100 ? ONE_DIGIT.format(value) : whole(value);
}

/** A bounded count: '10,000+' where the counting ended. @param {Wire<'Count'>} count */
export function bounded({ count, isAtLeast }) {
  return isAtLeast ? `${whole(count)}+` : whole(count);
}

/** A length of time in its largest unit or two: '840 ms', '12 s', '3 m 20 s', '2 d 4 h'. @param {number} ms */
export function duration(ms) {
  if (ms < SECOND_MS) return `${Math.round(ms)} ms`;
  if (ms < 10 * SECOND_MS) return `${ONE_DIGIT.format(ms / SECOND_MS)} s`;
  if (ms < MINUTE_MS) return `${Math.floor(ms / SECOND_MS)} s`;
  if (ms < HOUR_MS) return twoUnits(ms, MINUTE_MS, 'm', SECOND_MS, 's');
  if (ms < DAY_MS) return twoUnits(ms, HOUR_MS, 'h', MINUTE_MS, 'm');
  return twoUnits(ms, DAY_MS, 'd', HOUR_MS, 'h');
}

/** @param {number} ms @param {number} big @param {string} bigName @param {number} small @param {string} smallName */
function twoUnits(ms, big, bigName, small, smallName) {
  const rest = Math.floor((ms % big) / small);
  return `${Math.floor(ms / big)} ${bigName}${rest === 0 ? '' : ` ${rest} ${smallName}`}`;
}

/** How long ago, or in how long. @param {string} instant @param {number} nowMs */
function distance(instant, nowMs) {
  const ms = Date.parse(instant) - nowMs;
  if (Math.abs(ms) < 1_500) return 'now';
  const length = coarse(Math.abs(ms));
  return ms > 0 ? `in ${length}` : `${length} ago`;
}

/** In one unit: a list of these is read for its order of size. @param {number} ms */
function coarse(ms) {
  if (ms < MINUTE_MS) return `${Math.floor(ms / SECOND_MS)} s`;
  if (ms < HOUR_MS) return `${Math.floor(ms / MINUTE_MS)} m`;
  if (ms < 2 * DAY_MS) return `${Math.floor(ms / HOUR_MS)} h`;
  return `${Math.floor(ms / DAY_MS)} d`;
}

/** @param {string} instant */
function utc(instant) {
  return instant.replace('T', ' ').replace('Z', ' UTC');
}

/** @param {string} instant */
function clock(instant) {
  const date = new Date(instant);
  return date.toDateString() === new Date().toDateString()
    ? CLOCK.format(date)
    : `${DAY.format(date)}, ${CLOCK.format(date)}`;
}

/** '3 m ago', the exact instant in the title. @param {string | null} instant */
export function relativeTime(instant) {
  if (instant === null) return h('span', { class: 'faint' }, '–');
  return h('time', { datetime: instant, title: utc(instant) }, distance(instant, Date.now()));
}

/** '14:03:22', with the day where it is another one. @param {string} instant */
export function exactTime(instant) {
  return h('time', { datetime: instant, title: utc(instant) }, clock(instant));
}

/** Both. @param {string | null} instant */
export function fullTime(instant) {
  if (instant === null) return h('span', { class: 'faint' }, '–');
  return h(
    'time',
    { datetime: instant, title: utc(instant) },
    clock(instant),
    ' ',
    h('span', { class: 'faint' }, `(${distance(instant, Date.now())})`),
  );
}

/** The first line of an error, which may be a page long. @param {string} text */
export function firstLine(text) {
  return text.split('\n', 1)[0] ?? '';
}

/** @param {number} count @param {string} one @param {string} [many] */
export function counted(count, one, many = `${one}s`) {
  return `${whole(count)} ${count === 1 ? one : many}`;
}

/**
 * JSON text, indented, with every digit and escape as it stands: parsed and printed again, big numbers would change.
 * @param {string} text
 */
export function indented(text) {
  let depth = 0;
  const line = () => `\n${'  '.repeat(depth)}`;
  const parts = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g) ?? [];
  return parts
    .map((part, index) => {
      if (part === '{' || part === '[') {
        if (parts[index + 1] === '}' || parts[index + 1] === ']') return part;
        depth += 1;
        return part + line();
      }
      if (part === '}' || part === ']') {
        if (parts[index - 1] === '{' || parts[index - 1] === '[') return part;
        depth -= 1;
        return line() + part;
      }
      if (part === ',') return part + line();
      return part === ':' ? ': ' : part;
    })
    .join('');
}
