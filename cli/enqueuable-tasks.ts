import { existsSync } from 'node:fs';
import path from 'node:path';
import { readGenerated } from '../src/codegen/emit.ts';
import { loadDefinitions } from '../src/codegen/load-definitions.ts';
import { nextManifest, parseManifest } from '../src/codegen/manifest.ts';
import { TaskqError } from '../src/domain/errors.ts';
import type { RegisteredTask, TaskSet } from '../src/domain/task-set.ts';
import { loadTasks } from './user-exports.ts';

export interface TaskSource {
  readonly cwd: string;
  /** A generated `tasks.ts`; before all else. */
  readonly tasks: string | undefined;
  readonly definitions: readonly string[] | undefined;
  /** Where the manifest lies, and a `tasks.ts` when nothing else is given. */
  readonly out: string;
}

/**
 * The task types that can be enqueued: of the module given, else of the definitions, else of `<out>/tasks.ts`.
 * @throws TaskqError `CONFIG_INVALID` when there is nothing to load; `CODEGEN_FAILED` for definitions or a
 *   manifest that cannot be used, or that differ
 */
export async function enqueuableTasks({ cwd, tasks, definitions, out }: TaskSource): Promise<TaskSet> {
  if (tasks !== undefined) return loadTasks(path.resolve(cwd, tasks));
  const outDir = path.resolve(cwd, out);
  if (definitions !== undefined) return fromDefinitions(cwd, definitions, outDir);
  const generated = ['tasks.ts', 'tasks.js']
    .map((name) => path.join(outDir, name))
    .find((file) => existsSync(file));
  if (generated !== undefined) return loadTasks(generated);
  throw new TaskqError(
    'CONFIG_INVALID',
    `no task types: there is no tasks.ts in ${outDir}; run \`taskq codegen\`, or give --tasks or --definitions`,
  );
}

async function fromDefinitions(cwd: string, globs: readonly string[], outDir: string): Promise<TaskSet> {
  const loaded = await loadDefinitions({ cwd, definitions: globs, outDir });
  const definitions = loaded.map(({ definition }) => definition);
  const file = path.join(outDir, 'payloads.json');
  const committed = parseManifest((await readGenerated(file)) ?? '{}', file);
  const current = nextManifest(committed, definitions);
  const registered = definitions.map((definition): [string, RegisteredTask] => {
    const revision = committed.get(definition.type)?.revision;
    // A row must not carry the number of a schema that it was not checked with.
    if (revision === undefined || revision !== current.get(definition.type)?.revision) {
      throw new TaskqError(
        'CODEGEN_FAILED',
        `task type '${definition.type}' is not in ${file} as it is defined now; run \`taskq codegen\``,
      );
    }
    return [definition.type, { definition, revision }];
  });
  return Object.fromEntries(registered);
}
