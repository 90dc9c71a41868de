import type { TaskId } from '../domain/ids.ts';
import { createEnqueuer, type Enqueued } from '../enqueue.ts';
import { recordTick, type TickOutcome, takeTick } from '../statements/cron.ts';
import type { WriteLane } from '../statements/lanes.ts';
import { inTransaction } from '../statements/statement.ts';
import type { CheckedEntry, CronEntries } from './entries.ts';

/** In the headers of the task: the entry that it is of, and its tick, so that a handler can know them. */
const ENTRY_HEADER = 'taskq-cron-entry';
const TICK_HEADER = 'taskq-cron-tick';

/** What came of trying to take a tick. */
export type Taken =
  | { readonly answer: TickOutcome; readonly taskId: TaskId; readonly nowMs: number }
  | { readonly answer: 'lost' | 'early'; readonly nowMs: number };

/**
 * Takes one tick of an entry and enqueues its task, both or neither: in one transaction, short, of its own.
 * Rejects with the database's error, or the enqueue's; then the tick is as it was before.
 */
export function takeAndEnqueue(
  cron: CronEntries,
  write: WriteLane,
  entry: CheckedEntry,
  tickMs: number,
): Promise<Taken> {
  const tick = { entry: entry.name, tickMs, schedule: entry.schedule.text };
  return inTransaction(write, async (within) => {
    const { answer, nowMs } = await takeTick(within, tick);
    if (answer !== 'taken') return { answer, nowMs };
    const { id: taskId, status } = await enqueueEntry(cron, within, entry, tickMs);
    const outcome = status === 'existing' ? 'skipped' : 'enqueued';
    await recordTick(within, tick, { taskId, outcome });
    return { answer: outcome, taskId, nowMs };
  });
}

/** Enqueues the task of an entry within the transaction of `write`; without a tick when a person asked for it. */
export function enqueueEntry(
  { tasks, enqueuerOptions }: CronEntries,
  write: WriteLane,
  { name, task, payload, options }: CheckedEntry,
  tickMs: number | undefined,
): Promise<Enqueued> {
  const tick = tickMs === undefined ? {} : { [TICK_HEADER]: new Date(tickMs).toISOString() };
  const headers = { ...options.headers, [ENTRY_HEADER]: name, ...tick };
  const { enqueue } = createEnqueuer(tasks, { ...enqueuerOptions, schema: write.schema });
  return enqueue(write.executor, task, payload, { ...options, headers });
}
