import { TaskqError } from './errors.ts';
import type { Handler } from './handler.ts';
import type { TaskDefinition } from './task-definition.ts';

/** A definition with the payload revision that the manifest gives it. Written by the codegen. */
export interface RegisteredTask<D extends TaskDefinition = TaskDefinition> {
  readonly definition: D;
  readonly revision: number;
}

/** Every task type of one code base, by name: what `generated/tasks.ts` exports as `tasks`. */
export type TaskSet = Readonly<Record<string, RegisteredTask>>;

/** One handler for each type, none missing and none too many. */
export type HandlersFor<Tasks extends TaskSet> = {
  readonly [Type in keyof Tasks]: Handler<Tasks[Type]['definition']>;
};

/** A task type as a replica runs it. */
export interface RegisteredHandler extends RegisteredTask {
  readonly handler: Handler<TaskDefinition>;
}

declare const taskTypes: unique symbol;

/**
 * Task type → definition, revision and handler: everything that a replica can run.
 * `Tasks` is there for the types alone: it tells the test kit which payload each task type takes.
 */
export type HandlerRegistry<Tasks extends TaskSet = TaskSet> = ReadonlyMap<string, RegisteredHandler> & {
  readonly [taskTypes]?: Tasks;
};

/**
 * Joins definitions and handlers.
 * @throws TaskqError `DEFINITION_INVALID` for a type without a handler, a handler without a type, or a
 *   handler that is no function. TypeScript finds these first; JavaScript callers meet the error.
 */
export function createRegistry<Tasks extends TaskSet>(
  tasks: Tasks,
  handlers: HandlersFor<Tasks>,
): HandlerRegistry<Tasks> {
  for (const type of Object.keys(handlers)) {
    if (!Object.hasOwn(tasks, type)) {
      throw new TaskqError('DEFINITION_INVALID', `handler '${type}': no task type of that name is defined`);
    }
  }
  const registry = new Map<string, RegisteredHandler>();
  for (const [type, task] of Object.entries(tasks)) {
    const handler: unknown = Object.hasOwn(handlers, type) ? handlers[type] : undefined;
    if (typeof handler !== 'function') {
      throw new TaskqError('DEFINITION_INVALID', `task type '${type}': it has no handler function`);
    }
    registry.set(type, { ...task, handler: handler as Handler<TaskDefinition> });
  }
  return registry;
}
