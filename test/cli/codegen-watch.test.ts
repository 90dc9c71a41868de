import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { makeProject, taskFile, writeFiles } from '../codegen/project.ts';
import { build, start, taskq } from '../support/cli.ts';
import { waitFor } from '../support/wait.ts';

beforeAll(build);

const ARGUMENTS = ['codegen', '--watch', '--definitions', 'tasks/*.ts', '--no-database-types'];

test('a watch generates again after a change, survives a broken file, and ends with Ctrl-C', async () => {
  const cwd = await makeProject({ 'tasks/purge.ts': taskFile('purge', 'purge') });
  const tasksText = () => readFile(path.join(cwd, 'generated/tasks.ts'), 'utf8').catch(() => '');
  const holds = (text: string) => waitFor(async () => (await tasksText()).includes(text), { what: text });
  const watch = start(ARGUMENTS, { cwd });
  await watch.until(/written {3}generated\/tasks\.ts/);
  await watch.until(/watching for changes/);

  await writeFiles(cwd, { 'tasks/audit.ts': taskFile('audit', 'audit') });
  await holds('audit:');

  await writeFiles(cwd, { 'tasks/audit.ts': 'export const audit = (' });
  await watch.until(/CODEGEN_FAILED/);
  expect(await tasksText()).toContain('audit:');

  await writeFiles(cwd, { 'tasks/audit.ts': taskFile('audit', 'audit_again') });
  await holds('audit_again:');

  watch.child.kill('SIGINT');
  expect((await watch.ended()).code).toBe(0);
});

test('a watch that is also to check is misuse', async () => {
  const { code, stderr } = await taskq([...ARGUMENTS, '--check'], { cwd: await makeProject({}) });
  expect(code).toBe(2);
  expect(stderr).toContain('--watch');
});
