import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll } from 'vitest';
import { runCodegen } from '../../src/codegen/codegen.ts';
import { enqueueFunctionName } from '../../src/codegen/identifiers.ts';
import { defineTask } from '../../src/domain/task-definition.ts';
import { describe, expect, TEST_SCHEMA, test } from '../support/test.ts';
import { REPOSITORY, taskFile, tasksFile, writeFiles } from './project.ts';

const run = promisify(execFile);

// Projects of users: they have the built package in node_modules, and everything it needs beside it.
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'taskq-generated-code-'));
  const packages = path.join(folder, 'node_modules');
  const own = path.join(packages, 'taskq');
  await mkdir(own, { recursive: true });
  await cp(path.join(REPOSITORY, 'package.json'), path.join(own, 'package.json'));
  for (const name of await readdir(path.join(REPOSITORY, 'node_modules'))) {
    if (name !== 'taskq' && !name.startsWith('.')) {
      await symlink(path.join(REPOSITORY, 'node_modules', name), path.join(packages, name));
    }
  }
  // Only what it emits counts here; whether this repository's types hold is asked elsewhere.
  await tsc(REPOSITORY, '-p', 'tsconfig.build.json', '--outDir', path.join(own, 'dist'));
});

afterAll(() => rm(folder, { recursive: true, force: true }));

/** What the compiler complains about. */
async function tsc(cwd: string, ...words: string[]): Promise<string> {
  const compiler = path.join(REPOSITORY, 'node_modules/typescript/bin/tsc');
  return run(process.execPath, [compiler, ...words], { cwd }).then(
    ({ stdout }) => stdout,
    ({ stdout, message }: { stdout?: string; message: string }) => stdout || message,
  );
}

const STRICT = {
  target: 'ES2023',
  lib: ['ES2023'],
  types: ['node'],
  strict: true,
  noUncheckedIndexedAccess: true,
  exactOptionalPropertyTypes: true,
  noPropertyAccessFromIndexSignature: true,
  noUnusedLocals: true,
  noUnusedParameters: true,
  isolatedModules: true,
  verbatimModuleSyntax: true,
  skipLibCheck: true,
  declaration: true,
  outDir: 'out',
  rootDir: '.',
};

async function makeUserProject(
  name: string,
  files: Readonly<Record<string, string>>,
  compilerOptions: object = { module: 'NodeNext' },
): Promise<string> {
  const project = path.join(folder, name);
  await writeFiles(project, {
    'package.json': '{ "type": "module" }',
    'tsconfig.json': JSON.stringify({ compilerOptions: { ...STRICT, ...compilerOptions } }),
    ...files,
  });
  return project;
}

/** Every name that somebody may think of, and those that once broke a generator. */
const NAMES = [
  ...[
    'class',
    'default',
    'delete',
    'new',
    'await',
    'enum',
    'any',
    'many',
    'constructor',
    '__proto__',
    '2fa',
    '0',
  ],
  ...[
    '10',
    '9',
    'a-b',
    'a b',
    'a.b',
    'cron:purge',
    'a/b',
    'ünï',
    '日本',
    '😀',
    "a'b",
    'a"b',
    'a\\b',
    'toString',
  ],
  ...[
    'a`$' + '{1+1}b',
    '*/ export {}; /*',
    "x'];process.exit(1);//",
    '<!-- -->',
    '#',
    '\u{1d4b3}',
    'ſ',
    'ıİ',
  ],
];

/** Names that no definition may have. */
const REFUSED = ['', ' ', 'a\nb', 'a\rb', 'a\u2028b', 'a\0b', '\ud800', 'n'.repeat(300)];

/** Groups in which no two names ask for one function. */
function compatible(names: readonly string[]): string[][] {
  const groups: string[][] = [];
  for (const name of names) {
    const asked = enqueueFunctionName(name);
    const group = groups.find((others) => others.every((other) => enqueueFunctionName(other) !== asked));
    if (group === undefined) groups.push([name]);
    else group.push(name);
  }
  return groups;
}

/** A program that enqueues every name by both ways, and has a handler for each. */
function programFor(groups: readonly (readonly string[])[]): string {
  const lines = groups.flatMap((names, at) => [
    ...names.flatMap((name, index) => [
      `await g${at}.enqueue(tx, ${JSON.stringify(name)}, 'by name');`,
      `await g${at}.${enqueueFunctionName(name)}(tx, 'by function', { headers: { at: '${index}' } });`,
    ]),
    `sizes.push(g${at}.defineHandlers({${names.map((name) => `[${JSON.stringify(name)}]: async () => {}`).join()}}).size);`,
  ]);
  return [
    `import { Kysely, PostgresDialect } from 'kysely';`,
    `import pg from 'pg';`,
    ...groups.map((_, at) => `import * as g${at} from './generated${at}/tasks.js';`),
    `const pool = new pg.Pool({ connectionString: process.env['URL'] });`,
    'const db = new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) });',
    'const sizes: number[] = [];',
    'await db.transaction().execute(async (tx) => {',
    ...lines,
    '});',
    'await db.destroy();',
    'console.log(JSON.stringify(sizes));',
  ].join('\n');
}

describe('a hostile task name', () => {
  test('either is refused where it is defined, or compiles and runs as exactly that name', async ({
    database,
    db,
  }) => {
    const groups = compatible(NAMES);
    const sources = groups.map((names, at) => [
      `tasks${at}.ts`,
      tasksFile(names.map((type, index) => ({ name: `t${index}`, type }))),
    ]);
    const project = await makeUserProject('names', Object.fromEntries(sources));
    expect(sources.length).toBeGreaterThan(1);
    for (const at of groups.keys()) {
      const options = { outDir: `generated${at}`, schema: TEST_SCHEMA, withDatabaseTypes: false };
      const report = await runCodegen({ cwd: project, definitions: [`tasks${at}.ts`], ...options });
      expect(report.tasks).toHaveLength(groups[at]?.length ?? 0);
    }
    await writeFiles(project, { 'main.ts': programFor(groups) });
    expect(await tsc(project)).toBe('');
    const { stdout } = await run(process.execPath, ['out/main.js'], {
      cwd: project,
      env: { ...process.env, URL: database.url },
    });
    expect(JSON.parse(stdout)).toEqual(groups.map((names) => names.length));
    const rows = await db.selectFrom('async_tasks').select('task_type').execute();
    const twice = [...NAMES, ...NAMES];
    expect(rows.map((row) => row.task_type).toSorted()).toEqual(twice.toSorted());
  });

  test.each(REFUSED.map((name) => [name]))('%j is refused where it is defined', async (type) => {
    const { z } = await import('zod');
    const define = () => defineTask({ type, payload: z.string(), ceiling: '1m' });
    expect(define).toThrow(expect.objectContaining({ code: 'DEFINITION_INVALID' }));
  });
});

describe('the generated module compiles', () => {
  test('for no task types at all, where every enqueue is an error of types', async () => {
    const project = await makeUserProject('empty', {
      'tasks.ts': 'export {};',
      'main.ts': [
        `import { defineHandlers, enqueue, enqueueMany, type TaskType } from './generated/tasks.js';`,
        'declare const tx: never;',
        'export const none: TaskType[] = [];',
        `// @ts-expect-error no type is registered`,
        `void enqueue(tx, 'anything', {});`,
        `// @ts-expect-error no type is registered`,
        `void enqueue(tx, 'anything' as string, {});`,
        `// @ts-expect-error no type is registered`,
        `void enqueueMany(tx, 'anything', []);`,
        'defineHandlers({});',
        `// @ts-expect-error no type is registered`,
        'defineHandlers({ anything: () => {} });',
      ].join('\n'),
    });
    await runCodegen({ cwd: project, definitions: ['tasks.ts'], withDatabaseTypes: false });
    expect(await tsc(project)).toBe('');
  });

  test.each<[string, object]>([
    ['NodeNext', { module: 'NodeNext' }],
    ['NodeNext with .ts imports', { module: 'NodeNext', allowImportingTsExtensions: true, noEmit: true }],
    ['NodeNext, rewriting', { module: 'NodeNext', rewriteRelativeImportExtensions: true }],
    ['a bundler', { module: 'ESNext', moduleResolution: 'bundler' }],
    ['CommonJS', { module: 'CommonJS', moduleResolution: 'bundler', verbatimModuleSyntax: false }],
  ])('under %s, from every kind of source, with the row types', async (name, compilerOptions) => {
    const project = await makeUserProject(
      `module settings ${name.replaceAll(/\W/g, '')} ü+`,
      {
        'src/tasks/plain.ts': taskFile('plain', 'plain', 'z.object({ at: z.coerce.date() })'),
        'src/tasks/esm.mts': taskFile(
          'esm',
          'esm',
          "z.discriminatedUnion('k', [z.object({ k: z.literal(1) })])",
        ),
        'src/tasks/view.tsx': taskFile('view', 'view'),
        'src/main.ts': '',
      },
      { jsx: 'preserve', ...compilerOptions },
    );
    await cp(path.join(REPOSITORY, 'generated/db.ts'), path.join(project, 'generated/db.ts'));
    await runCodegen({ cwd: project, definitions: ['src/tasks/*'], withDatabaseTypes: false });
    expect(await tsc(project)).toBe('');
  });
});

test('an upgrade is typed by the revision before it, in a definition that imports nothing generated', async () => {
  const source = (payload: string, upgrade = '') =>
    taskFile('purge', 'cron:purge', `z.object({ ${payload} })${upgrade}`);
  const project = await makeUserProject('upgrades', {
    'tasks/purge.ts': source('id: z.string(), at: z.date(), note: z.string().default("")'),
  });
  const generate = () => runCodegen({ cwd: project, definitions: ['tasks/*'], withDatabaseTypes: false });
  await generate();
  const upgraded = (body: string) => source('id: z.bigint()', `, upgrades: { 2: (old) => (${body}) }`);
  const fitting = '{ id: BigInt(old.id.length + old.at.getTime() + (old.note?.length ?? 0)) }';
  await writeFiles(project, { 'tasks/purge.ts': upgraded(fitting) });
  // Before and after the revision is made: the one that the next upgrade starts from is always there.
  expect(await tsc(project)).toBe('');
  expect(await generate()).toMatchObject({ problems: [], tasks: [{ revision: 2 }] });
  expect(await tsc(project)).toBe('');
  await writeFiles(project, { 'tasks/purge.ts': upgraded('{ id: old.id * 2 + old.name }') });
  expect(await tsc(project)).toMatch(/TS2362[\s\S]*TS2339: Property 'name' does not exist/);
});

test('the bytes do not depend on the locale', async () => {
  const files = ['i', 'I', 'ı', 'İ', 'z', 'Z', 'ä', 'a'].map((type, at) => [
    `tasks/${at}.ts`,
    taskFile(`task${at}`, `${type}_${at}`),
  ]);
  const project = await makeUserProject('locale', {
    ...Object.fromEntries(files),
    'generate.mjs': [
      `import { runCodegen } from '../node_modules/taskq/dist/src/codegen/codegen.js';`,
      `const outDir = process.argv[2];`,
      `await runCodegen({ cwd: import.meta.dirname, definitions: ['tasks/*'], outDir, withDatabaseTypes: false });`,
    ].join('\n'),
  });
  const outputs = new Set<string>();
  for (const locale of ['C', 'tr_TR.UTF-8', 'de_DE.UTF-8']) {
    const env = { PATH: process.env['PATH'], LC_ALL: locale, LANG: locale };
    await run(process.execPath, ['generate.mjs', locale], { cwd: project, env });
    const names = ['tasks.ts', 'payloads.json'];
    const texts = await Promise.all(names.map((name) => readFile(path.join(project, locale, name), 'utf8')));
    outputs.add(texts.join('\0'));
  }
  expect(outputs.size).toBe(1);
});
