import { TaskqError } from './errors.ts';

/** PostgreSQL cuts a longer name off without an error, so two schemas would become one. */
const IDENTIFIER_BYTES_MAX = 63;

/**
 * `name`, once it is known to be usable as a schema's name: any text of 1 to 63 bytes (UTF-8), case and quotes kept.
 * @throws TaskqError `CONFIG_INVALID` for an empty, too long or reserved name
 */
export function checkSchemaName(name: string): string {
  const problem = schemaNameProblem(name);
  if (problem !== undefined) throw new TaskqError('CONFIG_INVALID', `schema '${name}': ${problem}`);
  return name;
}

function schemaNameProblem(name: string): string | undefined {
  if (name === '') return 'a schema needs a name';
  if (name.includes('\u0000') || !name.isWellFormed())
    return 'the name holds a character PostgreSQL cannot store';
  const bytes = Buffer.byteLength(name, 'utf8');
  if (bytes > IDENTIFIER_BYTES_MAX) {
    return `the name has ${bytes} bytes, PostgreSQL takes at most ${IDENTIFIER_BYTES_MAX}`;
  }
  if (name.startsWith('pg_') || name === 'information_schema')
    return 'the name is reserved for PostgreSQL itself';
  return undefined;
}

/** An identifier as SQL text, whatever its characters. */
export function quoteIdentifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
