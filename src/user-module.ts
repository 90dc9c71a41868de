import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { nearestTsconfig } from './codegen/tsconfig.ts';

const TYPESCRIPT = /\.[cm]?tsx?$/;

/**
 * Loads a module of the user's: TypeScript with jiti, which follows the `paths` of the nearest tsconfig;
 * JavaScript as Node itself would. Whatever the module throws passes through.
 * @param file absolute
 */
export async function loadUserModule(file: string): Promise<Readonly<Record<string, unknown>>> {
  const module: unknown = TYPESCRIPT.test(file) ? await loadTypeScript(file) : await import(urlOf(file));
  return typeof module === 'object' && module !== null ? (module as Record<string, unknown>) : {};
}

async function loadTypeScript(file: string): Promise<unknown> {
  // Loaded only here: whoever imports taskq to enqueue has no use for a TypeScript loader.
  const { createJiti } = await import('jiti');
  const tsconfig = nearestTsconfig(path.dirname(file));
  return createJiti(tsconfig ?? file, { tsconfigPaths: tsconfig ?? false }).import(urlOf(file));
}

/** A file URL: a path with a drive letter is none, and `#` or `%` in a path would be misread. */
function urlOf(file: string): string {
  return pathToFileURL(file).href;
}
