import type { HandlerTransaction } from '../domain/handler.ts';
import type { Lease, TaskId } from '../domain/ids.ts';
import { type Observer, taskFacts } from '../domain/observer.ts';
import { type FailureRecord, type Settlement, unreachable, type Write } from '../domain/outcome.ts';
import { retryDelayMs } from '../domain/retry-delay.ts';
import { toError } from '../domain/thrown.ts';
import { type AppClock, sleep, type Timers } from '../domain/time.ts';
import { callerLane, type QueryExecutor, type WriteLane } from '../statements/lanes.ts';
import {
  advanceCursor,
  complete,
  completeKeeping,
  dequeue,
  dequeueKeeping,
  type Finished,
  recordFailure,
  release,
  retire,
} from '../statements/settle.ts';
import type { HeldTask } from './held-task.ts';
import type { Advance } from './sliced-context.ts';

// Writes the consequences. A write that cannot reach the database is tried again for as long as the lease lives:
// until then the row is nobody else's, so the answer is only late. After that it is given up, and the re-run is
// the at-least-once that was promised.

export interface SettlerDeps {
  readonly write: WriteLane;
  readonly clock: AppClock;
  readonly timers: Timers;
  readonly observe: Observer;
  /** Aborted when the replica closes: a write still failing then is given up, and expiry gets there. */
  readonly closing: AbortSignal;
}

/** A delete that takes longer (its row is locked, the disk stalls) holds no claim back. */
const DEQUEUE_JOIN_MS_MAX = 20;

type Answer = Write | 'unreachable';

export class Settler {
  readonly #deps: SettlerDeps;
  readonly #dequeues: SharedDequeues;
  // Apart from the others: tasks without a record pay nothing for it, and a record that cannot be written (its table
  // is full, a grant is missing) holds back only the tasks that asked for one.
  readonly #keepingDequeues: SharedDequeues;

  constructor(deps: SettlerDeps) {
    this.#deps = deps;
    const { write } = deps;
    this.#dequeues = new SharedDequeues((finished) =>
      dequeue(
        write,
        finished.map(({ lease }) => lease),
      ),
    );
    this.#keepingDequeues = new SharedDequeues((finished) => dequeueKeeping(write, finished));
  }

  settle(held: HeldTask, settlement: Settlement): Promise<Answer> {
    let current = settlement;
    return this.#retried(held, async (lane) => {
      try {
        return await this.#write(lane, held, current);
      } catch (error) {
        // The server refused the text itself, which no retry of the same text can change.
        if (!isDataError(error) || current.kind === 'dequeue') throw error;
        current = { ...current, failure: unstorable(current.failure) };
        return await this.#write(lane, held, current);
      }
    });
  }

  /** Resolves when the deletes under way have answered, or soon; undefined when there is none. */
  dequeueUnderWay(): Promise<void> | undefined {
    const [plain, keeping] = [this.#dequeues.underWay, this.#keepingDequeues.underWay];
    if (plain === undefined && keeping === undefined) return undefined;
    const underWay = Promise.all([plain, keeping]);
    return new Promise((resolve) => {
      const timer = this.#deps.timers.after(DEQUEUE_JOIN_MS_MAX, resolve);
      void underWay.then(() => {
        timer.cancel();
        resolve();
      });
    });
  }

  advanceCursor(held: HeldTask, { cursorText, progressText }: Advance): Promise<Answer> {
    return this.#retried(held, (lane, lease) => advanceCursor(lane, lease, cursorText, progressText));
  }

  /** One try, in the handler's transaction: what it throws is the handler's, and so is the rollback. */
  complete(held: HeldTask, transaction: HandlerTransaction, resultText: string | undefined): Promise<Write> {
    const { lease, isKept } = held.task;
    const lane = callerLane(transaction as QueryExecutor, this.#deps.write.schema);
    return isKept ? completeKeeping(lane, { lease, resultText }) : complete(lane, lease);
  }

  #write(lane: WriteLane, { task }: HeldTask, settlement: Settlement): Promise<Write> {
    const { lease, isKept } = task;
    switch (settlement.kind) {
      case 'dequeue': {
        const { resultText } = settlement;
        return (isKept ? this.#keepingDequeues : this.#dequeues).dequeue({ lease, resultText });
      }
      case 'record_failure':
        return recordFailure(lane, lease, settlement.failure, settlement.backoffMs);
      case 'retire':
        return retire(lane, lease, settlement.failure);
      case 'release':
        return release(lane, lease, settlement.failure);
      default:
        return unreachable(settlement);
    }
  }

  async #retried(held: HeldTask, write: (lane: WriteLane, lease: Lease) => Promise<Write>): Promise<Answer> {
    const { clock, timers, observe, closing } = this.#deps;
    for (let failures = 0; ; ) {
      try {
        const answer = await write(this.#deps.write, held.task.lease);
        // After a failure whose answer was lost, a refusal under a live lease can only mean that the lost write
        // had landed: nobody else may touch the row before the lease ends.
        return answer === 'refused' && failures > 0 && held.leaseLeftMs(clock) > 0 ? 'written' : answer;
      } catch (thrown) {
        failures += 1;
        const leftMs = held.leaseLeftMs(clock);
        if (leftMs <= 0 || closing.aborted) return 'unreachable';
        const retryMs = Math.min(leftMs, retryDelayMs(failures));
        observe({
          kind: 'settlement_retried',
          task: taskFacts(held.task),
          error: toError(thrown),
          retryMs,
        });
        await sleep(timers, retryMs, closing);
      }
    }
  }
}

/** Answers the ids that were deleted; one that is missing was refused. */
type DeleteTogether = (finished: readonly Finished[]) => Promise<Set<TaskId>>;

/**
 * Slots that finish while a delete is under way are deleted by the next one, together: one commit for many
 * tasks on a busy replica, no wait on a quiet one.
 */
class SharedDequeues {
  readonly #delete: DeleteTogether;
  #waiting: (Finished & { answer(write: Write): void; fail(error: unknown): void })[] = [];
  #underWay: Promise<void> | undefined;

  constructor(deleteTogether: DeleteTogether) {
    this.#delete = deleteTogether;
  }

  /** Never rejects: who is deleted hears of a failure, who only waits does not. */
  get underWay(): Promise<void> | undefined {
    return this.#underWay;
  }

  dequeue(finished: Finished): Promise<Write> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ ...finished, answer: resolve, fail: reject });
      if (this.#underWay === undefined) void this.#run();
    });
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      this.#underWay = this.#next();
      await this.#underWay;
    }
    this.#underWay = undefined;
  }

  async #next(): Promise<void> {
    // One turn of the loop: handlers that end in the same turn share the delete.
    await Promise.resolve();
    const batch = this.#waiting;
    this.#waiting = [];
    try {
      const deleted = await this.#delete(batch);
      for (const { lease, answer } of batch) answer(deleted.has(lease.id) ? 'written' : 'refused');
    } catch (error) {
      for (const { fail } of batch) fail(error);
    }
  }
}

/** SQLSTATE class 22: the value cannot be stored, whoever sends it again. */
function isDataError(error: unknown): boolean {
  return typeof error === 'object' && error !== null && 'code' in error && /^22/.test(String(error.code));
}

function unstorable(failure: FailureRecord): FailureRecord {
  const { attempt, outcome } = failure;
  return { attempt, outcome, message: 'the error could not be stored as text; the log has it' };
}
