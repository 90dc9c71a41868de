import { deletePrefix, purgeExplore } from '../handlers/index.ts';
import { dequeueUnleased } from '../index.ts';
import type { EnqueuedTask } from './ledger.ts';
import type { Stores } from './stores.ts';

// Two requests do at once what would otherwise be done soon, for somebody who is looking. The task was enqueued before
// all the same, in the transaction that it belongs to: a service that crashes here leaves it to a worker.

/** How long a request may work on it before it leaves it to a worker. Milliseconds. */
const INLINE_MS_MAX = 2_000;

/** Removes a stack that was just deleted from Explore, so that the next search does not find it. */
export async function purgeAtOnce(stores: Stores, stackId: string, task: EnqueuedTask): Promise<void> {
  const endsAt = performance.now() + INLINE_MS_MAX;
  const remainingMs = () => endsAt - performance.now();
  const services = { primary: stores.db, explore: stores.explore };
  await doneInline(stores, task, (signal) => purgeExplore(services, stackId, { signal, remainingMs }));
}

/** Removes what a run has written below a prefix of its own that no stack will ever have. */
export async function deleteAtOnce(stores: Stores, prefix: string, task: EnqueuedTask): Promise<void> {
  await doneInline(stores, task, (signal) => deletePrefix(stores.objects, prefix, signal));
}

/** Does the work of a task, and takes the task out of the queue unless a worker has it by now. */
async function doneInline(
  { db }: Stores,
  { id }: EnqueuedTask,
  work: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  try {
    await work(AbortSignal.timeout(INLINE_MS_MAX));
    await db.transaction().execute(async (tx) => {
      if (!(await dequeueUnleased(tx, id))) return;
      await tx.updateTable('ledger').set({ done_inline: true }).where('task_id', '=', id).execute();
    });
  } catch {
    // Nothing is lost: the task is still there.
  }
}
