import { readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, describe, expect, test, vi } from 'vitest';
import yargs from 'yargs';
import { codegen } from '../../cli/commands/codegen.ts';
import { makeProject, REPOSITORY, taskFile, tasksFile, writeFiles } from './project.ts';

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

describe('a payload change that rows might not survive', () => {
  const BEFORE = 'z.object({ id: z.string() })';
  const AFTER = 'z.object({ id: z.string(), hard: z.boolean() })';

  const withUpgrade = (payload: string) =>
    taskFile('purge', 'purge', `${payload}, upgrades: { 2: (old) => ({ ...(old as object), hard: false }) }`);

  const files = (project: string) =>
    Promise.all(
      ['tasks.ts', 'payloads.json'].map((name) => readFile(path.join(project, 'generated', name), 'utf8')),
    );

  /** A project whose manifest knows revision 1, and whose definition has gone on. */
  async function changedProject(): Promise<string> {
    const project = await makeProject({ 'tasks/purge.ts': taskFile('purge', 'purge', BEFORE) });
    await run(project, ...ARGUMENTS);
    await writeFiles(project, { 'tasks/purge.ts': taskFile('purge', 'purge', AFTER) });
    return project;
  }

  test('is refused with exit code 1, naming type, path, old, new and the ways out; nothing is written', async () => {
    const project = await changedProject();
    const before = await files(project);
    const refused = await run(project, ...ARGUMENTS);
    expect(refused).toMatchObject({ exitCode: 1, stdout: '' });
    for (const text of [
      "'purge'",
      'payload.hard',
      'absent',
      'required: boolean',
      'upgrades: { 2:',
      '--accept purge',
    ]) {
      expect(refused.stderr).toContain(text);
    }
    expect(refused.stderr).toContain('nothing was written');
    expect(await files(project)).toEqual(before);
  });

  test('fails a check too, beside the drift', async () => {
    const project = await changedProject();
    const checked = await run(project, ...ARGUMENTS, '--check');
    expect(checked).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('payload.hard') });
    expect(checked.stdout).toContain('out of date: generated/tasks.ts, generated/payloads.json');
  });

  test('passes with an upgrade, and fails the check again once the upgrade is gone', async () => {
    const project = await changedProject();
    await writeFiles(project, { 'tasks/purge.ts': withUpgrade(AFTER) });
    const made = await run(project, ...ARGUMENTS);
    expect(made).toMatchObject({
      exitCode: 0,
      stdout: expect.stringContaining('task type purge, revision 2'),
    });
    expect(await run(project, ...ARGUMENTS, '--check')).toMatchObject({ exitCode: 0 });
    // The manifest holds the new revision by now, and nothing drifts: only its history tells.
    await writeFiles(project, { 'tasks/purge.ts': taskFile('purge', 'purge', AFTER) });
    const checked = await run(project, ...ARGUMENTS, '--check');
    expect(checked).toMatchObject({
      exitCode: 1,
      stdout: '',
      stderr: expect.stringContaining('payload.hard'),
    });
  });

  test('passes once it is accepted, with its reason in the manifest', async () => {
    const project = await changedProject();
    const reason = 'the queue was empty at the deploy';
    const accepted = await run(project, ...ARGUMENTS, '--accept', 'purge', '--reason', reason);
    expect(accepted).toMatchObject({ exitCode: 0 });
    const [, manifest] = await files(project);
    expect(JSON.parse(manifest as string).purge.accepted).toEqual([{ revision: 2, reason }]);
    expect(await run(project, ...ARGUMENTS, '--check')).toMatchObject({ exitCode: 0 });
  });

  test('of several types is accepted with one reason for all, or with one for each', async () => {
    const both = (payload: string) =>
      tasksFile(['purge', 'sweep'].map((type) => ({ name: type, type, payload })));
    const project = await makeProject({ 'tasks/both.ts': both(BEFORE) });
    await run(project, ...ARGUMENTS);
    await writeFiles(project, { 'tasks/both.ts': both(AFTER) });
    expect(await run(project, ...ARGUMENTS, '--accept', 'purge', '--reason', 'so')).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining("'sweep'"),
    });
    const each = ['--accept', 'purge', '--reason', 'one', '--accept', 'sweep', '--reason', 'two'];
    expect(await run(project, ...ARGUMENTS, ...each)).toMatchObject({ exitCode: 0 });
    const manifest = JSON.parse((await files(project))[1] as string);
    expect([manifest.purge.accepted[0].reason, manifest.sweep.accepted[0].reason]).toEqual(['one', 'two']);
  });

  test.each([
    ['without a reason', ['--accept', 'purge']],
    ['of nothing', ['--reason', 'so']],
    ['of an unknown type', ['--accept', 'purg', '--reason', 'so']],
    ['in a check', ['--check', '--accept', 'purge', '--reason', 'so']],
  ])('an acceptance %s is misuse', async (_, words) => {
    const project = await changedProject();
    expect(await run(project, ...ARGUMENTS, ...words)).toMatchObject({ exitCode: 2 });
  });

  test('with --json is part of the report', async () => {
    const project = await changedProject();
    const refused = await run(project, ...ARGUMENTS, '--json');
    expect(refused.exitCode).toBe(1);
    expect(JSON.parse(refused.stdout)).toMatchObject({
      problems: [{ type: 'purge', from: 1, to: 2, breaking: [{ path: 'payload.hard', old: 'absent' }] }],
    });
  });
});

test('a newly declared property is noted once, and fails nothing', async () => {
  const project = await makeProject({ 'tasks/purge.ts': taskFile('purge', 'purge', 'z.object({})') });
  await run(project, ...ARGUMENTS);
  const widened = taskFile('purge', 'purge', 'z.object({ note: z.string().optional() })');
  await writeFiles(project, { 'tasks/purge.ts': widened });
  const made = await run(project, ...ARGUMENTS);
  expect(made).toMatchObject({ exitCode: 0, stderr: expect.stringContaining('note: task type') });
  expect((await run(project, ...ARGUMENTS)).stderr).not.toContain('note: ');
});
