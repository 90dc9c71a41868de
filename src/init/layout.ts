import { existsSync } from 'node:fs';
import path from 'node:path';
import { findFiles } from '../codegen/glob.ts';
import { type ConfigSources, findConfigFile, resolveConfig } from '../config.ts';
import type { Project } from './project.ts';

/** The name of the first task: of its type, its file and its export. */
export const FIRST_TASK = 'greet';

/** Where the files of the queue lie in a project; relative to it, with forward slashes. */
export interface Layout {
  /** The configuration file; it may exist. */
  readonly config: string;
  readonly definitions: readonly string[];
  /** Undefined: the definitions are where no file of ours would be found, or there are some already. */
  readonly firstTask: string | undefined;
  readonly handlers: string;
  /** The folder of the generated files. */
  readonly out: string;
  readonly runtime: string;
  readonly schema: string;
}

/**
 * Where things go: where an existing configuration says, else with the sources.
 * @throws TaskqError `CONFIG_INVALID` for a configuration that is not usable
 */
export async function layoutOf(project: Project, sources: ConfigSources): Promise<Layout> {
  const configured = sources.configFile ?? findConfigFile(project.folder);
  const settings = await resolveConfig(sources, ['definitions', 'handlers', 'out', 'runtime', 'schema']);
  const { runtime, schema } = settings;
  const standard = standardLayout(project);
  if (configured === undefined) return { ...standard, runtime, schema };
  const definitions = settings.definitions ?? standard.definitions;
  const handlers = settings.handlers ?? standard.handlers;
  const firstTask = await firstTaskOf(project.folder, definitions);
  return { config: configured, definitions, firstTask, handlers, out: settings.out, runtime, schema };
}

/**
 * Everything with the sources, generated files included: outside of the compiler's `rootDir` they would not
 * compile, and outside of its one folder of sources they would move the whole output by a level.
 */
function standardLayout({ folder, sources, compiler }: Project): Omit<Layout, 'runtime' | 'schema'> {
  const tasks = path.posix.join(sources, 'tasks');
  // A folder of this name may hold what is nobody's definition, which must not be loaded.
  const suffix = existsSync(path.join(folder, tasks)) ? '.task.ts' : '.ts';
  return {
    // A TypeScript file outside of `rootDir` is an error of every build that names no `include`.
    config: compiler?.rootDir === undefined || sources === '' ? 'taskq.config.ts' : 'taskq.config.mjs',
    definitions: [`${tasks}/**/*${suffix}`],
    firstTask: `${tasks}/${FIRST_TASK}${suffix}`,
    handlers: path.posix.join(sources, 'handlers.ts'),
    out: path.posix.join(sources, 'generated'),
  };
}

/** A file that the first glob finds, when it is of the plain form, and no other definition is there. */
async function firstTaskOf(folder: string, definitions: readonly string[]): Promise<string | undefined> {
  const [, tasks, suffix] =
    /^([^*?[\]{}!]+)\/(?:\*\*\/)?\*([^*?[\]{}!/]*\.ts)$/.exec(definitions[0] ?? '') ?? [];
  if (tasks === undefined || suffix === undefined) return undefined;
  const file = `${tasks.replace(/^\.\//, '')}/${FIRST_TASK}${suffix}`;
  const others = (await foundBy(folder, definitions)).filter((found) => found !== file);
  return others.length === 0 ? file : undefined;
}

/** The files that globs find, relative to the folder. */
export async function foundBy(folder: string, definitions: readonly string[]): Promise<string[]> {
  const found = await findFiles(folder, definitions);
  return found.map((file) => path.relative(folder, file).replaceAll('\\', '/'));
}
