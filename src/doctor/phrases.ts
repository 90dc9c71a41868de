import { DOCTOR_NAMED_MAX } from '../domain/limits.ts';

/** `1 task`, `2 tasks`. */
export const counted = (count: number, one: string, many = `${one}s`): string =>
  `${Math.round(count)} ${count === 1 ? one : many}`;

/** The first few of many, and how many more there are. */
export function named(all: readonly string[]): string {
  const more = all.length - DOCTOR_NAMED_MAX;
  const shown = all.slice(0, DOCTOR_NAMED_MAX).join('; ');
  return more > 0 ? `${shown}; and ${more} more` : shown;
}

/** A value as SQL text. */
export const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`;

/** An argument for a POSIX shell: as it is where that is safe, else quoted. */
export const argument = (text: string): string =>
  /^[\w.:/-]+$/.test(text) && !text.startsWith('-') ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
