import path from 'node:path';
import { expect, test } from 'vitest';
import { loadDefinitions } from '../../src/codegen/load-definitions.ts';
import { isTaskDefinition } from '../../src/domain/task-definition.ts';
import { makeProject, taskFile, writeFiles } from './project.ts';

const FIXTURE = path.join(import.meta.dirname, 'fixtures/project');

async function load(cwd: string, ...definitions: string[]) {
  const loaded = await loadDefinitions({ cwd, definitions, outDir: 'generated' });
  return loaded.map(({ definition, exportName, file }) => ({
    type: definition.type,
    exportName,
    file: path.relative(cwd, file),
  }));
}

test('path aliases, enums, top-level await, CommonJS and `.js` specifiers of TypeScript files load', async () => {
  expect(await load(FIXTURE, 'tasks/*')).toEqual([
    { type: 'aliased', exportName: 'aliased', file: 'tasks/aliased.ts' },
    { type: 'awaited', exportName: 'default', file: 'tasks/awaited.mts' },
    { type: 'common', exportName: 'common', file: 'tasks/common.cjs' },
    { type: 'emitted', exportName: 'extensionOfTheEmittedFile', file: 'tasks/emitted.ts' },
    { type: 'single', exportName: 'default', file: 'tasks/single.cjs' },
  ]);
});

test('what is loaded are definitions with schemas that parse', async () => {
  const loaded = await loadDefinitions({
    cwd: FIXTURE,
    definitions: ['tasks/awaited.mts'],
    outDir: 'generated',
  });
  const definition = loaded[0]?.definition;
  expect(isTaskDefinition(definition)).toBe(true);
  expect(definition?.payload.safeParse(3).success).toBe(true);
  expect(definition?.payload.safeParse(4).success).toBe(false);
});

test('a definition that is exported again elsewhere counts once', async () => {
  const project = await makeProject({
    'tasks/purge.ts': taskFile('purge', 'purge'),
    'all.ts': "export { purge, purge as again } from './tasks/purge.ts';",
  });
  expect(await load(project, 'all.ts', 'tasks/*.ts')).toEqual([
    { type: 'purge', exportName: 'again', file: 'all.ts' },
  ]);
});

test('two definitions of one type are refused naming both files', async () => {
  const project = await makeProject({
    'a.ts': taskFile('first', 'purge'),
    'b.ts': taskFile('second', 'purge'),
  });
  await expect(load(project, '*.ts')).rejects.toMatchObject({
    code: 'CODEGEN_FAILED',
    message: "task type 'purge' is defined in a.ts and in b.ts",
  });
});

test('two types that ask for one function name are refused naming both files', async () => {
  const project = await makeProject({
    'a.ts': taskFile('first', 'a-b'),
    'b.ts': taskFile('second', 'a_b'),
  });
  await expect(load(project, '*.ts')).rejects.toMatchObject({
    code: 'CODEGEN_FAILED',
    message: expect.stringMatching(/'a-b' \(a\.ts\) and 'a_b' \(b\.ts\).*enqueueAB/),
  });
});

test('a file that throws while it is loaded is named, and its error kept', async () => {
  const project = await makeProject({ 'broken.ts': "throw new RangeError('out of stars');" });
  const failed = await load(project, '*.ts').catch((error: unknown) => error);
  expect(failed).toMatchObject({
    code: 'CODEGEN_FAILED',
    message: expect.stringMatching(/broken\.ts could not be loaded: RangeError: out of stars/),
    cause: { name: 'RangeError' },
  });
});

test.each([
  ['a syntax error', 'export const = 1;'],
  ['a missing import', "import './nowhere.ts';"],
  ['a definition that is refused', taskFile('empty', ' ')],
])('%s is reported with the file it is in', async (_, source) => {
  const project = await makeProject({ 'broken.ts': source });
  await expect(load(project, '*.ts')).rejects.toMatchObject({
    code: 'CODEGEN_FAILED',
    message: expect.stringContaining('broken.ts'),
  });
});

test('globs that match no file are refused, naming them', async () => {
  const project = await makeProject({ 'generated/tasks.ts': taskFile('generated', 'generated') });
  await expect(load(project, 'src\\tasks\\*.ts', 'generated/*.ts')).rejects.toMatchObject({
    code: 'CONFIG_INVALID',
    message: expect.stringContaining("matches 'src/tasks/*.ts', 'generated/*.ts'"),
  });
});

test('files without a definition are no error', async () => {
  const project = await makeProject({ 'nothing.ts': 'export const answer = 42;' });
  expect(await load(project, '*.ts')).toEqual([]);
});

test.each(['ts', 'js', 'mjs'])(
  'a .%s file changed since the last run is read anew, and so is what it imports',
  async (extension) => {
    const purgeFile = `purge.${extension}`;
    const project = await makeProject({
      'package.json': '{ "type": "module" }',
      [purgeFile]: taskFile('purge', 'before'),
      'name.ts': "export const name = 'old';",
      'named.ts':
        `import { name } from './name.ts';\n` +
        taskFile('named', '').replace('type: ""', "type: 'named_' + name"),
    });
    expect((await load(project, '*.{ts,js,mjs}')).map(({ type }) => type)).toEqual(['before', 'named_old']);
    await writeFiles(project, {
      [purgeFile]: taskFile('purge', 'after'),
      'name.ts': "export const name = 'new';",
    });
    expect((await load(project, '*.{ts,js,mjs}')).map(({ type }) => type)).toEqual(['after', 'named_new']);
  },
);

test('a project folder may hold a space and the characters that mean something in a URL', async () => {
  const project = await makeProject({ 'tasks/purge.ts': taskFile('purge', 'purge') }, 'a b#c%20+ü');
  expect(await load(project, 'tasks/*.ts')).toEqual([
    { type: 'purge', exportName: 'purge', file: 'tasks/purge.ts' },
  ]);
});
