import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished } from 'vitest';
import { test } from '../support/test.ts';

// The examples as they stand on the page, run by the runners they are written for.

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PROJECT = fileURLToPath(new URL('./fixtures/project', import.meta.url));

/** File name → text of each example of docs/testing.md. */
async function examples(): Promise<Map<string, string>> {
  const page = await readFile(path.join(ROOT, 'docs/testing.md'), 'utf8');
  const blocks = [...page.matchAll(/^```ts\n\/\/ (\S+\.test\.ts)\n(.*?)^```$/gms)];
  expect(blocks).toHaveLength(page.split('```ts\n').length - 1);
  return new Map(blocks.map(([, name = '', code = '']) => [name, code]));
}

/** A project with the examples in it, in which `taskq` is this source. Below the root, for its packages. */
async function makeProject(chosen: (name: string) => boolean): Promise<{ root: string; names: string[] }> {
  const parent = path.join(ROOT, '.taskq');
  await mkdir(parent, { recursive: true });
  const root = await mkdtemp(path.join(parent, 'examples-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  await cp(PROJECT, root, { recursive: true });
  const files = [...(await examples())].filter(([name]) => chosen(name));
  for (const [name, code] of files) await writeFile(path.join(root, name), code);
  await writeFile(path.join(root, 'package.json'), JSON.stringify({ type: 'module' }));
  // Or the configuration of this repository would be found above it.
  await writeFile(path.join(root, 'vitest.config.js'), 'export default {};\n');
  for (const name of await readdir(root, { recursive: true })) {
    if (!name.endsWith('.ts')) continue;
    const code = await readFile(path.join(root, name), 'utf8');
    await writeFile(path.join(root, name), withSources(code));
  }
  return { root, names: files.map(([name]) => name) };
}

function withSources(code: string): string {
  return code
    .replaceAll("from 'taskq/testing'", `from '${path.join(ROOT, 'src/testing/index.ts')}'`)
    .replaceAll("from 'taskq'", `from '${path.join(ROOT, 'src/index.ts')}'`);
}

async function run(root: string, args: readonly string[], databaseUrl: string) {
  // A runner that is started by a runner takes the environment of the outer one for its own.
  const inherited = Object.entries(process.env).filter(
    ([name]) => !/^(VITEST|NODE_TEST|TEST$|NODE_V8)/.test(name),
  );
  const env = { ...Object.fromEntries(inherited), DATABASE_URL: databaseUrl, NO_COLOR: '1', CI: '1' };
  const child = spawn(process.execPath, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'pipe'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  const [stdout, stderr, [exitCode]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ]);
  return { exitCode, output: `${stdout}\n${stderr}` };
}

test('the vitest examples of docs/testing.md pass', async ({ database }) => {
  const { root, names } = await makeProject((name) => name !== 'node.test.ts');
  const vitest = path.join(ROOT, 'node_modules/vitest/vitest.mjs');

  // One after the other: they share the database.
  const args = [vitest, 'run', '--root', root, '--no-file-parallelism', '--reporter=verbose'];
  const { exitCode, output } = await run(root, args, database.url);

  expect(exitCode, output).toBe(0);
  expect(names).toHaveLength(4);
  for (const name of names) expect(output).toContain(name);
});

test('the node:test example of docs/testing.md passes under node --test', async ({ database }) => {
  const { root, names } = await makeProject((name) => name === 'node.test.ts');

  const args = ['--import', 'jiti/register', '--test', '--test-reporter=spec', ...names];
  const { exitCode, output } = await run(root, args, database.url);

  expect(exitCode, output).toBe(0);
  expect(output).toMatch(/pass 2\b/);
});
