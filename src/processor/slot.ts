import { type Observer, taskFacts } from '../domain/observer.ts';
import type { Outcome, Run, RunEnd } from '../domain/outcome.ts';
import { retryDelayMs } from '../domain/retry-delay.ts';
import type { HandlerRegistry } from '../domain/task-set.ts';
import { toError } from '../domain/thrown.ts';
import { type AppClock, sleep, type Timers } from '../domain/time.ts';
import type { WriteLane } from '../statements/lanes.ts';
import { clockOffsetMs } from './deadline.ts';
import { decide, decisionFacts, settledAs } from './decide.ts';
import { keepAlive } from './heartbeats.ts';
import type { HeldTask } from './held-task.ts';
import { runHandler } from './run-handler.ts';
import { type RunMiddleware, waitedMs } from './run-middleware.ts';
import { runSecrets, withoutSecrets } from './run-secrets.ts';
import type { RunningTasks } from './running-tasks.ts';
import type { Settler } from './settler.ts';
import type { SharedClaims } from './shared-claims.ts';
import type { WakeChannel } from './wake.ts';

// One slot of a replica, for as long as the replica lives:
//
//   discover   candidate ids on the read lane                    \ shared with the slots that
//   claim      lease one row on the write lane                   / ask at the same moment
//   run        its handler, until the deadline that the database's own stamp gives
//   settle     what it said, under the lease token; then straight back to the top
//
// A slot that finds nothing waits for a wake. One wake releases one slot, and a slot that has claimed signals
// again, so a burst runs across the slots one by one and a single task does not make all of them query.
// The claim has burnt an attempt before anything here runs: a worker that dies in any of these lines costs the
// task one attempt and nothing else.

/** What one run needs. The test kit runs with it too, so that a test settles exactly as a replica does. */
export interface TaskRunDeps {
  readonly settler: Pick<Settler, 'settle' | 'advanceCursor' | 'complete'>;
  readonly write: WriteLane;
  readonly registry: HandlerRegistry;
  readonly running: RunningTasks;
  readonly clock: AppClock;
  readonly timers: Timers;
  readonly marginMs: number;
  readonly observe: Observer;
  /** Around every handler, the first one outermost. */
  readonly middleware: readonly RunMiddleware[];
  /** Aborts when running handlers must stop. */
  readonly aborting: AbortSignal;
  /** Aborts when the replica leaves behind what has not returned. */
  readonly leaving: AbortSignal;
}

export interface SlotDeps extends TaskRunDeps {
  readonly claims: SharedClaims;
  readonly wake: WakeChannel;
  /** Aborts when no further task may be claimed. */
  readonly stopping: AbortSignal;
}

/** Runs until `stopping` aborts. No database error ends it. */
export async function runSlot(deps: SlotDeps): Promise<void> {
  while (!deps.stopping.aborted) {
    const held = await nextTask(deps);
    if (held === undefined) {
      await deps.wake.wait(deps.stopping);
      continue;
    }
    deps.wake.signal();
    await runTask(deps, held);
  }
}

/** A claimed task, or undefined when there is none. While the database does not answer, asks again. */
async function nextTask(deps: SlotDeps): Promise<HeldTask | undefined> {
  for (let failures = 0; !deps.stopping.aborted; ) {
    try {
      const held = await deps.claims.next();
      if (failures > 0) deps.observe({ kind: 'database_recovered', during: 'claim' });
      return held;
    } catch (error) {
      failures += 1;
      const retryMs = retryDelayMs(failures);
      deps.observe({ kind: 'database_failed', during: 'claim', error: toError(error), retryMs });
      await sleep(deps.timers, retryMs, deps.stopping);
    }
  }
  return undefined;
}

/** Runs a claimed task, settles it, and reports it: one `claimed` and one `settled` event. */
export async function runTask(deps: TaskRunDeps, held: HeldTask): Promise<void> {
  const { task } = held;
  const registered = deps.registry.get(task.type);
  // The claim asks for registered types only.
  if (registered === undefined)
    throw new Error(`claimed a task of type ${task.type}, which is not registered`);
  const facts = taskFacts(task);
  observeClaim(deps, held);
  const entry = deps.running.begin(facts);
  const secrets = runSecrets(registered.definition);
  const within = { ...deps, observe: withoutSecrets(deps.observe, secrets, registered.definition) };
  try {
    const run = await runHandler(registered, held, {
      ...within,
      secrets,
      complete: (transaction, resultText) => deps.settler.complete(held, transaction, resultText),
      advanceCursor: (advance) => deps.settler.advanceCursor(held, advance),
      keepAlive: (onLost) => keepAlive(held, registered.definition, within, onLost),
      onDeadline: () => entry.overrun(),
    });
    const decision = decide(run, decisionFacts(task, registered.definition, secrets));
    const returnedAt = deps.clock.monotonic();
    const write = await deps.settler.settle(held, decision.settlement);
    const settleMs = deps.clock.monotonic() - returnedAt;
    const outcome = settledAs(decision, write, run.completed);
    if (advancedNothing(run.end, write)) deps.observe({ kind: 'slice_advanced_nothing', task: facts });
    if (droppedResult(run, outcome, write)) deps.observe({ kind: 'result_dropped', task: facts });
    const dead =
      write === 'written' &&
      (decision.settlement.kind === 'retire' ||
        (decision.settlement.kind !== 'dequeue' && task.attempt >= task.maxAttempts));
    const { ranMs } = run;
    const { error } = decision;
    deps.observe({ kind: 'settled', task: facts, outcome, ranMs, settleMs, error, dead });
  } finally {
    entry.end();
  }
}

// The safety net below `continue`: an advanced cursor has given the row back already, so a release that
// still finds it held proves that the slice saved nothing.
function advancedNothing(end: RunEnd, write: string): boolean {
  return end.kind === 'continue' && write === 'written';
}

// A completion that was rolled back leaves the record to the ordinary settlement, which is written then.
function droppedResult(run: Run, outcome: Outcome, write: string): boolean {
  return outcome === 'success' && write === 'refused' && run.resultText !== run.completedWith;
}

function observeClaim(deps: Pick<TaskRunDeps, 'observe'>, held: HeldTask): void {
  deps.observe({
    kind: 'claimed',
    task: taskFacts(held.task),
    waitedMs: waitedMs(held),
    clockOffsetMs: clockOffsetMs(held.stamp, held.sentAt),
  });
}
