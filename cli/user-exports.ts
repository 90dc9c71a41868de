import { existsSync } from 'node:fs';
import { TaskqError } from '../src/domain/errors.ts';
import { isTaskDefinition } from '../src/domain/task-definition.ts';
import type { HandlerRegistry, TaskSet } from '../src/domain/task-set.ts';
import { describeThrown } from '../src/domain/thrown.ts';
import { type CronEntries, isCronEntries } from '../src/scheduler/entries.ts';
import { loadUserModule } from '../src/user-module.ts';

/**
 * The registry of a user's handlers module: its default export, or its export `handlers`.
 * @throws TaskqError `CONFIG_INVALID` naming the file and what it should export
 */
export async function loadHandlers(file: string): Promise<HandlerRegistry> {
  const module = await load(file, 'handlers');
  // A CommonJS module that Node imports has its `exports` for a default export.
  const found = [module['default'], module['handlers'], nested(module['default'], 'handlers')];
  const registry = found.find(isRegistry);
  if (registry !== undefined) return registry;
  const given = found.find((value) => value !== undefined);
  throw new TaskqError(
    'CONFIG_INVALID',
    `handlers: ${file} must export by default, or as \`handlers\`, what defineHandlers({ … }) of ` +
      `generated/tasks.ts returns; ${given === undefined ? `it exports ${names(module)}` : `that is ${describe(given)}`}`,
  );
}

/**
 * The cron list of a user's module: its default export, or its export `cron`.
 * @throws TaskqError `CONFIG_INVALID` naming the file and what it should export
 */
export async function loadCron(file: string): Promise<CronEntries> {
  const module = await load(file, 'cron');
  const found = [module['default'], module['cron'], nested(module['default'], 'cron')];
  const entries = found.find(isCronEntries);
  if (entries !== undefined) return entries;
  throw new TaskqError(
    'CONFIG_INVALID',
    `cron: ${file} must export by default, or as \`cron\`, what defineCron([ … ]) of generated/tasks.ts returns; ` +
      `it exports ${names(module)}`,
  );
}

/**
 * The task set of a generated `tasks.ts`.
 * @throws TaskqError `CONFIG_INVALID` naming the file and what it should export
 */
export async function loadTasks(file: string): Promise<TaskSet> {
  const module = await load(file, 'tasks');
  const tasks = module['tasks'] ?? nested(module['default'], 'tasks');
  if (isTaskSet(tasks)) return tasks;
  throw new TaskqError(
    'CONFIG_INVALID',
    `tasks: ${file} must export \`tasks\`, as the tasks.ts that \`taskq codegen\` writes does; it exports ${names(module)}`,
  );
}

async function load(file: string, what: string): Promise<Readonly<Record<string, unknown>>> {
  if (!existsSync(file)) throw new TaskqError('CONFIG_INVALID', `${what}: there is no file ${file}`);
  try {
    return await loadUserModule(file);
  } catch (cause) {
    const { name, message } = describeThrown(cause);
    throw new TaskqError('CONFIG_INVALID', `${what}: ${file} could not be loaded: ${name}: ${message}`, {
      cause,
    });
  }
}

// By shape, not by class: the user's copy of taskq may be another than this one.
function isRegistry(value: unknown): value is HandlerRegistry {
  if (!(value instanceof Map)) return false;
  return [...value.values()].every(
    (entry: unknown) => isRegistered(entry) && typeof (entry as { handler?: unknown }).handler === 'function',
  );
}

function isTaskSet(value: unknown): value is TaskSet {
  return typeof value === 'object' && value !== null && Object.values(value).every(isRegistered);
}

function isRegistered(entry: unknown): boolean {
  if (typeof entry !== 'object' || entry === null) return false;
  const { definition, revision } = entry as Record<string, unknown>;
  return isTaskDefinition(definition) && typeof revision === 'number';
}

function nested(value: unknown, key: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[key] : undefined;
}

function names(module: object): string {
  return Object.keys(module).join(', ') || 'nothing';
}

function describe(value: unknown): string {
  if (typeof value !== 'object' || value === null) return `a ${typeof value}`;
  return `an object with ${Object.keys(value).slice(0, 5).join(', ') || 'nothing in it'}`;
}
