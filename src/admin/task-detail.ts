import type { TaskId } from '../domain/ids.ts';
import { ADMIN_PAGE_DEFAULT } from '../domain/limits.ts';
import type { AuditRecord, Operator, ShownTask } from '../operator.ts';
import type { Wire } from './contracts.ts';
import { auditRecord, isoOrNull, progressOf } from './wire.ts';

/** A task wherever it is, with what is known of its life; undefined when it is nowhere (any more). */
export async function taskDetail(operator: Operator, id: TaskId): Promise<Wire<'TaskDetail'> | undefined> {
  const [task, deeds] = await Promise.all([
    operator.showTask(id),
    operator.pages.listAudit({ limit: ADMIN_PAGE_DEFAULT, subject: id }),
  ]);
  if (task === undefined) return undefined;
  const audit = deeds.items.filter((record) => isOfTask(record, id));
  return {
    id: task.id,
    type: task.type,
    queue: task.queue,
    state: task.state,
    payloadText: task.payloadText,
    payloadRevision: task.payloadRevision,
    headers: { ...task.headers },
    traceId: traceIdOf(task.headers),
    attemptCount: task.attemptCount,
    enqueuedAt: task.enqueuedAt.toISOString(),
    errors: task.errors.map(({ at, attempt, outcome, message, stack }) => ({
      at,
      attempt,
      outcome,
      message,
      stack: stack ?? null,
    })),
    ...whereItStands(task),
    timeline: timelineOf(task, audit),
    audit: audit.map(auditRecord),
  };
}

type Standing = Pick<
  Wire<'TaskDetail'>,
  | 'cursorText'
  | 'resultText'
  | 'maxAttempts'
  | 'runAt'
  | 'lastAttemptedAt'
  | 'leaseExpiresAt'
  | 'completedAt'
  | 'keepUntil'
  | 'lastError'
  | 'progress'
>;

function whereItStands(task: ShownTask): Standing {
  if (task.state === 'completed') {
    return {
      cursorText: null,
      resultText: task.resultText ?? null,
      maxAttempts: null,
      runAt: null,
      lastAttemptedAt: isoOrNull(task.startedAt),
      leaseExpiresAt: null,
      completedAt: task.completedAt.toISOString(),
      keepUntil: task.keepUntil.toISOString(),
      lastError: task.errors.at(-1)?.message ?? null,
      progress: null,
    };
  }
  return {
    cursorText: task.cursorText ?? null,
    resultText: null,
    maxAttempts: task.maxAttempts,
    runAt: task.runAt.toISOString(),
    lastAttemptedAt: isoOrNull(task.lastAttemptedAt),
    leaseExpiresAt: isoOrNull(task.leaseExpiresAt),
    completedAt: null,
    keepUntil: null,
    lastError: task.lastError ?? null,
    progress: progressOf(task.progress),
  };
}

/** Deeds about queues and cron entries have names for subjects, and a queue may be called as a task's id is. */
function isOfTask({ action, subject }: AuditRecord, id: TaskId): boolean {
  return subject === undefined || (subject === id && /^(task|dead)\./.test(action));
}

type TimelineEvent = Wire<'TimelineEvent'>;

function timelineOf(task: ShownTask, audit: readonly AuditRecord[]): TimelineEvent[] {
  const events = [
    event('enqueued', task.enqueuedAt),
    ...task.errors.map(({ at, attempt, outcome, message }) =>
      event('attempt_failed', new Date(at), { attempt, text: `${outcome}: ${message}` }),
    ),
    ...audit.map(({ at, action, actor }) => event('deed', at, { text: action, actor })),
    ...(task.state === 'completed'
      ? [
          event('claimed', task.startedAt, { attempt: task.attemptCount }),
          event('completed', task.completedAt),
        ]
      : unfinishedEvents(task)),
  ];
  return events
    .filter((each) => each !== undefined)
    .sort((left, right) => Date.parse(left.at) - Date.parse(right.at));
}

function unfinishedEvents(task: Exclude<ShownTask, { state: 'completed' }>): (TimelineEvent | undefined)[] {
  const { state, runAt, lastAttemptedAt, leaseExpiresAt, attemptCount } = task;
  if (state === 'running') {
    return [
      event('claimed', lastAttemptedAt, { attempt: attemptCount }),
      event('lease_expires', leaseExpiresAt),
    ];
  }
  return state === 'dead' ? [] : [event('due', runAt)];
}

function event(
  kind: TimelineEvent['kind'],
  at: Date | undefined,
  more: Partial<Pick<TimelineEvent, 'attempt' | 'text' | 'actor'>> = {},
): TimelineEvent | undefined {
  // A moment that is none, in a row that was written by hand.
  if (at === undefined || Number.isNaN(at.getTime())) return undefined;
  return { at: at.toISOString(), kind, attempt: null, text: null, actor: null, ...more };
}

/** Of a `traceparent` header, as W3C has it. */
function traceIdOf(headers: Readonly<Record<string, string>>): string | null {
  return /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(headers['traceparent'] ?? '')?.[1] ?? null;
}
