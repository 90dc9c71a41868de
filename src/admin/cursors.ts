import { z } from 'zod';
import { parseTaskId } from '../domain/ids.ts';
import { type DeadPlace, STRETCHES, type TaskPlace } from '../operator-pages.ts';
import { AdminProblem } from './problems.ts';

// A cursor is a place in a list as JSON in base64url. Whoever makes one up comes to another place in the list, no
// further: its values go into the statement as parameters, after these checks.

const micros = z.string().regex(/^-?[0-9]{1,17}$/);
const id = z.string().refine((text) => text === '0' || parseTaskId(text) !== undefined);

const taskPlace = z.strictObject({
  stretch: z.enum(STRETCHES),
  queue: z.string().max(200),
  runAtMicros: micros,
  id,
});
const deadPlace = z.strictObject({ runAtMicros: micros, id });
const idPlace = z.strictObject({ id });

export const readTaskPlace = (cursor: string | undefined): TaskPlace | undefined => read(taskPlace, cursor);
export const readDeadPlace = (cursor: string | undefined): DeadPlace | undefined => read(deadPlace, cursor);
export const readIdPlace = (cursor: string | undefined): string | undefined => read(idPlace, cursor)?.id;

/** Null at the end of the list. */
export function writePlace(place: object | undefined): string | null {
  return place === undefined ? null : Buffer.from(JSON.stringify(place)).toString('base64url');
}

function read<Place>(schema: z.ZodType<Place>, cursor: string | undefined): Place | undefined {
  if (cursor === undefined) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'));
  } catch {
    value = undefined;
  }
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new AdminProblem('REQUEST_INVALID', 'cursor: not one that this list has given');
}
