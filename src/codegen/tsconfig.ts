import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { TaskqError } from '../domain/errors.ts';

/** How a relative import is written: with the source's extension, the emitted one, or none. */
export type ImportExtension = '.ts' | '.js' | 'none';

interface CompilerOptions {
  readonly module?: string;
  readonly moduleResolution?: string;
  readonly rootDir?: string;
  readonly verbatimModuleSyntax?: boolean;
  readonly allowImportingTsExtensions?: boolean;
  readonly rewriteRelativeImportExtensions?: boolean;
}

/** The `tsconfig.json` that governs a folder: its own or the nearest above. */
export function nearestTsconfig(folder: string): string | undefined {
  for (let at = path.resolve(folder); ; at = path.dirname(at)) {
    const file = path.join(at, 'tsconfig.json');
    if (existsSync(file)) return file;
    if (path.dirname(at) === at) return undefined;
  }
}

/**
 * What imports in files below `folder` must look like to compile and to run.
 * @throws TaskqError `CODEGEN_FAILED` when the tsconfig, or one it extends, cannot be read
 */
export function importExtensionFor(folder: string): ImportExtension {
  const file = nearestTsconfig(folder);
  if (file === undefined) return '.js';
  const options = compilerOptions(file, []);
  const resolution = (options.moduleResolution ?? options.module ?? '').toLowerCase();
  // Bundlers and the older resolutions find a file without its extension, and some find it only so.
  if (!/^node(16|18|20|next)$/.test(resolution)) return 'none';
  const keepsSource =
    options.allowImportingTsExtensions === true || options.rewriteRelativeImportExtensions === true;
  return keepsSource ? '.ts' : '.js';
}

/** What a project's tsconfig says that a new file in it must fit. */
export interface CompilerSettings {
  /** In lower case; what `moduleResolution` says, else what `module` does. */
  readonly resolution: string | undefined;
  /** Absolute: the one folder that the compiler takes sources from. */
  readonly rootDir: string | undefined;
  readonly verbatimModuleSyntax: boolean;
}

/**
 * Of the tsconfig that governs `folder`; undefined when there is none.
 * @throws TaskqError `CODEGEN_FAILED` when the tsconfig, or one it extends, cannot be read
 */
export function compilerSettingsOf(folder: string): CompilerSettings | undefined {
  const file = nearestTsconfig(folder);
  if (file === undefined) return undefined;
  const { module, moduleResolution, rootDir, verbatimModuleSyntax } = compilerOptions(file, []);
  return {
    resolution: (moduleResolution ?? module)?.toLowerCase(),
    rootDir,
    verbatimModuleSyntax: verbatimModuleSyntax === true,
  };
}

function compilerOptions(file: string, chain: readonly string[]): CompilerOptions {
  if (chain.includes(file)) {
    throw new TaskqError('CODEGEN_FAILED', `${file} extends itself: ${[...chain, file].join(' → ')}`);
  }
  let config: { extends?: string | string[]; compilerOptions?: CompilerOptions };
  try {
    config = JSON.parse(plainJson(readFileSync(file, 'utf8'))) as typeof config;
  } catch (cause) {
    throw new TaskqError('CODEGEN_FAILED', `${file} cannot be read: ${(cause as Error).message}`, { cause });
  }
  const bases = config.extends === undefined ? [] : [config.extends].flat();
  const inherited = bases.map((base) => compilerOptions(resolveBase(file, base), [...chain, file]));
  const own = config.compilerOptions ?? {};
  // Relative to the file that says it, which may be an inherited one.
  const rootDir = own.rootDir === undefined ? {} : { rootDir: path.resolve(path.dirname(file), own.rootDir) };
  return Object.assign({}, ...inherited, own, rootDir) as CompilerOptions;
}

function resolveBase(file: string, base: string): string {
  if (path.isAbsolute(base) || /^\.\.?([/\\]|$)/.test(base)) {
    const resolved = path.resolve(path.dirname(file), base);
    return existsSync(resolved) && resolved.endsWith('.json') ? resolved : `${resolved}.json`;
  }
  const require = createRequire(file);
  for (const candidate of [base, `${base}.json`, `${base}/tsconfig.json`]) {
    try {
      const resolved = require.resolve(candidate);
      if (resolved.endsWith('.json')) return resolved;
    } catch {
      // The next form of the name may exist.
    }
  }
  throw new TaskqError('CODEGEN_FAILED', `${file} extends '${base}', which is not installed`);
}

/** A tsconfig may hold comments and trailing commas; text inside strings is left alone. */
function plainJson(text: string): string {
  return text
    .replace(/^\uFEFF/, '')
    .replace(/("(?:[^"\\]|\\.)*")|\/\/[^\n]*|\/\*[\s\S]*?\*\//g, (_, string?: string) => string ?? '')
    .replace(/("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])/g, (_, string?: string) => string ?? '');
}
