import { readFileSync } from 'node:fs';
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { build, type Rollup } from 'vite';
import { afterAll, beforeAll, describe } from 'vitest';
import { administer } from '../support/databases.ts';
import { expect, test } from '../support/test.ts';
import {
  emptyDatabase,
  INSTALL_TIMEOUT_MS,
  npmInstall,
  packRepository,
  REPOSITORY,
  removedAfterTest,
  requireInstalled,
  runIn,
  startLine,
  temporaryFolder,
  writeFiles,
} from './installed.ts';

// A user's installation of the packed tarball, outside of the repository, with tasks of the user's own.

/** The compilers that a user may have, by the alias they are installed under. */
const COMPILERS = ['typescript-5.9', 'typescript-6', 'typescript'] as const;

/** The kinds of project: what package.json and tsconfig.json say, and how they write the import of a file. */
const PROJECTS = {
  'ESM and NodeNext': { type: 'module', compiler: { module: 'NodeNext' }, extension: '.js' },
  'CommonJS and NodeNext': { type: 'commonjs', compiler: { module: 'NodeNext' }, extension: '.js' },
  'ESM and bundler': {
    type: 'module',
    compiler: { module: 'ESNext', moduleResolution: 'bundler' },
    extension: '',
  },
} as const;

type ProjectKind = keyof typeof PROJECTS;
const KINDS = Object.keys(PROJECTS) as ProjectKind[];

/** Checking every declaration is slow: CommonJS, which only the oldest compiler could refuse, has that one alone. */
const COMPILED = KINDS.flatMap((kind) =>
  COMPILERS.filter((compiler) => PROJECTS[kind].type === 'module' || compiler === 'typescript-5.9').map(
    (compiler) => [kind, compiler] as const,
  ),
);

/** A sentence that stands in a handler only, so that it gives handler code away. */
const HANDLER_MARK = 'an invoice leaves the house';

/** What the user writes: a definition in TypeScript that needs a real loader, its handler, and who enqueues. */
const userFiles = (extension: string): Record<string, string> => ({
  'src/tasks/send-invoice.ts': `import { defineTask } from 'taskq';
import { z } from 'zod';

export enum Channel {
  Mail = 'mail',
  Post = 'post',
}

export const sendInvoice = defineTask({
  type: 'send_invoice',
  payload: z.strictObject({ id: z.bigint(), dueAt: z.date(), channel: z.enum(Channel).default(Channel.Mail) }),
  cursor: z.strictObject({ page: z.number().int() }),
  ceiling: '2m',
});
`,
  'src/handlers.ts': `import type { HandlerContext } from 'taskq';
import { defineHandlers } from './generated/tasks${extension}';
import { Channel } from './tasks/send-invoice${extension}';

export default defineHandlers({
  greet: async ({ name }, context: HandlerContext) => console.log(\`\${context.attempt}: hello, \${name}\`),
  send_invoice: async ({ id, dueAt, channel }, { cursor, advanceCursor }) => {
    if (channel !== Channel.Mail || !(dueAt instanceof Date)) throw new Error('not what was enqueued');
    if (cursor === undefined) {
      await advanceCursor({ page: 1 });
      return 'continue';
    }
    console.log(\`${HANDLER_MARK}: \${id + 1n} on page \${cursor.page}\`);
    return 'done';
  },
});
`,
  'src/producer.ts': `import type { Kysely } from 'kysely';
import { enqueue, enqueueGreet, type PayloadInput } from './generated/tasks${extension}';

interface Tables {
  invoices: { id: string };
}

export async function bill(db: Kysely<Tables>, invoice: PayloadInput<'send_invoice'>): Promise<string> {
  return db.transaction().execute(async (tx) => {
    const { id } = await enqueue(tx, 'send_invoice', invoice, { delay: '0s' });
    await enqueueGreet(tx, { name: 'Ada' });
    return id;
  });
}

// @ts-expect-error a wrong payload does not compile
export const wrong = (db: Kysely<Tables>) => enqueue(db, 'send_invoice', { id: 'seven' });
`,
  'application.ts': `import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { bill } from './src/producer${extension}';

async function main(): Promise<void> {
  const pool = new pg.Pool({ connectionString: process.env['DATABASE_URL'] });
  const db = new Kysely<{ invoices: { id: string } }>({ dialect: new PostgresDialect({ pool }) });
  await bill(db, { id: 6n, dueAt: new Date() });
  await db.destroy();
}

void main();
`,
});

let root: string;
let tarball: string;
let unreachable: string | undefined;

beforeAll(async () => {
  root = await temporaryFolder();
  tarball = await packRepository(root);
  await writeFiles(root, { 'package.json': '{ "name": "shop", "private": true }' });
  unreachable = await npmInstall(
    root,
    ...[tarball, 'kysely', 'pg', 'zod', '@types/pg@8', '@types/node@20'],
    ...['typescript@7.0.2', 'typescript-5.9@npm:typescript@5.9', 'typescript-6@npm:typescript@6'],
  );
  if (unreachable === undefined) for (const kind of KINDS) await makeProject(kind);
}, INSTALL_TIMEOUT_MS);

afterAll(() => rm(root, { recursive: true, force: true }));

/** One below the shared installation, set up by `taskq init` and then written on by its user. */
async function makeProject(kind: ProjectKind): Promise<void> {
  const folder = folderOf(kind);
  const { type, compiler, extension } = PROJECTS[kind];
  const compilerOptions = { ...compiler, target: 'ES2023', strict: true, noEmit: true, types: ['node'] };
  await mkdir(folder);
  await writeFiles(folder, {
    'package.json': JSON.stringify({ name: 'shop', type }),
    // Declarations that users' compilers skip are checked here.
    'tsconfig.json': JSON.stringify({ compilerOptions: { ...compilerOptions, skipLibCheck: false } }),
  });
  const initialised = await taskq(folder, ['init']);
  if (initialised.code !== 0) throw new Error(`taskq init in ${kind}: ${initialised.stderr}`);
  await writeFiles(folder, userFiles(extension));
  const generated = await taskq(folder, ['codegen', '--no-database-types']);
  if (generated.code !== 0) throw new Error(`taskq codegen in ${kind}: ${generated.stderr}`);
}

function folderOf(kind: ProjectKind): string {
  return path.join(root, kind.toLowerCase().replaceAll(' ', '-'));
}

function taskq(cwd: string, args: readonly string[], env: Record<string, string> = {}) {
  return runIn({ cwd, env }, ['npx', '--no-install', 'taskq', ...args]);
}

describe('installed from its tarball', () => {
  test.for(KINDS)(
    'a project in %s generates, migrates, enqueues and works',
    { timeout: INSTALL_TIMEOUT_MS },
    async (kind, { skip }) => {
      requireInstalled(unreachable, skip);
      const cwd = folderOf(kind);
      const url = await emptyDatabase(kind);
      const env = { DATABASE_URL: url };
      expect(await taskq(cwd, ['codegen', '--check'], env)).toMatchObject({ code: 0 });
      expect(await taskq(cwd, ['migrate', 'up'], env)).toMatchObject({ code: 0 });
      const greeting = ['enqueue', 'greet', '{"name":"Grace"}'];
      expect(await taskq(cwd, greeting, env)).toMatchObject({ code: 0, stdout: '1\n' });
      const jiti = path.join(root, 'node_modules/jiti/lib/jiti-cli.mjs');
      const application = await runIn({ cwd, env }, [process.execPath, jiti, 'application.ts']);
      expect(application).toMatchObject({ code: 0, stderr: '' });

      const worker = startLine({ cwd, env }, 'npx --no-install taskq work');
      await worker.until(/1: hello, Grace/);
      await worker.until(/1: hello, Ada/);
      await worker.until(new RegExp(`${HANDLER_MARK}: 7 on page 1`));
      await worker.until(/"taskType":"send_invoice".*"outcome":"success"/);
      worker.interrupt();
      await worker.ended();
      const { rows } = await administer(url, 'SELECT count(*)::int AS waiting FROM taskq.async_tasks');
      expect(rows).toEqual([{ waiting: 0 }]);
    },
  );

  test.for(COMPILED)(
    'a project in %s compiles with %s, declarations included',
    { timeout: INSTALL_TIMEOUT_MS },
    async ([kind, compiler], { skip }) => {
      requireInstalled(unreachable, skip);
      const program = path.join(root, 'node_modules', compiler, 'bin/tsc');
      const compiled = await runIn({ cwd: folderOf(kind) }, [process.execPath, program, '-p', '.']);
      expect(compiled).toMatchObject({ code: 0, stdout: '' });
    },
  );

  test('a bundle that only enqueues holds no handler, and nothing that runs or generates tasks', async ({
    skip,
  }) => {
    requireInstalled(unreachable, skip);
    const folder = folderOf('ESM and bundler');
    const modules = await bundledModules(path.join(folder, 'src/producer.ts'));
    const code = [...modules.values()].join('\n');
    expect(code).toContain('send_invoice');
    expect(code).not.toContain(HANDLER_MARK);
    const working = await bundledModules(path.join(folder, 'src/handlers.ts'));
    expect([...working.values()].join('\n')).toContain(HANDLER_MARK);

    const [own, packages] = partition([...modules.keys()], (id) => !id.includes('node_modules/'));
    expect(own.map((id) => path.relative(folder, id)).sort()).toEqual([
      'src/generated/tasks.ts',
      'src/producer.ts',
      'src/tasks/greet.ts',
      'src/tasks/send-invoice.ts',
    ]);
    const [taskqs, others] = partition(packages, (id) => id.includes('/node_modules/taskq/'));
    const parts = taskqs.map((id) => id.replace(/^.*\/node_modules\/taskq\/dist\//, ''));
    expect(parts).toContain('src/enqueue.js');
    // What takes part in an enqueue: the domain, the statements, the span around it, and the function itself.
    expect(parts.filter((part) => !/^src\/(enqueue\.js|domain\/|statements\/|tracing\/)/.test(part))).toEqual(
      [],
    );
    expect(parts.filter((part) => /claim|settle|discover|migrat/.test(part))).toEqual([]);
    const names = others.map((id) => /^.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1]);
    expect([...new Set(names)].sort()).toEqual(['@opentelemetry/api', 'kysely', 'zod']);
  });
});

describe('the tarball', () => {
  test(
    'is what publint and attw call clean',
    async ({ skip }) => {
      requireInstalled(unreachable, skip);
      const publint = path.join(REPOSITORY, 'node_modules/.bin/publint');
      expect(await runIn({ cwd: root }, [publint, '--strict', tarball])).toMatchObject({ code: 0 });
      const attw = ['npx', '--yes', '--prefer-offline', '@arethetypeswrong/cli@0.18.5'] as const;
      // Run in the repository, npx takes its own copy if there is one.
      const checked = await runIn({ cwd: REPOSITORY }, [...attw, '--profile', 'esm-only', tarball]);
      expect(checked, checked.stdout + checked.stderr).toMatchObject({ code: 0 });
    },
    INSTALL_TIMEOUT_MS,
  );

  test('holds the library, the program, the migrations and the licence, and nothing of the repository around them', async ({
    skip,
  }) => {
    requireInstalled(unreachable, skip);
    const files = await filesBelow(path.join(root, 'node_modules/taskq'));
    const migrations = (await readdir(path.join(REPOSITORY, 'sql'))).map((name) => `sql/${name}`);
    const text = ['CHANGELOG.md', 'LICENSE', 'README.md', 'package.json'];
    const monitoring = (await readdir(path.join(REPOSITORY, 'docs/monitoring'))).map(
      (name) => `docs/monitoring/${name}`,
    );
    expect(files.filter((file) => !file.startsWith('dist/')).sort()).toEqual(
      [...text, ...migrations, ...monitoring].sort(),
    );
    expect(files).toEqual(
      expect.arrayContaining(['dist/cli/main.js', 'dist/src/index.js', 'dist/src/index.d.ts']),
    );
    const repositoryOnly =
      /^dist\/(\.|test\/|src\/(demo|tasks|handlers|social)\/|generated\/(tasks\.|social))/;
    expect(
      files.filter(
        (file) =>
          repositoryOnly.test(file) ||
          !/\.(js|ts|map|md|sql|json|html|css|svg)$|LICENSE$|^docs\/monitoring\//.test(file),
      ),
    ).toEqual([]);
  });

  test('has no source map without its sources, and no module that names a missing map', async ({ skip }) => {
    requireInstalled(unreachable, skip);
    const folder = path.join(root, 'node_modules/taskq');
    const files = await filesBelow(folder);
    const present = new Set(files);
    const dangling = files.flatMap((file) => {
      const text = readFileSync(path.join(folder, file), 'utf8');
      const named = file.endsWith('.map')
        ? sourcesOf(text)
        : [...text.matchAll(/^\/\/# sourceMappingURL=(\S+)$/gm)].map(([, name = '']) => name);
      const missing = named.filter((name) => !present.has(path.posix.join(path.posix.dirname(file), name)));
      return missing.map((name) => `${file} → ${name}`);
    });
    expect(dangling).toEqual([]);
  });
});

test(
  'without the optional binaries all but dev and the types of the tables works, and those name the way out',
  async ({ skip }) => {
    // Not below the installation of the others, whose binaries would be found from there.
    const folder = removedAfterTest(await temporaryFolder());
    await writeFiles(folder, {
      'package.json': '{ "name": "shop", "type": "module" }',
      'tsconfig.json': '{ "compilerOptions": { "module": "NodeNext" } }',
    });
    requireInstalled(
      unreachable ?? (await npmInstall(folder, '--omit=optional', tarball, 'kysely', 'pg', 'zod')),
      skip,
    );
    const url = await emptyDatabase('without binaries');
    const env = { DATABASE_URL: url };
    const initialised = await taskq(folder, ['init']);
    expect(initialised).toMatchObject({ code: 0 });
    expect(initialised.stdout).toMatch(/^skipped +src\/generated\/db\.ts .*--scratch-database-url/m);
    expect(await taskq(folder, ['migrate', 'up'], env)).toMatchObject({ code: 0 });
    expect(await taskq(folder, ['enqueue', 'greet', '{"name":"Ada"}'], env)).toMatchObject({ code: 0 });
    expect(await taskq(folder, ['stats'], env)).toMatchObject({ code: 0 });
    const worker = startLine({ cwd: folder, env }, 'npx --no-install taskq work');
    await worker.until(/"outcome":"success"/);
    worker.interrupt();
    await worker.ended();

    const dev = await taskq(folder, ['dev']);
    expect(dev).toMatchObject({ code: 1, stdout: '' });
    expect(dev.stderr).toMatch(/is not installed; .*set DATABASE_URL.* \[EMBEDDED_UNAVAILABLE\]/);
    const codegen = await taskq(folder, ['codegen']);
    expect(codegen).toMatchObject({ code: 3 });
    expect(codegen.stderr).toMatch(/--scratch-database-url .*--no-database-types.* \[EMBEDDED_UNAVAILABLE\]/);
    expect(await taskq(folder, ['codegen', '--no-database-types'])).toMatchObject({ code: 0 });
    const onServer = ['codegen', '--scratch-database-url', url];
    const untyped = await taskq(folder, onServer);
    expect(untyped).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('install --save-dev typescript'),
    });
    requireInstalled(await npmInstall(folder, '--omit=optional', '--save-dev', 'typescript@7.0.2'), skip);
    expect(await taskq(folder, onServer)).toMatchObject({ code: 0 });
    expect(await readFile(path.join(folder, 'src/generated/db.ts'), 'utf8')).toContain(
      'interface AsyncTasks',
    );
  },
  INSTALL_TIMEOUT_MS,
);

/** Every module with code in the bundle of an entry, packages included, with that code. */
async function bundledModules(entry: string): Promise<Map<string, string>> {
  const built = (await build({
    root: path.dirname(entry),
    configFile: false,
    logLevel: 'silent',
    ssr: { noExternal: true },
    build: { ssr: entry, write: false, minify: false },
  })) as Rollup.RollupOutput;
  const modules = new Map<string, string>();
  for (const chunk of built.output) {
    if (chunk.type !== 'chunk') continue;
    for (const [id, { code }] of Object.entries(chunk.modules)) if (code) modules.set(id, code);
  }
  return modules;
}

function sourcesOf(map: string): string[] {
  const { sources, sourcesContent } = JSON.parse(map) as { sources: string[]; sourcesContent?: unknown[] };
  return sources.filter((_, at) => typeof sourcesContent?.[at] !== 'string');
}

async function filesBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)).replaceAll('\\', '/'))
    .filter((file) => !file.startsWith('node_modules/'));
}

function partition<Item>(items: readonly Item[], belongs: (item: Item) => boolean): [Item[], Item[]] {
  return [items.filter(belongs), items.filter((item) => !belongs(item))];
}
