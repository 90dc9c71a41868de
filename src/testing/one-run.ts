import type { QueueEvent } from '../domain/observer.ts';
import type { HandlerRegistry, RegisteredHandler } from '../domain/task-set.ts';
import type { Timers } from '../domain/time.ts';
import type { HeldTask } from '../processor/held-task.ts';
import type { RunMiddleware } from '../processor/run-middleware.ts';
import { RunningTasks } from '../processor/running-tasks.ts';
import { runTask, type TaskRunDeps } from '../processor/slot.ts';

type SettledEvent = Extract<QueueEvent, { kind: 'settled' }>;

/** What the handler itself did, before anything was decided. */
interface HandlerCall {
  readonly returned: unknown;
  readonly threw: boolean;
  readonly thrown: unknown;
}

export interface OneRun {
  readonly settled: SettledEvent;
  /** Undefined when the handler was not started. */
  readonly call: HandlerCall | undefined;
}

export interface OneRunDeps extends Pick<TaskRunDeps, 'settler' | 'write' | 'clock' | 'marginMs'> {
  readonly registered: RegisteredHandler;
  readonly timers: Timers;
  readonly aborting: AbortSignal;
  readonly middleware: readonly RunMiddleware[];
}

/** Runs one task through the slot's own code, and keeps what production only logs. */
export async function runOnce(deps: OneRunDeps, held: HeldTask): Promise<OneRun> {
  const { registered } = deps;
  let call: HandlerCall | undefined;
  let settled: SettledEvent | undefined;
  let middlewareError: Error | undefined;
  const recorded: RegisteredHandler = {
    ...registered,
    async handler(payload, context) {
      try {
        const returned = await registered.handler(payload, context);
        call = { returned, threw: false, thrown: undefined };
        return returned;
      } catch (thrown) {
        call = { returned: undefined, threw: true, thrown };
        throw thrown;
      }
    },
  };
  const registry: HandlerRegistry = new Map([[held.task.type, recorded]]);
  await runTask(
    {
      ...deps,
      registry,
      running: new RunningTasks(deps.clock),
      leaving: new AbortController().signal,
      observe(event) {
        if (event.kind === 'settled') settled = event;
        if (event.kind === 'middleware_failed') middlewareError ??= event.error;
      },
    },
    held,
  );
  // A replica only logs it; a test wants to hear of it.
  if (middlewareError !== undefined) throw middlewareError;
  if (settled === undefined) throw new Error(`task ${held.task.id} (${held.task.type}) was not settled`);
  return { settled, call };
}

/** Without heartbeats: where no other worker can see the row, nobody could take it over either. */
export function withoutHeartbeat(registered: RegisteredHandler): RegisteredHandler {
  return { ...registered, definition: { ...registered.definition, heartbeatMs: undefined } };
}

/**
 * The handler registered for `type`.
 * @throws Error naming the types there are
 */
export function registeredFor(handlers: HandlerRegistry, type: string): RegisteredHandler {
  const registered = handlers.get(type);
  if (registered !== undefined) return registered;
  const known = [...handlers.keys()].sort().join(', ');
  throw new Error(
    `no handler is registered for the task type '${type}'; there are ${known === '' ? 'none' : known}`,
  );
}
