import { checkFilter, checkQueueName, type DeadLetterFilter } from './domain/dead-letter-filter.ts';
import { TaskqError } from './domain/errors.ts';
import { ADMIN_PAGE_MAX } from './domain/limits.ts';
import { type Masked, maskRows } from './masking/masked-rows.ts';
import type { Lanes } from './postgres/lanes.ts';
import type { AuditRecord } from './statements/audit.ts';
import {
  countDead,
  type DeadListPage,
  type DeadPlace,
  type ListedDeadLetter,
  listDeadPage,
} from './statements/dead-pages.ts';
import { type GaugeCounts, readOverview } from './statements/gauges.ts';
import { listQueueSettings } from './statements/queues.ts';
import {
  type ListedCompletedTask,
  listAuditPage,
  listCompletedPage,
  type RecordPage,
} from './statements/record-pages.ts';
import { listReplicas, type Replica } from './statements/replicas.ts';
import { listTaskPage, type TaskFilter, type TaskPlace, type TaskSummary } from './statements/task-pages.ts';

export type { DeadPlace, ListedDeadLetter } from './statements/dead-pages.ts';
export type { GaugeCounts } from './statements/gauges.ts';
export type { ListedCompletedTask, RecordPage } from './statements/record-pages.ts';
export type { Replica } from './statements/replicas.ts';
export { STRETCHES, type TaskFilter, type TaskPlace } from './statements/task-pages.ts';

/** Counts of every type and queue up to their bounds, and what operators have said about queues. */
export interface QueueCounts {
  readonly counts: readonly GaugeCounts[];
  readonly settings: readonly {
    readonly queue: string;
    readonly weight: number | undefined;
    readonly pausedAt: Date | undefined;
  }[];
}

/** A task in a list. */
export type ListedTask = Omit<TaskSummary, 'payloadText'>;

/**
 * Reads that stay quick whatever the tables hold: bounded counts, and lists page by page. A page of a filter that
 * matches rarely may be short, and have a `next` one. `limit`: 1 to 200.
 * Every call may reject with a database error, and with `OPTION_INVALID` for what no name or limit can be.
 */
export interface OperatorPages {
  countQueues(): Promise<QueueCounts>;
  /** Unfinished tasks, of each queue in the order in which they become due; without state and queue the newest first. */
  listTasks(page: {
    readonly limit: number;
    readonly filter: TaskFilter;
    readonly after?: TaskPlace | undefined;
  }): Promise<{ readonly tasks: readonly ListedTask[]; readonly next: TaskPlace | undefined }>;
  /** Dead letters, those that became due last first. */
  listDead(page: {
    readonly limit: number;
    readonly filter: DeadLetterFilter;
    readonly after?: DeadPlace | undefined;
  }): Promise<DeadListPage>;
  /** Dead letters of one queue by the number of the page, from 0 on; to a depth that is worth walking anew each time. */
  listDeadByNumber(page: {
    readonly limit: number;
    readonly queue: string;
    readonly skip: number;
  }): Promise<DeadListPage>;
  /** How many dead letters the queue has, up to ten thousand. */
  countDead(queue: string): Promise<{ readonly count: number; readonly isAtLeast: boolean }>;
  listCompleted(page: Parameters<typeof listCompletedPage>[1]): Promise<RecordPage<ListedCompletedTask>>;
  listAudit(page: Parameters<typeof listAuditPage>[1]): Promise<RecordPage<AuditRecord>>;
  /** Seen within the last day. */
  listReplicas(): Promise<Replica[]>;
}

export function operatorPages({ read, write }: Lanes): OperatorPages {
  const maskDead = async (page: DeadListPage): Promise<DeadListPage> => {
    const shown = await maskRows(read, page.tasks.map(withText));
    return { ...page, tasks: shown.map((row, position) => withoutText(row, page.tasks[position])) };
  };
  return {
    async countQueues() {
      const [{ counts }, settings] = await Promise.all([readOverview(read), listQueueSettings(write)]);
      return { counts, settings };
    },
    async listTasks({ limit, filter, after }) {
      const page = await listTaskPage(read, { limit: checkLimit(limit), filter, after });
      // A last error may quote the payload, so it is shown through the masks of it.
      const shown = await maskRows(read, page.tasks.map(withText));
      return {
        ...page,
        tasks: shown.map(({ payloadText: _text, secretsKnown: _known, ...task }) => task),
      };
    },
    listDead: async ({ limit, filter, after }) =>
      maskDead(await listDeadPage(read, { limit: checkLimit(limit), filter: checkFilter(filter), after })),
    listDeadByNumber: async ({ limit, queue, skip }) => {
      const filter = checkFilter({ queue: checkQueueName(queue) });
      return maskDead(await listDeadPage(read, { limit: checkLimit(limit), filter, skip }));
    },
    countDead: async (queue) => countDead(read, checkQueueName(queue)),
    listCompleted: async (page) => listCompletedPage(read, { ...page, limit: checkLimit(page.limit) }),
    listAudit: async (page) => listAuditPage(read, { ...page, limit: checkLimit(page.limit) }),
    listReplicas: () => listReplicas(write),
  };
}

/** What is masked must have a text: of a payload that is too long for a list there is nothing to show. */
function withText<Row extends { readonly payloadText: string | undefined }>(
  row: Row,
): Omit<Row, 'payloadText'> & { readonly payloadText: string } {
  return { ...row, payloadText: row.payloadText ?? 'null' };
}

function withoutText(
  {
    secretsKnown: _,
    ...row
  }: Masked<Omit<ListedDeadLetter, 'payloadText'> & { readonly payloadText: string }>,
  before: ListedDeadLetter | undefined,
): ListedDeadLetter {
  return { ...row, payloadText: before?.payloadText === undefined ? undefined : row.payloadText };
}

function checkLimit(limit: number): number {
  if (Number.isInteger(limit) && limit >= 1 && limit <= ADMIN_PAGE_MAX) return limit;
  throw new TaskqError('OPTION_INVALID', `limit: expected a whole number from 1 to ${ADMIN_PAGE_MAX}`);
}
