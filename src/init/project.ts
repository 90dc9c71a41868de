import { existsSync, readdirSync, readFileSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { type CompilerSettings, compilerSettingsOf } from '../codegen/tsconfig.ts';
import { TaskqError } from '../domain/errors.ts';

/** What is there before anything is written. */
export interface Project {
  readonly folder: string;
  readonly manifest: PackageManifest;
  readonly packageManager: PackageManager;
  /** The folder of the sources, relative, with forward slashes; `''` when they lie beside package.json. */
  readonly sources: string;
  readonly compiler: CompilerSettings | undefined;
  readonly hasWorkflows: boolean;
}

export interface PackageManifest {
  /** Absolute, symbolic links followed: a replaced link would part the file from its other name. */
  readonly file: string;
  readonly text: string;
  readonly isModule: boolean;
  readonly scripts: Readonly<Record<string, unknown>>;
  readonly dependencies: ReadonlySet<string>;
}

/** How the commands of a package manager are written. */
export interface PackageManager {
  /** Runs a script of package.json. */
  readonly run: string;
  /** Runs a program of a dependency. */
  readonly exec: string;
  readonly add: string;
  /** Lines of a workflow that install the dependencies as they are locked. */
  readonly install: readonly string[];
}

const NPM: PackageManager = { run: 'npm run', exec: 'npx', add: 'npm install', install: ['npm ci'] };
const NPM_WITHOUT_LOCK: PackageManager = { ...NPM, install: ['npm install'] };

const BY_LOCK_FILE: readonly (readonly [string, PackageManager])[] = [
  ['package-lock.json', NPM],
  [
    'pnpm-lock.yaml',
    {
      run: 'pnpm run',
      exec: 'pnpm exec',
      add: 'pnpm add',
      install: ['corepack enable', 'pnpm install --frozen-lockfile'],
    },
  ],
  [
    'yarn.lock',
    {
      run: 'yarn run',
      exec: 'yarn run',
      add: 'yarn add',
      install: ['corepack enable', 'yarn install --frozen-lockfile'],
    },
  ],
];

const SOURCE_FOLDER = 'src';
const SOURCE_FILE = /(?<!\.config|\.d)\.[cm]?[jt]sx?$/;

/**
 * Looks at the project in a folder.
 * @throws TaskqError `CONFIG_INVALID` when it has no package.json, or none that can be read;
 *   `CODEGEN_FAILED` when its tsconfig cannot be read
 */
export function readProject(folder: string): Project {
  const manifest = readManifest(folder);
  const compiler = compilerSettingsOf(folder);
  return {
    folder,
    manifest,
    packageManager:
      BY_LOCK_FILE.find(([name]) => existsSync(path.join(folder, name)))?.[1] ?? NPM_WITHOUT_LOCK,
    sources: sourcesFolder(folder, compiler),
    compiler,
    hasWorkflows: existsSync(path.join(folder, '.github', 'workflows')),
  };
}

function readManifest(folder: string): PackageManifest {
  const file = path.join(folder, 'package.json');
  if (!existsSync(file)) {
    throw invalid(
      `there is no package.json in ${folder}: go to the folder of a project, or run npm init first`,
    );
  }
  const text = readFileSync(file, 'utf8');
  let values: unknown;
  try {
    values = JSON.parse(text.replace(/^\uFEFF/, ''));
  } catch (cause) {
    throw invalid(`${file} is no JSON: ${(cause as Error).message}`, cause);
  }
  if (!isRecord(values)) throw invalid(`${file} holds no object`);
  const { type, scripts = {} } = values;
  if (!isRecord(scripts)) throw invalid(`${file}: its scripts are no object`);
  const dependencies = ['dependencies', 'devDependencies', 'peerDependencies'].flatMap((kind) =>
    Object.keys(isRecord(values[kind]) ? values[kind] : {}),
  );
  return {
    file: realpathSync(file),
    text,
    isModule: type === 'module',
    scripts,
    dependencies: new Set(dependencies),
  };
}

/** Where the compiler takes sources from, else where sources lie already; a project without any gets `src`. */
function sourcesFolder(folder: string, compiler: CompilerSettings | undefined): string {
  if (compiler?.rootDir !== undefined) {
    const relative = path.relative(folder, compiler.rootDir).replaceAll('\\', '/');
    if (relative !== '' && relative !== '..' && !relative.startsWith('../') && !path.isAbsolute(relative)) {
      return relative;
    }
  }
  if (existsSync(path.join(folder, SOURCE_FOLDER))) return SOURCE_FOLDER;
  const besideManifest = readdirSync(folder, { withFileTypes: true }).some(
    (entry) => entry.isFile() && SOURCE_FILE.test(entry.name),
  );
  return besideManifest ? '' : SOURCE_FOLDER;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function invalid(message: string, cause?: unknown): TaskqError {
  return new TaskqError('CONFIG_INVALID', message, { cause });
}
