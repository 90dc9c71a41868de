import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';

const repository = fileURLToPath(new URL('../../', import.meta.url));
const LOCKED = {
  'node_modules/a': { version: '1.0.0' },
  'node_modules/b': { version: '1.0.0', optional: true },
};

interface Clone {
  readonly place: string;
  write(name: string, text: string): Promise<void>;
  setup(): Promise<{ code: number | null; output: string }>;
}

/** A small project with this repository's setup, whose `npm ci` only writes down that it was called. */
async function clone(options: { installed: boolean }): Promise<Clone> {
  const place = await mkdtemp(path.join(tmpdir(), 'taskq-setup-'));
  onTestFinished(() => rm(place, { recursive: true, force: true }));
  const write = async (name: string, text: string) => {
    await mkdir(path.dirname(path.join(place, name)), { recursive: true });
    await writeFile(path.join(place, name), text);
  };
  const hidden = JSON.stringify({ packages: { 'node_modules/a': { version: '1.0.0' } } });
  await write('package.json', JSON.stringify({ type: 'module' }));
  await write('package-lock.json', JSON.stringify({ packages: { '': {}, ...LOCKED } }));
  await write('hidden.json', hidden);
  await write('src/index.ts', 'export const one: number = 1;\n');
  await write('src/admin/dashboard/index.html', '<!doctype html>\n');
  await write('cli/main.ts', '#!/usr/bin/env node\nconsole.log("main");\n');
  const compiler = { rootDir: '.', outDir: 'dist', module: 'NodeNext', types: [], target: 'ES2023' };
  await write('tsconfig.build.json', JSON.stringify({ compilerOptions: compiler, include: ['src', 'cli'] }));
  await copyFile(path.join(repository, 'cli/setup.mjs'), path.join(place, 'cli/setup.mjs'));
  await mkdir(path.join(place, 'node_modules'));
  await symlink(
    path.join(repository, 'node_modules/typescript'),
    path.join(place, 'node_modules/typescript'),
  );
  if (options.installed) await write('node_modules/.package-lock.json', hidden);
  await mkdir(path.join(place, 'bin'));
  const npm = '#!/bin/sh\necho "npm $*"; cp hidden.json node_modules/.package-lock.json\n';
  await writeFile(path.join(place, 'bin/npm'), npm, { mode: 0o755 });
  return { place, write, setup: () => runSetup(place) };
}

async function runSetup(place: string): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, [path.join(place, 'cli/setup.mjs')], {
    cwd: tmpdir(),
    env: { ...process.env, PATH: `${path.join(place, 'bin')}:${process.env['PATH']}` },
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => (output += text));
  const [code] = await once(child, 'close');
  return { code: code as number | null, output };
}

describe('the setup before npm start and npm test', () => {
  test('installs what is missing and says so, builds, and has nothing to do the next time', async () => {
    const { place, setup } = await clone({ installed: false });
    const first = await setup();
    expect(first).toMatchObject({ code: 0 });
    expect(first.output).toMatch(/installing the dependencies[\s\S]*npm ci[\s\S]*building/);
    expect((await stat(path.join(place, 'dist/cli/main.js'))).mode & 0o111).toBe(0o111);
    // The page is served as it is written.
    expect(await readdir(path.join(place, 'dist/src/admin/dashboard'))).toEqual(['index.html']);
    expect(await setup()).toEqual({ code: 0, output: '' });
  });

  test('installs again when the lock file asks for another version', async () => {
    const { write, setup } = await clone({ installed: true });
    expect((await setup()).output).not.toContain('npm ci');
    const packages = { ...LOCKED, 'node_modules/a': { version: '2.0.0' } };
    await write('package-lock.json', JSON.stringify({ packages }));
    await write('hidden.json', JSON.stringify({ packages }));
    expect((await setup()).output).toContain('npm ci');
  });

  test('builds again when a source changed, and drops what a deleted source left', async () => {
    const { place, write, setup } = await clone({ installed: true });
    await write('src/old.ts', 'export const old = 1;\n');
    await setup();
    expect(await readdir(path.join(place, 'dist/src'))).toContain('old.js');
    await rm(path.join(place, 'src/old.ts'));
    await write('src/index.ts', 'export const two: number = 2;\n');
    expect((await setup()).output).toContain('building');
    expect(await readFile(path.join(place, 'dist/src/index.js'), 'utf8')).toContain('two');
    expect(await readdir(path.join(place, 'dist/src'))).not.toContain('old.js');
  });

  test('fails on a source that does not compile, says where, and leaves the last build whole', async () => {
    const { place, write, setup } = await clone({ installed: true });
    await setup();
    await write('src/index.ts', 'export const one: string = 1;\n');
    const broken = await setup();
    expect(broken).toMatchObject({ code: 1 });
    expect(broken.output).toMatch(/src\/index\.ts[\s\S]*setup: the build failed/);
    expect(await readFile(path.join(place, 'dist/src/index.js'), 'utf8')).toContain('one');
    expect((await readdir(place)).filter((name) => name.startsWith('dist'))).toEqual(['dist']);
  });

  test('started several times at once builds once, and all of them succeed', async () => {
    const { setup } = await clone({ installed: false });
    const all = await Promise.all(Array.from({ length: 4 }, setup));
    expect(all.map(({ code }) => code)).toEqual([0, 0, 0, 0]);
    expect(all.filter(({ output }) => output.includes('building'))).toHaveLength(1);
  });

  test('takes over the lock of a setup that was killed', async () => {
    const { write, setup } = await clone({ installed: true });
    const killed = spawn(process.execPath, ['-e', '']);
    await once(killed, 'exit');
    await write('.taskq/setup.lock', JSON.stringify({ host: hostname(), pid: killed.pid }));
    expect(await setup()).toMatchObject({ code: 0, output: expect.stringContaining('building') });
  });

  test('asks for a newer Node before anything else', async () => {
    const { place, setup } = await clone({ installed: true });
    const script = path.join(place, 'cli/setup.mjs');
    const source = await readFile(script, 'utf8');
    await writeFile(script, source.replace('NODE_REQUIRED = [20, 19]', 'NODE_REQUIRED = [99, 1]'));
    expect(await setup()).toEqual({
      code: 1,
      output: `setup: Node 99.1 or newer is needed, and this is ${process.versions.node}\n`,
    });
  });
});

describe('the last line of CI', () => {
  async function lastLine(report: unknown, status: number): Promise<{ code: number | null; line: string }> {
    const place = await mkdtemp(path.join(tmpdir(), 'taskq-setup-'));
    onTestFinished(() => rm(place, { recursive: true, force: true }));
    const file = path.join(place, 'report.json');
    if (report !== undefined) await writeFile(file, JSON.stringify(report));
    const child = spawn(process.execPath, [path.join(repository, '.ci/counts.mjs'), file, String(status)]);
    let line = '';
    child.stdout.on('data', (text) => (line += text));
    const [code] = await once(child, 'close');
    return { code: code as number | null, line: line.trim() };
  }

  const counted = {
    numPassedTests: 7,
    numFailedTests: 0,
    numPendingTests: 2,
    numTodoTests: 1,
    testResults: [],
  };

  test('counts what vitest reported', async () => {
    expect(await lastLine(counted, 0)).toEqual({ code: 0, line: '7 passed, 0 failed, 3 skipped' });
  });

  test('counts a file that could not be loaded as failed', async () => {
    const testResults = [
      { status: 'failed', assertionResults: [] },
      { status: 'failed', assertionResults: [{ status: 'failed' }] },
    ];
    const report = { ...counted, numFailedTests: 1, testResults };
    expect((await lastLine(report, 1)).line).toBe('7 passed, 2 failed, 3 skipped');
  });

  test('never says that nothing failed when the run failed', async () => {
    expect((await lastLine(counted, 1)).line).toBe('7 passed, 1 failed, 3 skipped');
  });

  test('is a failure when the run wrote no report', async () => {
    expect(await lastLine(undefined, 0)).toEqual({ code: 1, line: '0 passed, 1 failed, 0 skipped' });
  });
});
