import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';

/** The root of this repository. */
export const REPOSITORY = path.resolve(import.meta.dirname, '../..');

/** Loads without the whole library: definitions are all that a task file needs of it. */
const TSCONFIG = JSON.stringify({
  compilerOptions: {
    module: 'NodeNext',
    paths: { taskq: [path.join(REPOSITORY, 'src/domain/task-definition.ts')] },
  },
});

/** A user's project in a folder of its own, with this repository's packages. Removed after the test. */
export async function makeProject(
  files: Readonly<Record<string, string>>,
  name = 'project',
): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'taskq-codegen-test-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const project = path.join(folder, name);
  await mkdir(project);
  await symlink(path.join(REPOSITORY, 'node_modules'), path.join(folder, 'node_modules'));
  await writeFiles(project, { 'tsconfig.json': TSCONFIG, ...files });
  return project;
}

export async function writeFiles(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    const file = path.join(folder, name);
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, text);
  }
}

/** The source of a file with one definition. `type` is put in as a literal, whatever it holds. */
export function taskFile(name: string, type: string, payload = 'z.string()'): string {
  return tasksFile([{ name, type, payload }]);
}

export function tasksFile(
  tasks: readonly { readonly name: string; readonly type: string; readonly payload?: string }[],
): string {
  return [
    `import { defineTask } from 'taskq';`,
    `import { z } from 'zod';`,
    ...tasks.map(
      ({ name, type, payload = 'z.string()' }) =>
        `export const ${name} = defineTask({ type: ${JSON.stringify(type)}, payload: ${payload}, ceiling: '1m' });`,
    ),
    '',
  ].join('\n');
}
