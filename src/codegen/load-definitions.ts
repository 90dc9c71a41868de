import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { createJiti, type Jiti } from 'jiti';
import { TaskqError } from '../domain/errors.ts';
import { isTaskDefinition, type TaskDefinition } from '../domain/task-definition.ts';
import { findFiles, type ListFolder, normaliseGlob } from './glob.ts';
import { checkFunctionNames } from './identifiers.ts';
import { byCodeUnit } from './order.ts';
import { nearestTsconfig } from './tsconfig.ts';

/** A task definition and the export it can be imported by. */
export interface LoadedDefinition {
  readonly definition: TaskDefinition;
  /** As exported; `'default'` for a default export. */
  readonly exportName: string;
  /** Absolute. */
  readonly file: string;
}

export interface LoadOptions {
  readonly cwd: string;
  readonly definitions: readonly string[];
  /** Where generated files lie; they are not searched for definitions. */
  readonly outDir: string;
  readonly listFolder?: ListFolder;
}

const SOURCE_FILE = /(?<!\.d)\.[cm]?[jt]sx?$/;

/**
 * Loads the files that match the globs and answers their task definitions, sorted by type.
 * One definition exported from several files counts once; its first file in path order stands for it.
 * @throws TaskqError `CONFIG_INVALID` when no file matches; `CODEGEN_FAILED` for a file that throws while it is
 *   loaded, for two definitions of one type and for two types that ask for one function name, naming the files
 */
export async function loadDefinitions(options: LoadOptions): Promise<LoadedDefinition[]> {
  const files = await definitionFiles(options);
  const loader = new DefinitionLoader();
  const loaded = new Map<TaskDefinition, LoadedDefinition>();
  try {
    for (const file of files) {
      for (const [exportName, definition] of await loader.definitionsOf(file)) {
        if (!loaded.has(definition)) loaded.set(definition, { definition, exportName, file });
      }
    }
  } finally {
    loader.forget();
  }
  const definitions = [...loaded.values()].sort((a, b) => byCodeUnit(a.definition.type, b.definition.type));
  const named = definitions.map(({ definition, file }) => ({
    type: definition.type,
    file: path.relative(options.cwd, file),
  }));
  checkOneDefinitionEach(named);
  checkFunctionNames(named);
  return definitions;
}

async function definitionFiles({ cwd, definitions, outDir, listFolder }: LoadOptions): Promise<string[]> {
  const found = await findFiles(cwd, definitions, listFolder);
  const generated = path.resolve(cwd, outDir) + path.sep;
  const files = found.filter((file) => SOURCE_FILE.test(file) && !file.startsWith(generated));
  if (files.length > 0) return files;
  const globs = definitions.map((glob) => `'${normaliseGlob(glob)}'`).join(', ') || 'none given';
  throw new TaskqError('CONFIG_INVALID', `definitions: no source file in ${cwd} matches ${globs}`);
}

function checkOneDefinitionEach(definitions: readonly { type: string; file: string }[]): void {
  for (const [at, { type, file }] of definitions.entries()) {
    const before = definitions[at - 1];
    if (before?.type !== type) continue;
    const where = before.file === file ? `twice in ${file}` : `in ${before.file} and in ${file}`;
    throw new TaskqError('CODEGEN_FAILED', `task type '${type}' is defined ${where}`);
  }
}

/** Loads TypeScript as the user's own project would: path aliases from the tsconfig nearest to each file. */
class DefinitionLoader {
  readonly #loaders = new Map<string | undefined, Jiti>();
  readonly #known = new Set(Object.keys(createJiti(import.meta.url).cache));

  async definitionsOf(file: string): Promise<[string, TaskDefinition][]> {
    const module = await this.#load(file);
    // `default` by name: `module.exports = defineTask(…)` is a default import to everyone else.
    const names = new Set([...Object.keys(module), 'default']);
    // Node 23 and later add this name to what a CommonJS file exports; `default` is the same value everywhere.
    names.delete('module.exports');
    const found = [...names].flatMap((name): [string, TaskDefinition][] => {
      const value = module[name];
      return isTaskDefinition(value) ? [[name, value]] : [];
    });
    // A name of its own reads better in the generated file than `default`.
    const rank = (name: string) => (name === 'default' ? 1 : 0);
    return found.sort(([left], [right]) => rank(left) - rank(right) || byCodeUnit(left, right));
  }

  /** Drops what was loaded, so that the next run reads the files anew. */
  forget(): void {
    for (const loader of this.#loaders.values()) {
      for (const file of Object.keys(loader.cache)) {
        // Packages stay: they do not change between runs, and an addon cannot be loaded twice.
        const isPackage = /[\\/]node_modules[\\/]/.test(file);
        if (!isPackage && !this.#known.has(file)) delete loader.cache[file];
      }
    }
  }

  async #load(file: string): Promise<Readonly<Record<string, unknown>>> {
    try {
      // A file URL: a path with a drive letter is none, and `#` or `%` in a path would be misread.
      const module = await this.#loaderFor(file).import(pathToFileURL(file).href);
      return typeof module === 'object' && module !== null ? (module as Record<string, unknown>) : {};
    } catch (cause) {
      const message = cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause);
      throw new TaskqError('CODEGEN_FAILED', `${file} could not be loaded: ${message}`, { cause });
    }
  }

  #loaderFor(file: string): Jiti {
    const tsconfig = nearestTsconfig(path.dirname(file));
    let loader = this.#loaders.get(tsconfig);
    if (loader === undefined) {
      // One module cache for all of them: a definition reached by two ways must stay one object.
      loader = createJiti(tsconfig ?? file, {
        moduleCache: true,
        tsconfigPaths: tsconfig ?? false,
      });
      this.#loaders.set(tsconfig, loader);
    }
    return loader;
  }
}
