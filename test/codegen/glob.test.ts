import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import { findFiles, globPattern, normaliseGlob } from '../../src/codegen/glob.ts';
import { makeProject } from './project.ts';

const FILES = {
  'src/tasks/a.ts': '',
  'src/tasks/b.mts': '',
  'src/tasks/deep/er/c.ts': '',
  'src/tasks/c.test.ts': '',
  'src/tasks/node_modules/other/d.ts': '',
  'src/other.ts': '',
};

async function found(project: string, ...globs: string[]): Promise<string[]> {
  const files = await findFiles(project, globs);
  return files.map((file) => path.relative(project, file));
}

test('globs find files below their folder, and negated ones take some away', async () => {
  const project = await makeProject(FILES);
  expect(await found(project, 'src/tasks/*.ts')).toEqual(['src/tasks/a.ts', 'src/tasks/c.test.ts']);
  expect(await found(project, 'src/tasks/**/*.ts', '!**/*.test.ts')).toEqual([
    'src/tasks/a.ts',
    'src/tasks/deep/er/c.ts',
  ]);
  expect(await found(project, './src/{tasks,none}/[ab].{ts,mts}')).toEqual([
    'src/tasks/a.ts',
    'src/tasks/b.mts',
  ]);
  expect(await found(project, path.join(project, 'src/*.ts'))).toEqual(['src/other.ts']);
  expect(await found(project, 'src/other.ts', 'src/o*.ts')).toEqual(['src/other.ts']);
});

test('a glob with backslashes means the same as with slashes', async () => {
  const project = await makeProject(FILES);
  expect(normaliseGlob('.\\src\\tasks\\*.ts')).toBe('src/tasks/*.ts');
  expect(await found(project, 'src\\tasks\\*.ts')).toEqual(await found(project, 'src/tasks/*.ts'));
});

test('a glob may lead out of the project, and the folder may hold the characters of a glob', async () => {
  const project = await makeProject(FILES, 'a {b,c} [d] *?');
  expect(await found(path.join(project, 'src/tasks'), '../*.ts')).toEqual(['../other.ts']);
  expect(await found(project, 'src/*.ts')).toEqual(['src/other.ts']);
});

test('a star stays within one folder', () => {
  expect(globPattern('src/*.ts').test('src/a/b.ts')).toBe(false);
  expect(globPattern('src/**/*.ts').test('src/b.ts')).toBe(true);
  expect(globPattern('src/a.ts').test('src/aXts')).toBe(false);
});

test('files come in code-unit order, whatever order the folder lists them in', async () => {
  const project = await makeProject({ 'Z.ts': '', 'a.ts': '', 'ä.ts': '', '_.ts': '' });
  const backwards = await findFiles(project, ['*.ts'], async (folder) =>
    (await readdir(folder, { withFileTypes: true })).sort((x, y) => (x.name < y.name ? 1 : -1)),
  );
  expect(backwards.map((file) => path.basename(file))).toEqual(['Z.ts', '_.ts', 'a.ts', 'ä.ts']);
});
