import type { SliceProgress } from '../domain/slice.ts';
import type { AuditRecord, CronStatus } from '../operator.ts';
import type { ListedCompletedTask, ListedDeadLetter, ListedTask, Replica } from '../operator-pages.ts';
import type { Wire } from './contracts.ts';

// From what the operator answers to what goes over the wire: moments as ISO 8601, what is missing as null.

export const isoOrNull = (moment: Date | undefined): string | null => moment?.toISOString() ?? null;

export const progressOf = (progress: SliceProgress | undefined): Wire<'Progress'> | null =>
  progress === undefined ? null : { done: progress.done, total: progress.total ?? null };

export function taskSummary(task: ListedTask): Wire<'TaskSummary'> {
  return {
    id: task.id,
    type: task.type,
    queue: task.queue,
    state: task.state,
    attemptCount: task.attemptCount,
    maxAttempts: task.maxAttempts,
    enqueuedAt: task.enqueuedAt.toISOString(),
    runAt: task.runAt.toISOString(),
    lastAttemptedAt: isoOrNull(task.lastAttemptedAt),
    leaseExpiresAt: isoOrNull(task.leaseExpiresAt),
    lastError: task.lastError ?? null,
    progress: progressOf(task.progress),
  };
}

export function deadLetter(letter: ListedDeadLetter): Wire<'DeadLetter'> {
  return {
    id: letter.id,
    type: letter.type,
    queue: letter.queue,
    payloadText: letter.payloadText ?? null,
    attemptCount: letter.attemptCount,
    maxAttempts: letter.maxAttempts,
    lastError: letter.lastError ?? null,
    enqueuedAt: letter.enqueuedAt.toISOString(),
    lastAttemptedAt: isoOrNull(letter.lastAttemptedAt),
  };
}

export function completedTask(task: ListedCompletedTask): Wire<'CompletedTask'> {
  return {
    id: task.id,
    type: task.type,
    queue: task.queue,
    attemptCount: task.attemptCount,
    enqueuedAt: task.enqueuedAt.toISOString(),
    startedAt: isoOrNull(task.startedAt),
    completedAt: task.completedAt.toISOString(),
    keepUntil: task.keepUntil.toISOString(),
  };
}

export function auditRecord(record: AuditRecord): Wire<'AuditRecord'> {
  const { id, at, actor, action, subject, detail } = record;
  return { id, at: at.toISOString(), actor, action, subject: subject ?? null, detail: { ...detail } };
}

export function cronEntry({ name, schedule, defined, last }: CronStatus): Wire<'CronEntry'> {
  return {
    name,
    schedule,
    isDefined: defined !== undefined,
    task: defined?.task ?? null,
    queue: defined?.queue ?? null,
    next: defined?.next.map((tick) => tick.toISOString()) ?? [],
    last:
      last === undefined
        ? null
        : { tick: last.tick.toISOString(), outcome: last.outcome, taskId: last.taskId ?? null },
  };
}

export function replica(of: Replica): Wire<'Replica'> {
  return {
    id: of.id,
    host: of.host,
    pid: of.pid,
    version: of.version,
    roles: [...of.roles],
    queues: of.queues === undefined ? null : [...of.queues],
    slots: of.slots,
    busy: of.busy,
    overrun: of.overrun,
    running: of.running.map(({ id, type, queue, attempt }) => ({ id, type, queue, attempt })),
    clockOffsetMs: of.clockOffsetMs ?? null,
    startedAt: of.startedAt.toISOString(),
    seenAt: of.seenAt.toISOString(),
    isAlive: of.isAlive,
  };
}
