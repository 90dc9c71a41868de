import type { Kysely } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { registerTypes } from '../../src/statements/task-types.ts';
import { writeLaneOf } from './rows.ts';

/**
 * What a replica registers at its start, of types without secrets: of others no payload is shown. For tests of what
 * operators see of rows that no replica has run.
 */
export async function registerPlainTypes(
  db: Kysely<DB>,
  types: readonly string[] = ['plain', 'brief', 'sliced', 'fragile'],
  revision = 1,
): Promise<void> {
  const facts = {
    revision,
    secrets: undefined,
    cursorSecrets: undefined,
    ceilingMs: 300_000,
    maxAttempts: 20,
  };
  await registerTypes(
    writeLaneOf(db),
    types.map((type) => ({ type, ...facts })),
  );
}
