import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { beforeAll } from 'vitest';
import { build, taskq } from '../support/cli.ts';
import { describe, expect, onTestFinished, test } from '../support/test.ts';

const REPOSITORY = path.resolve(import.meta.dirname, '../..');

const MANIFEST =
  '{ "name": "shop", "type": "module", "dependencies": { "taskq": "1", "kysely": "1", "pg": "1", "zod": "1" } }';
const NODENEXT = { module: 'NodeNext', strict: true, noEmit: true, types: [] as string[] };

beforeAll(build);

/** A user's project with this repository, as it is built, for its taskq. */
async function project(files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'taskq-init-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const packages = path.join(folder, 'node_modules');
  await mkdir(packages);
  for (const name of ['zod', 'kysely', 'pg', 'typescript']) {
    await symlink(path.join(REPOSITORY, 'node_modules', name), path.join(packages, name));
  }
  await symlink(REPOSITORY, path.join(packages, 'taskq'));
  for (const [name, text] of Object.entries(files)) {
    await mkdir(path.dirname(path.join(folder, name)), { recursive: true });
    await writeFile(path.join(folder, name), text);
  }
  return folder;
}

const tsconfig = (compilerOptions: object) => JSON.stringify({ compilerOptions, exclude: ['node_modules'] });

async function init(cwd: string, ...args: string[]) {
  const { code, stdout, stderr } = await taskq(['init', '--json', ...args], { cwd });
  expect({ code, stderr: code === 0 ? '' : stderr }).toEqual({ code: 0, stderr: '' });
  return JSON.parse(stdout) as {
    files: { path: string; status: string; note?: string }[];
    scripts: { name: string; command: string; status: string }[];
    ciStep?: string;
    warnings: string[];
    next: string[];
  };
}

const pathsOf = (files: readonly { path: string; status: string }[], status: string) =>
  files.filter((file) => file.status === status).map((file) => file.path);

/** Every file of a project by its name, what was installed left out. */
async function contents(folder: string): Promise<Record<string, string>> {
  const names = (await readdir(folder, { recursive: true })).filter(
    (name) => !name.startsWith('node_modules'),
  );
  const read = names.map(async (name) => [
    name,
    await readFile(path.join(folder, name), 'utf8').catch(() => ''),
  ]);
  return Object.fromEntries(await Promise.all(read));
}

function compile(folder: string) {
  const compiler = path.join(REPOSITORY, 'node_modules/typescript/bin/tsc');
  const { status, stdout } = spawnSync(process.execPath, [compiler, '-p', '.'], {
    cwd: folder,
    encoding: 'utf8',
  });
  return { status, stdout };
}

const NODE_TYPES = {
  types: ['node'],
  typeRoots: [path.join(REPOSITORY, 'node_modules/@types')],
  skipLibCheck: true,
};

describe('taskq init', () => {
  test('without a package.json is misuse, and writes nothing', async () => {
    const cwd = await project({});
    const { code, stderr } = await taskq(['init'], { cwd });
    expect(code).toBe(2);
    expect(stderr).toMatch(/there is no package\.json in .* \[CONFIG_INVALID\]/);
    expect(await contents(cwd)).toEqual({});
  });

  test.for(['{', '[]', '{ "scripts": 1 }'])(
    'with a package.json of %s is misuse, and writes nothing',
    async (text) => {
      const cwd = await project({ 'package.json': text });
      expect(await taskq(['init'], { cwd })).toMatchObject({
        code: 2,
        stderr: expect.stringContaining('CONFIG_INVALID'),
      });
      expect(await contents(cwd)).toEqual({ 'package.json': text });
    },
  );

  test('writes what a first task needs, which is up to date for codegen --check', async () => {
    const cwd = await project({ 'package.json': MANIFEST, 'tsconfig.json': tsconfig(NODENEXT) });
    const { files, scripts, ciStep, next } = await init(cwd);
    expect(files.map(({ path: name, status }) => `${status} ${name}`)).toEqual([
      'written taskq.config.ts',
      'written src/tasks/greet.ts',
      'written src/handlers.ts',
      'written package.json',
      'written src/generated/tasks.ts',
      'written src/generated/payloads.json',
      'written src/generated/db.ts',
    ]);
    expect(scripts.map(({ name, status }) => `${status} ${name}`)).toEqual([
      'written taskq:codegen',
      'written taskq:migrate',
      'written taskq:work',
    ]);
    expect(ciStep).toBe('npx taskq codegen --check');
    expect(next).toEqual([
      'npm run taskq:migrate',
      `npx taskq enqueue greet '{"name":"Ada"}'`,
      'npm run taskq:work',
    ]);
    expect(await taskq(['codegen', '--check'], { cwd })).toMatchObject({ code: 0 });
  });

  test('a second run keeps everything, byte for byte', async () => {
    const cwd = await project({ 'package.json': MANIFEST, 'tsconfig.json': tsconfig(NODENEXT) });
    await init(cwd, '--ci');
    const before = await contents(cwd);
    const { files, scripts } = await init(cwd, '--ci');
    expect([...files, ...scripts].map(({ status }) => status)).toEqual(Array(10).fill('kept'));
    expect(await contents(cwd)).toEqual(before);
  });

  test('never overwrites: files, scripts and a link that leads nowhere stay as they are', async () => {
    const mine = {
      'package.json': '{\n\t"name": "shop",\n\t"scripts": { "taskq:work": "mine" }\n}\n',
      'src/handlers.ts': '// mine\n',
      'src/generated/tasks.ts': '// mine too\n',
      '.github/workflows/taskq.yml': '# mine as well\n',
    };
    const cwd = await project(mine);
    await symlink('nowhere.ts', path.join(cwd, 'taskq.config.ts'));
    const { files, scripts } = await init(cwd);
    expect(pathsOf(files, 'kept')).toEqual([
      'taskq.config.ts',
      'src/handlers.ts',
      '.github/workflows/taskq.yml',
      'src/generated/tasks.ts',
    ]);
    expect(scripts.find(({ name }) => name === 'taskq:work')).toEqual({
      name: 'taskq:work',
      command: 'mine',
      status: 'kept',
    });
    const after = await contents(cwd);
    expect(after).toMatchObject({ ...mine, 'package.json': expect.stringContaining('"taskq:work": "mine"') });
    // Indented as before, and ended as before.
    expect(after['package.json']).toMatch(
      /^\{\n\t"name": "shop",\n\t"scripts": \{\n\t\t"taskq:work": "mine",\n\t\t"taskq:codegen"[\s\S]*\}\n$/,
    );
  });

  test('--dry-run shows what would be written, and writes nothing', async () => {
    const cwd = await project({ 'package.json': MANIFEST });
    const before = await contents(cwd);
    const { files, scripts } = await init(cwd, '--dry-run', '--ci');
    expect([...files, ...scripts].every(({ status }) => status === 'planned')).toBe(true);
    const planned = files.map(({ path: name }) => name);
    expect(await contents(cwd)).toEqual(before);
    const written = await init(cwd, '--ci');
    expect(pathsOf(written.files, 'written')).toEqual(planned);
  });

  test.for([
    ['ESM and NodeNext', 'module', NODENEXT],
    ['CommonJS and NodeNext', 'commonjs', NODENEXT],
    ['NodeNext with source extensions', 'module', { ...NODENEXT, allowImportingTsExtensions: true }],
    ['ESM and bundler', 'module', { ...NODENEXT, module: 'ESNext', moduleResolution: 'bundler' }],
    ['CommonJS and bundler', 'commonjs', { ...NODENEXT, module: 'preserve' }],
    ['a rootDir and no include', 'module', { ...NODENEXT, rootDir: 'lib' }],
  ] as const)('what it writes into a project in %s compiles', async ([, type, compiler]) => {
    const cwd = await project({
      'package.json': JSON.stringify({ name: 'shop', type }),
      'tsconfig.json': tsconfig({ ...compiler, ...NODE_TYPES }),
    });
    const { warnings } = await init(cwd);
    expect(warnings).toEqual([]);
    expect(compile(cwd)).toEqual({ status: 0, stdout: '' });
  });

  test('goes where the sources are: rootDir, else src, else beside package.json', async () => {
    const placed = async (files: Record<string, string>) => {
      const { files: shown } = await init(await project({ 'package.json': MANIFEST, ...files }), '--dry-run');
      return shown.map(({ path: name }) => name).filter((name) => name !== 'package.json');
    };
    const generated = (out: string) => ['tasks.ts', 'payloads.json', 'db.ts'].map((name) => `${out}/${name}`);
    expect(await placed({ 'index.ts': '', 'tsconfig.json': tsconfig({ rootDir: './lib' }) })).toEqual([
      ...['taskq.config.mjs', 'lib/tasks/greet.ts', 'lib/handlers.ts'],
      ...generated('lib/generated'),
    ]);
    expect(await placed({ 'index.ts': '', 'src/a.ts': '' })).toEqual([
      ...['taskq.config.ts', 'src/tasks/greet.ts', 'src/handlers.ts'],
      ...generated('src/generated'),
    ]);
    expect(await placed({ 'index.ts': '' })).toEqual([
      ...['taskq.config.ts', 'tasks/greet.ts', 'handlers.ts'],
      ...generated('generated'),
    ]);
  });

  test('leaves the files of an existing folder of tasks unloaded', async () => {
    const cwd = await project({
      'package.json': MANIFEST,
      'src/tasks/theirs.ts': `import { writeFileSync } from 'node:fs';\nwriteFileSync('loaded', '');\n`,
    });
    const { files } = await init(cwd);
    expect(pathsOf(files, 'written')).toContain('src/tasks/greet.task.ts');
    expect(pathsOf(files, 'written')).toContain('src/generated/tasks.ts');
    expect(existsSync(path.join(cwd, 'loaded'))).toBe(false);
  });

  test('follows an existing taskq.config.ts', async () => {
    const cwd = await project({
      'package.json': MANIFEST,
      'taskq.config.ts': `export default { definitions: 'queue/*.ts', handlers: 'queue-handlers.ts', out: 'made' };\n`,
    });
    const { files } = await init(cwd);
    expect(pathsOf(files, 'kept')).toEqual(['taskq.config.ts']);
    expect(pathsOf(files, 'written')).toEqual([
      ...['queue/greet.ts', 'queue-handlers.ts', 'package.json'],
      ...['made/tasks.ts', 'made/payloads.json', 'made/db.ts'],
    ]);
  });

  test('adds no task to a project that has definitions', async () => {
    const cwd = await project({
      'package.json': MANIFEST,
      'taskq.config.ts': `export default { definitions: 'queue/*.ts' };\n`,
      'queue/mine.ts': '',
    });
    const { files, warnings } = await init(cwd);
    expect(files.map(({ path: name }) => name)).toEqual(['taskq.config.ts', 'package.json']);
    expect(warnings).toEqual([expect.stringContaining('no first task was written')]);
  });

  test('writes a workflow where there are workflows, in the terms of the package manager', async () => {
    const cwd = await project({
      'package.json': MANIFEST,
      'pnpm-lock.yaml': '',
      '.github/workflows/test.yml': '',
    });
    const { ciStep, next } = await init(cwd);
    expect(ciStep).toBeUndefined();
    const workflow = await readFile(path.join(cwd, '.github/workflows/taskq.yml'), 'utf8');
    expect(workflow).toContain(
      '- run: pnpm install --frozen-lockfile\n      - run: pnpm exec taskq codegen --check\n',
    );
    expect(next).toContain('pnpm run taskq:work');
  });

  test('says which packages are missing, and what a tsconfig stands in the way of', async () => {
    const cwd = await project({
      'package.json': '{ "dependencies": { "pg": "8" } }',
      'tsconfig.json': tsconfig({
        module: 'CommonJS',
        moduleResolution: 'node10',
        verbatimModuleSyntax: true,
      }),
    });
    const { next, warnings } = await init(cwd);
    expect(next[0]).toBe('npm install taskq kysely zod');
    expect(warnings).toEqual([
      expect.stringContaining('verbatimModuleSyntax'),
      expect.stringContaining("resolves modules by 'node10'"),
    ]);
  });

  test('generated files that cannot be made are exit code 1, and what was written is listed', async () => {
    const cwd = await project({ 'package.json': MANIFEST });
    await rm(path.join(cwd, 'node_modules'), { recursive: true });
    const { code, stdout } = await taskq(['init'], { cwd });
    expect(code).toBe(1);
    expect(stdout).toMatch(/^written +src\/tasks\/greet\.ts$/m);
    expect(stdout).toMatch(/^failed +src\/generated \(.*greet\.ts could not be loaded/m);
    expect(stdout).toMatch(/^ {2}npm run taskq:codegen$/m);
  });
});
