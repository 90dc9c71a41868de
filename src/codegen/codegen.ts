import { existsSync } from 'node:fs';
import path from 'node:path';
import { TaskqError } from '../domain/errors.ts';
import { renderDatabaseTypes } from './db-types.ts';
import { type EmittedFile, emit, type GeneratedFile, readGenerated } from './emit.ts';
import type { ListFolder } from './glob.ts';
import { type LoadedDefinition, loadDefinitions } from './load-definitions.ts';
import { type Manifest, nextManifest, parseManifest, renderManifest } from './manifest.ts';
import { readMigrations } from './read-migrations.ts';
import { type MigrationSource, renderMigrations } from './render-migrations.ts';
import { importSpecifier, renderTasks } from './render-tasks.ts';
import {
  type AcceptRequest,
  acceptSteps,
  findCautions,
  findProblems,
  type RevisionProblem,
} from './revisions.ts';
import { type ImportExtension, importExtensionFor } from './tsconfig.ts';

export interface CodegenOptions {
  /** What every relative path below is relative to. */
  readonly cwd: string;
  /** Globs of the files that hold task definitions: `['src/tasks/**\/*.ts']`; `!` negates. */
  readonly definitions: readonly string[];
  /** Default `'generated'`. */
  readonly outDir?: string;
  /** What the generated code imports taskq by: a package, or an existing file. Default `'taskq'`. */
  readonly runtime?: string;
  /** The PostgreSQL schema that the rows live in. Default `'taskq'`. */
  readonly schema?: string;
  /** The longest payload that the generated enqueue functions take, in bytes. Default 1 MiB. */
  readonly maxPayloadBytes?: number | undefined;
  /** Default: as the tsconfig nearest to `outDir` asks. */
  readonly importExtension?: ImportExtension;
  /** Write nothing; answer what would change. Default false. */
  readonly check?: boolean;
  /** Breaking payload changes that need no upgrade; why is recorded in the manifest. Not with `check`. */
  readonly accept?: readonly AcceptRequest[];
  /** Whether to make `db.ts`, which takes a database. Default true. */
  readonly withDatabaseTypes?: boolean;
  /** A server for `db.ts` instead of the embedded one; a scratch schema is made on it and dropped. */
  readonly scratchDatabaseUrl?: string;
  /** A folder of SQL migrations: makes `migrations.ts` too, and `db.ts` from these. For taskq itself. */
  readonly migrationsDir?: string;
  readonly onProgress?: (message: string) => void;
  readonly listFolder?: ListFolder;
}

export interface CodegenReport {
  readonly files: readonly EmittedFile[];
  /** Whether the files on disk were already what they should be. */
  readonly upToDate: boolean;
  /** Payload changes that rows might not survive. While there are any, nothing is written. */
  readonly problems: readonly RevisionProblem[];
  /** What the new revisions look at that earlier ones let pass unseen; a line each. */
  readonly cautions: readonly string[];
  readonly tasks: readonly {
    readonly type: string;
    readonly revision: number;
    /** Relative to `cwd`. */
    readonly file: string;
    readonly exportName: string;
  }[];
}

/**
 * Makes `tasks.ts`, `payloads.json` and `db.ts` from the task definitions. All is rendered before anything is
 * written, so a failure leaves the files as they were. So does a payload change that breaks without an upgrade and
 * was not accepted: were the manifest written, the change would no longer be one.
 * @throws TaskqError `CONFIG_INVALID` when no file matches; `OPTION_INVALID` for an acceptance of nothing;
 *   `CODEGEN_FAILED` for definitions, a manifest, a tsconfig
 *   or a file that cannot be used; `EMBEDDED_UNAVAILABLE` and `MIGRATION_FAILED` from making the database types
 */
export async function runCodegen(options: CodegenOptions): Promise<CodegenReport> {
  const { accept = [], cwd, check = false, onProgress = () => {} } = options;
  if (check && accept.length > 0) {
    throw new TaskqError('OPTION_INVALID', 'accept: a check writes nothing; accept without it');
  }
  const outDir = path.resolve(cwd, options.outDir ?? 'generated');
  onProgress('loading task definitions');
  const loaded = await loadDefinitions({ ...options, outDir });
  const definitions = loaded.map(({ definition }) => definition);
  const manifestFile = path.join(outDir, 'payloads.json');
  const committed = parseManifest((await readGenerated(manifestFile)) ?? '{}', manifestFile);
  const manifest = acceptSteps(definitions, nextManifest(committed, definitions), accept);
  const problems = findProblems(definitions, manifest);
  const files: GeneratedFile[] = [
    { path: path.join(outDir, 'tasks.ts'), text: tasksText(loaded, manifest, outDir, options) },
    { path: manifestFile, text: renderManifest(manifest) },
    // Made last and not in vain: it takes a database.
    ...(problems.length > 0 && !check ? [] : await databaseFiles(outDir, options)),
  ];
  const emitted = await emit(files, { cwd, check: check || problems.length > 0 });
  return {
    files: emitted,
    upToDate: emitted.every(({ status }) => status === 'unchanged'),
    problems,
    cautions: findCautions(committed, manifest),
    tasks: loaded.map(({ definition: { type }, exportName, file }) => ({
      type,
      revision: manifest.get(type)?.revision ?? 1,
      file: path.relative(cwd, file).replaceAll('\\', '/'),
      exportName,
    })),
  };
}

function tasksText(
  definitions: readonly LoadedDefinition[],
  manifest: Manifest,
  outDir: string,
  options: CodegenOptions,
): string {
  const importExtension = options.importExtension ?? importExtensionFor(outDir);
  return renderTasks(definitions, manifest, {
    globs: options.definitions.map((glob) => relativeGlob(options.cwd, glob)),
    outDir,
    runtime: runtimeSpecifier(options, outDir, importExtension),
    schema: options.schema ?? 'taskq',
    maxPayloadBytes: options.maxPayloadBytes,
    importExtension,
  });
}

/** A file is imported by its way from `outDir`; anything else is a package's name. */
function runtimeSpecifier(options: CodegenOptions, outDir: string, extension: ImportExtension): string {
  const { cwd, runtime = 'taskq' } = options;
  // No package is imported by a name that ends in `.ts`.
  if (!runtime.startsWith('.') && !path.isAbsolute(runtime) && !/\.[cm]?tsx?$/.test(runtime)) return runtime;
  const file = path.resolve(cwd, runtime);
  if (existsSync(file)) return importSpecifier(outDir, file, extension);
  throw new TaskqError('CONFIG_INVALID', `runtime: ${file} does not exist`);
}

/** An absolute glob would put one machine's folders into the header. */
function relativeGlob(cwd: string, glob: string): string {
  const [negation, pattern] = glob.startsWith('!') ? ['!', glob.slice(1)] : ['', glob];
  return negation + (path.isAbsolute(pattern) ? path.relative(cwd, pattern) : pattern);
}

async function databaseFiles(outDir: string, options: CodegenOptions): Promise<GeneratedFile[]> {
  const { cwd, migrationsDir, onProgress, scratchDatabaseUrl, withDatabaseTypes = true } = options;
  const files: GeneratedFile[] = [];
  let migrations: MigrationSource[] | undefined;
  if (migrationsDir !== undefined) {
    migrations = await readMigrations(path.resolve(cwd, migrationsDir));
    files.push({ path: path.join(outDir, 'migrations.ts'), text: renderMigrations(migrations) });
  }
  if (withDatabaseTypes) {
    const text = await renderDatabaseTypes({
      ...(scratchDatabaseUrl === undefined ? {} : { scratchDatabaseUrl }),
      ...(migrations === undefined ? {} : { migrations }),
      ...(onProgress === undefined ? {} : { onProgress }),
    });
    files.push({ path: path.join(outDir, 'db.ts'), text });
  }
  return files;
}
