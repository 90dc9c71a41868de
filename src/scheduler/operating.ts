import { TaskqError } from '../domain/errors.ts';
import type { TaskId } from '../domain/ids.ts';
import type { Enqueued } from '../enqueue.ts';
import { recordAudit } from '../statements/audit.ts';
import { listEntries, type StoredEntry, type TickOutcome } from '../statements/cron.ts';
import type { ReadLane, WriteLane } from '../statements/lanes.ts';
import { inTransaction } from '../statements/statement.ts';
import type { CheckedEntry, CronEntries } from './entries.ts';
import { enqueueEntry } from './take.ts';

/** One entry, of the list or of the rows, as an operator sees it. */
export interface CronStatus {
  readonly name: string;
  /** With its time zone. */
  readonly schedule: string;
  /** Of an entry of the list; undefined for one that only rows know, since it was removed or renamed. */
  readonly defined:
    | {
        readonly task: string;
        readonly queue: string;
        /** The next two ticks; fewer when the schedule ends. */
        readonly next: readonly Date[];
      }
    | undefined;
  /** Undefined when it has had no tick yet. */
  readonly last:
    | { readonly tick: Date; readonly outcome: TickOutcome; readonly taskId: TaskId | undefined }
    | undefined;
}

/** The entries of the list in its order, then those that only rows know. Times are the database's. */
export async function listCron(read: ReadLane, cron: CronEntries): Promise<CronStatus[]> {
  const { nowMs, entries } = await listEntries(read);
  const stored = new Map(entries.map((entry) => [entry.entry, entry]));
  const listed = cron.entries.map((entry) => statusOf(entry, stored.get(entry.name), nowMs));
  const names = new Set(cron.entries.map(({ name }) => name));
  const removed = entries
    .filter(({ entry }) => !names.has(entry))
    .map((entry) => ({
      name: entry.entry,
      schedule: entry.schedule,
      defined: undefined,
      last: lastOf(entry),
    }));
  return [...listed, ...removed];
}

function statusOf(entry: CheckedEntry, stored: StoredEntry | undefined, nowMs: number): CronStatus {
  const { name, schedule, task, queue } = entry;
  const next: Date[] = [];
  for (let tickMs = schedule.next(nowMs); tickMs !== undefined && next.length < NEXT_TICKS; ) {
    next.push(new Date(tickMs));
    tickMs = schedule.next(tickMs);
  }
  return {
    name,
    schedule: schedule.text,
    defined: { task, queue, next },
    last: stored === undefined ? undefined : lastOf(stored),
  };
}

/** Two show the interval. */
const NEXT_TICKS = 2;

function lastOf({ last }: StoredEntry): CronStatus['last'] {
  return last && { tick: new Date(last.tickMs), outcome: last.outcome, taskId: last.taskId };
}

/**
 * Enqueues the task of an entry now, with the audit in one transaction; no tick is taken. With `overlap: 'skip'` it
 * answers the task that is live (`existing`), and nothing is written.
 * @throws TaskqError `OPTION_INVALID` when the list has no such entry; else as `enqueue`
 */
export async function runEntry(
  write: WriteLane,
  cron: CronEntries,
  name: string,
  actor: string,
): Promise<Enqueued> {
  const entry = cron.entries.find((each) => each.name === name);
  if (entry === undefined) {
    const names = cron.entries.map((each) => each.name).join(', ');
    throw new TaskqError('OPTION_INVALID', `there is no cron entry '${name}'; there are ${names || 'none'}`);
  }
  return inTransaction(write, async (within) => {
    const enqueued = await enqueueEntry(cron, within, entry, undefined);
    if (enqueued.status !== 'existing') {
      const detail = { taskId: enqueued.id, status: enqueued.status };
      await recordAudit(within, { actor, action: 'cron.run', subject: name, detail });
    }
    return enqueued;
  });
}
