import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { TaskqError } from '../domain/errors.ts';
import type { MigrationSource } from './render-migrations.ts';

/**
 * Reads `0001_words.sql` and its `0001_words.down.sql` from a folder.
 * @throws TaskqError `CODEGEN_FAILED` when the folder or a file cannot be read, or one of a pair is missing
 */
export async function readMigrations(folder: string): Promise<MigrationSource[]> {
  try {
    const files = (await readdir(folder)).filter((name) => name.endsWith('.sql'));
    const names = new Set(files.map((file) => file.replace(/(\.down)?\.sql$/, '')));
    return await Promise.all(
      [...names].map(async (name) => ({
        name,
        up: await readFile(path.join(folder, `${name}.sql`), 'utf8'),
        down: await readFile(path.join(folder, `${name}.down.sql`), 'utf8'),
      })),
    );
  } catch (cause) {
    const problem = `migrations in ${folder} cannot be read: ${(cause as Error).message}`;
    throw new TaskqError('CODEGEN_FAILED', problem, { cause });
  }
}
