import { randomBytes } from 'node:crypto';
import { existsSync, lstatSync } from 'node:fs';
import { mkdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { type CodegenOptions, type CodegenReport, runCodegen } from '../codegen/codegen.ts';
import { importExtensionFor } from '../codegen/tsconfig.ts';
import type { ConfigSources } from '../config.ts';
import { TaskqError } from '../domain/errors.ts';
import { FIRST_TASK, foundBy, type Layout, layoutOf } from './layout.ts';
import { type PackageManifest, type Project, readProject } from './project.ts';
import {
  ciCommand,
  FIRST_PAYLOAD,
  renderConfig,
  renderFirstTask,
  renderHandlers,
  renderWorkflow,
  SCRIPTS,
  withScripts,
} from './render.ts';

// No file that exists is written to, whatever it holds: what is there is the user's, and a second run changes
// nothing. The one exception is package.json, which only gains scripts that it does not have.

export interface InitOptions {
  /** Where the project is looked for, and its configuration. */
  readonly sources: ConfigSources;
  /** Write a workflow even where there are none yet. */
  readonly ci: boolean;
  /** Write nothing; answer what would be. */
  readonly dryRun: boolean;
  readonly onProgress?: (message: string) => void;
}

/**
 * `kept`: it was there and is as it was. `planned`: a dry run would have written it. `skipped`: this machine cannot
 * make it, and a first task does without. `failed`: its note says why.
 */
export type InitStatus = 'written' | 'kept' | 'planned' | 'skipped' | 'failed';

export interface InitEntry {
  /** Relative to the project. */
  readonly path: string;
  readonly status: InitStatus;
  readonly note?: string;
}

export interface InitReport {
  readonly dryRun: boolean;
  readonly files: readonly InitEntry[];
  readonly scripts: readonly {
    readonly name: string;
    readonly command: string;
    readonly status: InitStatus;
  }[];
  /** What a CI should run, when no workflow says so. */
  readonly ciStep: string | undefined;
  readonly warnings: readonly string[];
  /** The commands from here to the first drained task. */
  readonly next: readonly string[];
}

/** What a project needs beside taskq to enqueue and to work. */
const PACKAGES = ['taskq', 'kysely', 'pg', 'zod'];

/** What the code generator writes. */
const GENERATED_FILES = ['tasks.ts', 'payloads.json', 'db.ts'];

/**
 * Sets taskq up in a project: a configuration, a first task with its handler, the generated files, scripts and
 * a step for CI. Nothing that exists is overwritten.
 * @throws TaskqError `CONFIG_INVALID` without a usable package.json or with an unusable configuration;
 *   `CODEGEN_FAILED` when the tsconfig cannot be read. A file that cannot be written throws the system's error.
 */
export async function runInit(options: InitOptions): Promise<InitReport> {
  const { dryRun, sources, ci } = options;
  const project = readProject(sources.cwd);
  const layout = await layoutOf(project, sources);
  const files: InitEntry[] = [];
  for (const [file, text] of texts(project, layout)) {
    files.push(await writeNew(project.folder, file, text, dryRun));
  }
  const scripts = await addScripts(project.manifest, dryRun);
  if (scripts.some(({ status }) => status !== 'kept')) {
    files.push({ path: 'package.json', status: dryRun ? 'planned' : 'written', note: 'scripts added' });
  }
  const withWorkflow = ci || project.hasWorkflows;
  if (withWorkflow) {
    const text = renderWorkflow(project.packageManager);
    files.push(await writeNew(project.folder, '.github/workflows/taskq.yml', text, dryRun));
  }
  const generated = await generate(project, layout, files, options);
  return {
    dryRun,
    files: [...files, ...generated],
    scripts,
    ciStep: withWorkflow ? undefined : ciCommand(project.packageManager),
    warnings: warningsOf(project, layout),
    next: nextCommands(project, layout, [...files, ...generated]),
  };
}

function texts(project: Project, layout: Layout): [file: string, text: string][] {
  const { folder } = project;
  const { config, firstTask, handlers } = layout;
  const extension = importExtensionFor(path.dirname(path.resolve(folder, handlers)));
  const isComplete = firstTask === undefined;
  return [
    [config, renderConfig(layout)],
    ...(isComplete
      ? []
      : ([
          [firstTask, renderFirstTask()],
          [handlers, renderHandlers(folder, layout, extension)],
        ] satisfies [string, string][])),
  ];
}

async function writeNew(folder: string, name: string, text: string, dryRun: boolean): Promise<InitEntry> {
  const file = path.resolve(folder, name);
  if (isThere(file)) return { path: name, status: 'kept' };
  if (dryRun) return { path: name, status: 'planned' };
  await mkdir(path.dirname(file), { recursive: true });
  try {
    // Exclusive: a file that came since the look is kept as well.
    await writeFile(file, text, { flag: 'wx' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return { path: name, status: 'kept' };
    throw error;
  }
  return { path: name, status: 'written' };
}

/** A link that leads nowhere is there too. */
function isThere(file: string): boolean {
  return lstatSync(file, { throwIfNoEntry: false }) !== undefined;
}

async function addScripts(manifest: PackageManifest, dryRun: boolean): Promise<InitReport['scripts']> {
  const scripts = Object.entries(SCRIPTS).map(([name, command]) => {
    const present = manifest.scripts[name];
    if (present !== undefined) return { name, command: String(present), status: 'kept' as const };
    return { name, command, status: dryRun ? ('planned' as const) : ('written' as const) };
  });
  const missing = scripts.filter(({ status }) => status === 'written');
  if (missing.length > 0) {
    const added = Object.fromEntries(missing.map(({ name, command }) => [name, command]));
    await replace(manifest.file, withScripts(manifest, added));
  }
  return scripts;
}

/** By rename: half a package.json would break every command of the project. */
async function replace(file: string, text: string): Promise<void> {
  const fresh = `${file}.${randomBytes(4).toString('hex')}.tmp`;
  try {
    await writeFile(fresh, text, { flag: 'wx', mode: (await stat(file)).mode });
    await rename(fresh, file);
  } finally {
    await rm(fresh, { force: true });
  }
}

/**
 * The generated files, when none of them is there and the only definition is the one just written: loading
 * anything else would run the user's code.
 */
async function generate(
  project: Project,
  layout: Layout,
  files: readonly InitEntry[],
  { dryRun, onProgress = () => {} }: InitOptions,
): Promise<InitEntry[]> {
  const { folder } = project;
  const places = GENERATED_FILES.map((name) => path.posix.join(layout.out, name));
  const present = places.filter((name) => existsSync(path.resolve(folder, name)));
  if (present.length > 0) return present.map((name) => ({ path: name, status: 'kept' }));
  const isFirst = files.some(({ path: file, status }) => file === layout.firstTask && status !== 'kept');
  if (!isFirst) return [];
  if (dryRun) return places.map((name) => ({ path: name, status: 'planned' }));
  const others = (await foundBy(folder, layout.definitions)).filter((file) => file !== layout.firstTask);
  if (others.length > 0) return [];
  const { runtime, schema, definitions, out: outDir } = layout;
  const codegen = { cwd: folder, definitions, outDir, runtime, schema, onProgress };
  try {
    return await madeWithTypes(codegen);
  } catch (error) {
    // The rest is written already and has to be reported.
    if (!(error instanceof TaskqError)) throw error;
    return [{ path: layout.out, status: 'failed', note: error.message }];
  }
}

/** The types of the tables take a server and TypeScript; what is made without them is all that a task needs. */
async function madeWithTypes(codegen: CodegenOptions & { readonly outDir: string }): Promise<InitEntry[]> {
  const written = ({ files }: CodegenReport): InitEntry[] =>
    files.map(({ path: file }) => ({ path: file, status: 'written' }));
  try {
    return written(await runCodegen(codegen));
  } catch (error) {
    if (!(error instanceof TaskqError)) throw error;
    const made = written(await runCodegen({ ...codegen, withDatabaseTypes: false }));
    return [
      ...made,
      { path: path.posix.join(codegen.outDir, 'db.ts'), status: 'skipped', note: error.message },
    ];
  }
}

function warningsOf({ manifest, compiler }: Project, { config, firstTask }: Layout): string[] {
  const warnings: string[] = [];
  if (firstTask === undefined) {
    warnings.push(
      `${config} finds task definitions of yours, or in a way of its own: no first task was written`,
    );
  }
  if (compiler === undefined) return warnings;
  if (compiler.verbatimModuleSyntax && !manifest.isModule) {
    warnings.push(
      'tsconfig.json has verbatimModuleSyntax, under which a .ts file of a CommonJS project holds no import: ' +
        'add "type": "module" to package.json, or switch it off',
    );
  }
  if (['node', 'node10', 'classic'].includes(compiler.resolution ?? '')) {
    warnings.push(
      `tsconfig.json resolves modules by '${compiler.resolution}', which does not read the exports of packages: ` +
        'set "module": "NodeNext", or "moduleResolution": "bundler"',
    );
  }
  return warnings;
}

function nextCommands(project: Project, layout: Layout, files: readonly InitEntry[]): string[] {
  const { packageManager, manifest } = project;
  const statusOf = (name: string) => files.find(({ path: file }) => file === name)?.status;
  const tasks = statusOf(path.posix.join(layout.out, 'tasks.ts'));
  const missing = PACKAGES.filter((name) => !manifest.dependencies.has(name));
  // What was there before a task came does not know it.
  const isOld = tasks === 'kept' && layout.firstTask !== undefined && statusOf(layout.firstTask) !== 'kept';
  const isGenerated = tasks !== undefined && !isOld;
  return [
    ...(missing.length === 0 ? [] : [`${packageManager.add} ${missing.join(' ')}`]),
    ...(isGenerated ? [] : [`${packageManager.run} taskq:codegen`]),
    `${packageManager.run} taskq:migrate`,
    ...(layout.firstTask === undefined
      ? []
      : [`${packageManager.exec} taskq enqueue ${FIRST_TASK} '${FIRST_PAYLOAD}'`]),
    `${packageManager.run} taskq:work`,
  ];
}
