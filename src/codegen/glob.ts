import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { byCodeUnit } from './order.ts';

/** A folder's entries, as `readdir` gives them; a parameter so that a test decides their order. */
export type ListFolder = (folder: string) => Promise<readonly { name: string; isDirectory(): boolean }[]>;

const listFolder: ListFolder = (folder) => readdir(folder, { withFileTypes: true });

/** Never searched: other people's definitions, and nobody writes task files there. */
const SKIPPED_FOLDERS = new Set(['node_modules', '.git']);

/**
 * Absolute paths of the files that match a glob and no negated one (`!src/**\/*.test.ts`), in code-unit order.
 * Understood: `*`, `**`, `?`, `[a-z]`, `{a,b}`; backslashes are separators.
 */
export async function findFiles(
  cwd: string,
  globs: readonly string[],
  list: ListFolder = listFolder,
): Promise<string[]> {
  const normalised = globs.map(normaliseGlob);
  const matchers = normalised.filter((glob) => !glob.startsWith('!')).map((glob) => absoluteGlob(cwd, glob));
  const refusals = normalised
    .filter((glob) => glob.startsWith('!'))
    .map((glob) => globPattern(absoluteGlob(cwd, glob.slice(1))));
  const found = new Set<string>();
  for (const glob of matchers) {
    const pattern = globPattern(glob);
    for await (const file of walk(staticFolder(glob), list)) {
      const posix = toPosix(file);
      if (pattern.test(posix) && !refusals.some((refusal) => refusal.test(posix))) found.add(file);
    }
  }
  return [...found].sort((left, right) => byCodeUnit(toPosix(left), toPosix(right)));
}

/** The glob as the same text on every platform: `src\tasks\*.ts` → `src/tasks/*.ts`. */
export function normaliseGlob(glob: string): string {
  const negated = glob.startsWith('!');
  const posix = (negated ? glob.slice(1) : glob).replaceAll('\\', '/').replace(/^(\.\/)+/, '');
  return negated ? `!${posix}` : posix;
}

/** The pattern of a normalised glob over forward-slash paths. */
export function globPattern(glob: string): RegExp {
  let source = '';
  let depth = 0;
  for (let at = 0; at < glob.length; at += 1) {
    const rest = glob.slice(at);
    const set = /^\[(!?)([^\]/]+)\]/.exec(rest);
    if (rest.startsWith('**/')) {
      source += '(?:[^/]+/)*';
      at += 2;
    } else if (rest.startsWith('**')) {
      source += '.*';
      at += 1;
    } else if (rest[0] === '*') source += '[^/]*';
    else if (rest[0] === '?') source += '[^/]';
    else if (set !== null) {
      source += `[${set[1] === '!' ? '^' : ''}${(set[2] as string).replace(/[\\^]/g, '\\$&')}]`;
      at += set[0].length - 1;
    } else if (rest[0] === '{' && rest.includes('}')) {
      source += '(?:';
      depth += 1;
    } else if (rest[0] === '}' && depth > 0) {
      source += ')';
      depth -= 1;
    } else if (rest[0] === ',' && depth > 0) source += '|';
    else source += (rest[0] as string).replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
  }
  return new RegExp(`^${source}$`);
}

function absoluteGlob(cwd: string, glob: string): string {
  if (path.isAbsolute(glob)) return toPosix(glob);
  // The folder stands for itself, even where its name holds a glob's characters.
  const steps = glob.split('/');
  let folder = cwd;
  while (steps[0] === '..' || steps[0] === '.') folder = path.join(folder, steps.shift() as string);
  return `${escapeGlob(toPosix(folder)).replace(/\/$/, '')}/${steps.join('/')}`;
}

/** Wraps each special character into a set of one, which `globPattern` takes literally. */
function escapeGlob(text: string): string {
  return text.replace(/[*?{},[]/g, '[$&]');
}

/** The deepest folder above everything the glob can match. */
function staticFolder(glob: string): string {
  const steps: string[] = [];
  for (const step of glob.split('/').slice(0, -1)) {
    const literal = step.replace(/\[([*?{},[])\]/g, '');
    if (/[*?{[]/.test(literal)) break;
    steps.push(step.replace(/\[([*?{},[])\]/g, '$1'));
  }
  return path.normalize(`${steps.join('/')}/`);
}

async function* walk(folder: string, list: ListFolder): AsyncGenerator<string> {
  const entries = await list(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
    throw error;
  });
  for (const entry of entries) {
    const file = path.join(folder, entry.name);
    if (!entry.isDirectory()) yield file;
    else if (!SKIPPED_FOLDERS.has(entry.name)) yield* walk(file, list);
  }
}

function toPosix(file: string): string {
  return path.sep === '\\' ? file.replaceAll('\\', '/') : file;
}
