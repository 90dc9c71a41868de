import { randomBytes } from 'node:crypto';
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { TaskqError } from '../domain/errors.ts';
import { unifiedDiff } from './diff.ts';

export interface GeneratedFile {
  /** Absolute. */
  readonly path: string;
  readonly text: string;
}

export interface EmittedFile {
  readonly path: string;
  /** `drifted`: it would be written, had this not been a check. */
  readonly status: 'unchanged' | 'written' | 'drifted';
  /** What changed, in unified form; empty when nothing did. */
  readonly diff: string;
}

/** The text of a generated file on disk, `undefined` when there is none. */
export async function readGenerated(file: string): Promise<string | undefined> {
  try {
    // Git may have given the checkout other line ends; that is no drift.
    return (await readFile(file, 'utf8')).replaceAll('\r\n', '\n');
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw failure(file, 'read', cause);
  }
}

/**
 * Writes the files whose bytes differ and leaves the others untouched, modification time included.
 * With `check` it writes nothing and answers what would change.
 * @throws TaskqError `CODEGEN_FAILED` for a file that cannot be read or written
 */
export async function emit(
  files: readonly GeneratedFile[],
  options: { readonly cwd: string; readonly check: boolean },
): Promise<EmittedFile[]> {
  const emitted: EmittedFile[] = [];
  for (const { path: file, text } of files) {
    const shown = path.relative(options.cwd, file).replaceAll('\\', '/');
    const before = await readGenerated(file);
    if (before === text) {
      emitted.push({ path: shown, status: 'unchanged', diff: '' });
      continue;
    }
    if (!options.check) await replace(file, text);
    const status = options.check ? 'drifted' : 'written';
    emitted.push({ path: shown, status, diff: unifiedDiff(shown, before ?? '', text) });
  }
  return emitted;
}

/** By rename, so that a compiler or a watcher never reads half a file. */
async function replace(file: string, text: string): Promise<void> {
  const fresh = `${file}.${randomBytes(4).toString('hex')}.tmp`;
  try {
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(fresh, text);
    await rename(fresh, file);
  } catch (cause) {
    await rm(fresh, { force: true }).catch(() => {});
    throw failure(file, 'written', cause);
  }
}

function failure(file: string, what: 'read' | 'written', cause: unknown): TaskqError {
  return new TaskqError('CODEGEN_FAILED', `${file} cannot be ${what}: ${(cause as Error).message}`, {
    cause,
  });
}
