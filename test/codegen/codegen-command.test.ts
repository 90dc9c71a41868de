import { rm } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import yargs from 'yargs';
import { codegen } from '../../cli/commands/codegen.ts';
import { makeProject, REPOSITORY, taskFile, writeFiles } from './project.ts';

afterEach(() => {
  vi.restoreAllMocks();
  process.chdir(REPOSITORY);
});

/** Runs `taskq codegen` in a folder, as the command line would. */
async function run(cwd: string, ...words: string[]) {
  let [stdout, stderr] = ['', ''];
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    stdout += text;
    return true;
  });
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    stderr += text;
    return true;
  });
  process.chdir(cwd);
  try {
    await yargs(['codegen', ...words])
      .command(codegen)
      .strict()
      .exitProcess(false)
      .parseAsync();
    return { exitCode: process.exitCode, stdout, stderr };
  } finally {
    process.exitCode = undefined;
    vi.restoreAllMocks();
  }
}

const ARGUMENTS = ['--definitions', 'tasks/*.ts', '--no-database-types'];

test('exit code 0: made, and then up to date', async () => {
  const project = await makeProject({ 'tasks/purge.ts': taskFile('purge', 'purge') });
  const made = await run(project, ...ARGUMENTS);
  expect(made).toMatchObject({ exitCode: 0, stderr: expect.stringContaining('loading task definitions') });
  expect(made.stdout).toContain('written   generated/tasks.ts');
  expect(made.stdout).toContain('task type purge, revision 1, tasks/purge.ts');
  const checked = await run(project, ...ARGUMENTS, '--check');
  expect(checked).toMatchObject({ exitCode: 0, stdout: 'up to date: 1 task types, 2 files\n' });
});

test('exit code 1: a check found drift, and prints the diff', async () => {
  const project = await makeProject({ 'tasks/purge.ts': taskFile('purge', 'purge') });
  const checked = await run(project, ...ARGUMENTS, '--check');
  expect(checked.exitCode).toBe(1);
  expect(checked.stdout).toContain('+++ generated/tasks.ts (generated)');
  expect(checked.stdout).toContain('out of date: generated/tasks.ts, generated/payloads.json');
});

test('exit code 2: no globs, or globs that match no file', async () => {
  const project = await makeProject({});
  expect(await run(project, '--check')).toMatchObject({
    exitCode: 2,
    stderr: expect.stringContaining('--definitions'),
  });
  expect(await run(project, ...ARGUMENTS, '--check')).toMatchObject({
    exitCode: 2,
    stderr: expect.stringContaining("'tasks/*.ts'"),
  });
});

test('exit code 3: the check could not be made, for a file or for a database', async () => {
  const project = await makeProject({ 'tasks/broken.ts': 'throw new Error("broken");' });
  expect(await run(project, ...ARGUMENTS, '--check')).toMatchObject({
    exitCode: 3,
    stdout: '',
    stderr: expect.stringContaining('broken.ts could not be loaded'),
  });
  await rm(path.join(project, 'tasks/broken.ts'));
  await writeFiles(project, { 'tasks/purge.ts': taskFile('purge', 'purge') });
  const unreachable = ['--scratch-database-url', 'postgres://nobody@127.0.0.1:1/none'];
  expect(await run(project, '--definitions', 'tasks/*.ts', '--check', ...unreachable)).toMatchObject({
    exitCode: 3,
    stderr: expect.stringContaining('cannot connect to the database'),
  });
});

test('with --json the report and the error are one JSON object each', async () => {
  const project = await makeProject({ 'tasks/purge.ts': taskFile('purge', 'purge') });
  const made = await run(project, ...ARGUMENTS, '--json');
  expect(JSON.parse(made.stdout)).toMatchObject({ upToDate: false, tasks: [{ type: 'purge', revision: 1 }] });
  const failed = await run(project, '--definitions', 'none/*.ts', '--json');
  expect(JSON.parse(failed.stdout)).toMatchObject({ error: { code: 'CONFIG_INVALID' } });
});
