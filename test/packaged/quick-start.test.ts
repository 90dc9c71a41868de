import { existsSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import { administer } from '../support/databases.ts';
import { expect, test } from '../support/test.ts';
import {
  emptyDatabase,
  INSTALL_TIMEOUT_MS,
  npmInstall,
  packRepository,
  REPOSITORY,
  requireInstalled,
  runIn,
  runLine,
  startLine,
  temporaryFolder,
  writeFiles,
} from './installed.ts';

interface Block {
  readonly language: string;
  readonly text: string;
}

/** Calls what the README's own code exports, as an application would. */
const APPLICATION = `import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { signUp } from './src/sign-up.js';

const pool = new pg.Pool({ connectionString: process.env['DATABASE_URL'] });
const db = new Kysely<{ customers: { name: string } }>({ dialect: new PostgresDialect({ pool }) });
await signUp(db, 'Grace');
await db.destroy();
`;

const TSCONFIG = JSON.stringify({
  compilerOptions: { module: 'NodeNext', target: 'ES2023', strict: true, noEmit: true, types: ['node'] },
});

let folder: string;
let tarball: string;
let unreachable: string | undefined;

beforeAll(async () => {
  folder = await temporaryFolder();
  tarball = await packRepository(folder);
  // The project that the README takes for granted.
  await writeFiles(folder, {
    'package.json': '{ "name": "shop", "type": "module" }',
    'tsconfig.json': TSCONFIG,
  });
  unreachable = await npmInstall(folder, '--save-dev', 'typescript@7.0.2', '@types/node@20', '@types/pg@8');
  unreachable ??= await install(readBlocks(await quickStart()));
}, INSTALL_TIMEOUT_MS);

afterAll(() => rm(folder, { recursive: true, force: true }));

test(
  'the quick start drains its first task with three commands after init',
  async ({ skip }) => {
    requireInstalled(unreachable, skip);
    const url = await emptyDatabase('quick start');
    const here = { cwd: folder, env: { DATABASE_URL: url } };
    const [installing, draining, generating, ...rest] = commandsOf(readBlocks(await quickStart()));
    expect(rest).toEqual([]);
    const [, init] = installing ?? [];
    expect(await runLine(here, init as string)).toMatchObject({ code: 0 });

    const [migrate, enqueue, work, ...more] = draining ?? [];
    expect(more).toEqual([]);
    expect(await runLine(here, migrate as string)).toMatchObject({ code: 0 });
    expect(await runLine(here, enqueue as string)).toMatchObject({ code: 0 });
    await untilDrained(here, work as string, /Hello, Ada!/);

    await applyCode(readBlocks(await quickStart()));
    expect(await runLine(here, generating?.[0] as string)).toMatchObject({ code: 0 });
    expect(await runIn(here, ['npx', 'tsc', '-p', '.'])).toMatchObject({ code: 0, stdout: '' });
    await administer(url, 'CREATE TABLE customers (name text NOT NULL)');
    const application = path.join(folder, 'node_modules/jiti/lib/jiti-cli.mjs');
    const ran = await runIn(here, [process.execPath, application, 'application.ts']);
    expect(ran).toMatchObject({ code: 0, stderr: '' });
    await untilDrained(here, work as string, /Hello, Grace!/);
    const { rows } = await administer(
      url,
      'SELECT name, (SELECT count(*)::int FROM taskq.async_tasks) AS waiting FROM customers',
    );
    expect(rows).toEqual([{ name: 'Grace', waiting: 0 }]);
  },
  INSTALL_TIMEOUT_MS,
);

async function quickStart(): Promise<string> {
  const readme = await readFile(path.join(REPOSITORY, 'README.md'), 'utf8');
  const section = /^## Quick start\n([\s\S]*?)^## /m.exec(readme)?.[1];
  if (section === undefined) throw new Error('the README has no quick start');
  return section;
}

function readBlocks(section: string): Block[] {
  return [...section.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].map(([, language = '', text = '']) => ({
    language,
    text,
  }));
}

/** The commands of each block, without their comments. */
function commandsOf(blocks: readonly Block[]): string[][] {
  return blocks
    .filter(({ language }) => language === 'sh')
    .map(({ text }) =>
      text
        .split('\n')
        .map((line) => line.replace(/\s+#.*$/, ''))
        .filter((line) => line !== ''),
    );
}

/** The first command, with the tarball in the place of the published package. */
async function install(blocks: readonly Block[]): Promise<string | undefined> {
  const [npm, verb, name, ...packages] = commandsOf(blocks)[0]?.[0]?.split(' ') ?? [];
  expect([npm, verb, name]).toEqual(['npm', 'install', 'taskq']);
  return npmInstall(folder, tarball, ...packages);
}

/** Every file that the README shows is what `init` wrote, or is written now. */
async function applyCode(blocks: readonly Block[]): Promise<void> {
  const shown = blocks.filter(({ language }) => language === 'ts');
  const written: string[] = [];
  for (const { text } of shown) {
    const [, name, code = ''] = /^\/\/ (\S+)\n([\s\S]*)$/.exec(text) ?? [];
    if (name === undefined) throw new Error(`this code does not begin with the name of its file:\n${text}`);
    if (existsSync(path.join(folder, name))) {
      expect(await readFile(path.join(folder, name), 'utf8')).toBe(code);
      written.push(name);
    } else await writeFiles(folder, { [name]: code });
  }
  expect(written).toEqual(['src/tasks/greet.ts', 'src/handlers.ts']);
  await writeFiles(folder, { 'application.ts': APPLICATION });
}

async function untilDrained(
  here: Parameters<typeof startLine>[0],
  work: string,
  said: RegExp,
): Promise<void> {
  const worker = startLine(here, work);
  await worker.until(said);
  await worker.until(/"outcome":"success"|outcome=success/);
  worker.interrupt();
  await worker.ended();
}
