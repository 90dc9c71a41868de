import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const adapters = new URL('./adapters/', import.meta.url);
const page = readFileSync(new URL('../../docs/other-drivers.md', import.meta.url), 'utf8');
const blocks = [...page.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, code]) => code);
const files = readdirSync(adapters);

/** What a file imports from this repository, as a project that uses taskq would. */
const IMPORTS = [
  ['../../../src/index.ts', 'taskq'],
  ['../tasks.ts', './generated/tasks.ts'],
  ['../prisma/client/client.ts', './generated/prisma/client.ts'],
] as const;

test.each(files)('the page shows the tested code of %s, byte for byte but for its imports', (file) => {
  let code = readFileSync(new URL(file, adapters), 'utf8');
  for (const [here, there] of IMPORTS) code = code.replace(`from '${here}'`, `from '${there}'`);

  expect(blocks).toContain(code);
});

test('the page shows no code that is not tested', () => {
  expect(blocks).toHaveLength(files.length);
});

test('every adapter has a test of its own', () => {
  const tests = new Set(readdirSync(new URL('.', import.meta.url)));
  expect(files.filter((file) => !tests.has(file.replace('.ts', '.test.ts')))).toEqual([]);
});
