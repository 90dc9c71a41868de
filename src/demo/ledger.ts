import type { Transaction } from 'kysely';
import { enqueue, enqueueMany, type PayloadInput, type TaskType } from '../../generated/tasks.ts';
import type { Duration, Enqueued, TaskId } from '../index.ts';
import type { DemoDatabase, DemoTables } from './schema.ts';

// The demo's own bookkeeping, which a service does not need: it notes every task that a transaction enqueued in the
// same transaction, and those of a transaction that rolled back in one of their own. So at the end the promise can
// be checked row by row: what was committed ran, what was rolled back never existed.

/** A task that was enqueued. */
export interface EnqueuedTask {
  readonly id: TaskId;
  readonly type: TaskType;
}

/** A transaction that enqueued tasks and rolled back; `cause` is what its work threw. */
export class RolledBack extends Error {
  readonly tasks: readonly EnqueuedTask[];

  constructor(tasks: readonly EnqueuedTask[], cause: unknown) {
    super(`rolled back, and ${tasks.length} tasks with it`, { cause });
    this.name = 'RolledBack';
    this.tasks = tasks;
  }
}

/** Enqueues in one transaction, and remembers which tasks are new. */
export class NotedEnqueues {
  readonly tasks: EnqueuedTask[] = [];
  readonly #tx: Transaction<DemoTables>;

  constructor(tx: Transaction<DemoTables>) {
    this.#tx = tx;
  }

  async enqueue<Type extends TaskType>(
    type: Type,
    payload: PayloadInput<Type>,
    options: { readonly delay?: Duration } = {},
  ): Promise<void> {
    this.#note(type, [await enqueue(this.#tx, type, payload, options)]);
  }

  /** Answers how many are new: of a unique type the others are there already. */
  async enqueueMany<Type extends TaskType>(
    type: Type,
    payloads: readonly PayloadInput<Type>[],
  ): Promise<number> {
    return this.#note(type, await enqueueMany(this.#tx, type, payloads));
  }

  #note(type: TaskType, enqueued: readonly Enqueued[]): number {
    const fresh = enqueued.filter(({ status }) => status === 'enqueued');
    this.tasks.push(...fresh.map(({ id }) => ({ id, type })));
    return fresh.length;
  }
}

/**
 * Runs `work` in a transaction whose enqueues are noted in the ledger. Answers its result and its tasks.
 * @throws RolledBack with the tasks that went with the transaction, whatever `work` threw
 */
export async function notedTransaction<Result>(
  db: DemoDatabase,
  work: (tx: Transaction<DemoTables>, tasks: NotedEnqueues) => Promise<Result>,
): Promise<{ result: Result; tasks: readonly EnqueuedTask[] }> {
  let tasks: readonly EnqueuedTask[] = [];
  try {
    return await db.transaction().execute(async (tx) => {
      const noted = new NotedEnqueues(tx);
      tasks = noted.tasks;
      const result = await work(tx, noted);
      await note(tx, tasks, true);
      return { result, tasks };
    });
  } catch (error) {
    await note(db, tasks, false);
    throw new RolledBack(tasks, error);
  }
}

async function note(db: DemoDatabase, tasks: readonly EnqueuedTask[], committed: boolean): Promise<void> {
  if (tasks.length === 0) return;
  const rows = tasks.map(({ id, type }) => ({ task_id: id, task_type: type, committed }));
  await db.insertInto('ledger').values(rows).execute();
}
