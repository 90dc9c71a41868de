import { z } from 'zod';
import {
  ADMIN_PAGE_DEFAULT,
  ADMIN_PAGE_MAX,
  AUDIT_PAGE_DEFAULT,
  NAME_LENGTH_MAX,
  QUEUE_WEIGHT_MAX,
} from '../domain/limits.ts';
import { OUTCOMES } from '../domain/outcome.ts';

// What goes over the wire, and nothing else: each schema is checked at run time where it takes input, is the source of
// the TypeScript types of the dashboard, and becomes a component of the OpenAPI document under the name it has in
// `components` (at the end).

/** Where the API lies below the handler's own base path. */
export const API_PATH = '/api/v1/admin/async';

const instant = z.iso.datetime();
const taskId = z.string().regex(/^[0-9]{1,19}$/);
const name = z.string().min(1).max(NAME_LENGTH_MAX);
/** A position in a list; made by the API, opaque, and worth nothing to anybody else. */
const cursor = z.string().min(1).max(2_000);

// Input. Query parameters are text; whole numbers are written in digits alone, so that 1e3, 0x10 and 1.5 are refused.

const wholeNumberText = (min: number, max: number) =>
  z
    .string()
    .regex(/^[0-9]{1,9}$/)
    .transform(Number)
    .pipe(z.number().int().min(min).max(max));

const pageSize = (byDefault: number) => wholeNumberText(1, ADMIN_PAGE_MAX).default(byDefault);

const durationText = z
  .string()
  .min(2)
  .max(30)
  .meta({ description: "A length of time with its unit, such as '36h'." });

export const TASK_STATES = ['waiting', 'running', 'scheduled', 'retrying', 'dead'] as const;

export const archivedQuery = z.strictObject({
  page: wholeNumberText(1, 999_999_999).optional().meta({ description: 'From 1 on. Not beside cursor.' }),
  page_size: pageSize(ADMIN_PAGE_DEFAULT),
  cursor: cursor.optional().meta({ description: '`next` of the page before: for any depth.' }),
});

export const tasksQuery = z.strictObject({
  state: z.enum(TASK_STATES).optional(),
  type: name.optional(),
  queue: name.optional(),
  limit: pageSize(ADMIN_PAGE_DEFAULT),
  cursor: cursor.optional(),
});

export const deadQuery = z.strictObject({
  type: name.optional(),
  queue: name.optional(),
  error: z.string().min(1).max(2_000).optional(),
  older_than: durationText.optional(),
  newer_than: durationText.optional(),
  limit: pageSize(ADMIN_PAGE_DEFAULT),
  cursor: cursor.optional(),
});

export const completedQuery = z.strictObject({
  type: name.optional(),
  queue: name.optional(),
  limit: pageSize(ADMIN_PAGE_DEFAULT),
  cursor: cursor.optional(),
});

export const auditQuery = z.strictObject({
  actor: name.optional(),
  action: name.optional(),
  subject: name.optional(),
  limit: pageSize(AUDIT_PAGE_DEFAULT),
  cursor: cursor.optional(),
});

export const noQuery = z.strictObject({});

export const queueParams = z.strictObject({ queue: name });
export const queueTaskParams = z.strictObject({ queue: name, id: taskId });
export const taskParams = z.strictObject({ id: taskId });
export const entryParams = z.strictObject({ entry: name });
export const operationParams = z.strictObject({ id: z.uuid() });
export const noParams = z.strictObject({});

export const deadFilter = z
  .strictObject({
    type: name.optional(),
    queue: name.optional(),
    error: z.string().min(1).max(2_000).optional(),
    olderThan: durationText.optional(),
    newerThan: durationText.optional(),
  })
  .meta({ description: 'Which dead letters; what is left out does not matter, so that {} is all of them.' });

export const bulkBody = z.strictObject({
  filter: deadFilter,
  dryRun: z.boolean().default(false).meta({ description: 'Counts, and writes nothing.' }),
});

export const weightBody = z.strictObject({
  weight: z
    .number()
    .int()
    .min(1)
    .max(QUEUE_WEIGHT_MAX)
    .nullable()
    .meta({ description: 'null: as the replicas are configured.' }),
});

export const loginBody = z.strictObject({ token: z.string().min(1).max(1_000) });

// Output.

const count = z
  .strictObject({
    count: z.number().int().min(0),
    isAtLeast: z
      .boolean()
      .meta({ description: 'The counting ended at its bound: there are so many or more.' }),
  })
  .meta({ description: 'A bounded count: exact unless isAtLeast.' });

const counts = z.strictObject({
  pending: count.meta({ description: 'Waiting, backing off or running.' }),
  due: count.meta({ description: 'Claimable now.' }),
  running: count,
  scheduled: count.meta({ description: 'Waiting for the later time they were enqueued for.' }),
  retrying: count.meta({ description: 'Backing off after a failure.' }),
  dead: count,
  completed: count.meta({ description: 'Finished tasks whose record is kept.' }),
  oldestDueSeconds: z.number().min(0).meta({ description: '0 when none is due.' }),
});

const typeCounts = counts.extend({ type: z.string(), queue: z.string() });

const queueSnapshot = counts.extend({
  queue: z.string(),
  paused: z.boolean(),
  pausedAt: instant.nullable(),
  weight: z.number().int().nullable().meta({ description: 'null: as the replicas are configured.' }),
  // The words of the seed's snapshot, beside ours.
  size: count.meta({ description: 'Pending and dead together.' }),
  active: count.meta({ description: 'As running.' }),
  retry: count.meta({ description: 'As retrying.' }),
  archived: count.meta({ description: 'As dead.' }),
  latencySeconds: z.number().min(0).meta({ description: 'As oldestDueSeconds.' }),
});

const queueList = z.strictObject({ at: instant, queues: z.array(queueSnapshot) });
const queueDetail = queueSnapshot.extend({ at: instant, types: z.array(typeCounts) });

const progress = z.strictObject({ done: z.number().int(), total: z.number().int().nullable() });

const failure = z.strictObject({
  at: z.string(),
  attempt: z.number().int(),
  outcome: z.string(),
  message: z.string(),
  stack: z.string().nullable(),
});

/** A task in a list: without its payload, which may be a megabyte. */
const taskSummary = z.strictObject({
  id: taskId,
  type: z.string(),
  queue: z.string(),
  state: z.enum(TASK_STATES),
  attemptCount: z.number().int(),
  maxAttempts: z.number().int(),
  enqueuedAt: instant,
  runAt: instant,
  lastAttemptedAt: instant.nullable(),
  leaseExpiresAt: instant.nullable(),
  lastError: z.string().nullable(),
  progress: progress.nullable(),
});

const next = cursor.nullable().meta({
  description:
    'The cursor of the next page; null at the end. A page of a filter that matches rarely may be short, even ' +
    'empty, and have a next one: one answer looks through so many rows and no more.',
});

const taskPage = z.strictObject({ tasks: z.array(taskSummary), next });

const auditRecord = z.strictObject({
  id: z.string(),
  at: instant,
  actor: z.string(),
  action: z.string(),
  subject: z.string().nullable(),
  detail: z.record(z.string(), z.unknown()),
});

const timelineEvent = z.strictObject({
  at: instant,
  kind: z.enum(['enqueued', 'attempt_failed', 'claimed', 'deed', 'completed', 'due', 'lease_expires']),
  attempt: z.number().int().nullable(),
  /** The outcome and message of an attempt, the action of a deed. */
  text: z.string().nullable(),
  actor: z.string().nullable(),
});

const taskDetail = z.strictObject({
  id: taskId,
  type: z.string(),
  queue: z.string(),
  state: z.enum([...TASK_STATES, 'completed']),
  payloadText: z.string().meta({
    description:
      'The stored JSON as text, so that numbers keep every digit. Fields that are secret are masked.',
  }),
  payloadRevision: z.number().int(),
  cursorText: z.string().nullable(),
  resultText: z.string().nullable(),
  headers: z.record(z.string(), z.string()),
  traceId: z.string().nullable(),
  attemptCount: z.number().int(),
  maxAttempts: z.number().int().nullable(),
  enqueuedAt: instant,
  runAt: instant.nullable(),
  lastAttemptedAt: instant.nullable(),
  leaseExpiresAt: instant.nullable(),
  completedAt: instant.nullable(),
  keepUntil: instant.nullable(),
  lastError: z.string().nullable(),
  errors: z.array(failure).meta({ description: 'Oldest first; the newest twenty.' }),
  progress: progress.nullable(),
  timeline: z.array(timelineEvent).meta({ description: 'Oldest first.' }),
  audit: z.array(auditRecord),
});

const deadLetter = z.strictObject({
  id: taskId,
  type: z.string(),
  queue: z.string(),
  payloadText: z.string().nullable().meta({
    description: 'As of a task; null when it is longer than a list shows (16 kB).',
  }),
  attemptCount: z.number().int(),
  maxAttempts: z.number().int(),
  lastError: z.string().nullable().meta({ description: 'null: the last worker died without a word.' }),
  enqueuedAt: instant,
  lastAttemptedAt: instant.nullable(),
});

const archivedPage = z.strictObject({
  queue: z.string(),
  page: z.number().int().nullable().meta({ description: 'null when the page was asked for by cursor.' }),
  pageSize: z.number().int(),
  total: count,
  tasks: z.array(deadLetter),
  next,
});

const deadPage = z.strictObject({ tasks: z.array(deadLetter), next });

const completedTask = z.strictObject({
  id: taskId,
  type: z.string(),
  queue: z.string(),
  attemptCount: z.number().int(),
  enqueuedAt: instant,
  startedAt: instant.nullable(),
  completedAt: instant,
  keepUntil: instant,
});

const completedPage = z.strictObject({ tasks: z.array(completedTask), next });

const done = z.strictObject({ id: taskId, status: z.enum(['replayed', 'dropped']) });

const pauseAnswer = z.strictObject({
  queue: z.string(),
  changed: z.boolean().meta({ description: 'false: it was so already, and nothing was written.' }),
  pausedAt: instant.nullable(),
});

const weightAnswer = z.strictObject({
  queue: z.string(),
  changed: z.boolean(),
  before: z.number().int().nullable(),
  weight: z.number().int().nullable(),
});

const bulkCounts = z.strictObject({
  looked: z.number().int(),
  matched: z.number().int(),
  written: z.number().int().meta({ description: 'Replayed or dropped; 0 of a dry run.' }),
  keyTaken: z.number().int().meta({ description: 'Not replayed: a live task has their unique key.' }),
  changed: z.number().int().meta({ description: 'No dead letter any more, or locked.' }),
});

const operation = z.strictObject({
  id: z.uuid(),
  kind: z.enum(['replay', 'drop']),
  dryRun: z.boolean(),
  filter: deadFilter,
  actor: z.string(),
  state: z.enum(['running', 'done', 'cancelled', 'failed']),
  startedAt: instant,
  endedAt: instant.nullable(),
  counts: bulkCounts,
  groups: z
    .array(
      z.strictObject({
        type: z.string(),
        error: z.string().nullable(),
        count: z.number().int(),
        keyTaken: z.number().int(),
      }),
    )
    .nullable()
    .meta({ description: 'Of a dry run that is done: the most frequent kinds, the most frequent first.' }),
  others: z.number().int().nullable().meta({ description: 'Of a dry run: those of other kinds.' }),
  error: z.string().nullable(),
});

const operationList = z.strictObject({ operations: z.array(operation) });

const cronEntry = z.strictObject({
  name: z.string(),
  schedule: z.string(),
  isDefined: z
    .boolean()
    .meta({ description: 'false: only rows know it; it was removed, or no list was given.' }),
  task: z.string().nullable(),
  queue: z.string().nullable(),
  next: z.array(instant),
  last: z
    .strictObject({ tick: instant, outcome: z.enum(['enqueued', 'skipped']), taskId: taskId.nullable() })
    .nullable(),
});

const cronList = z.strictObject({
  hasList: z.boolean().meta({ description: 'Whether this process was given the list of entries.' }),
  entries: z.array(cronEntry),
});

const enqueued = z.strictObject({ id: taskId, status: z.enum(['enqueued', 'existing', 'replaced']) });

const runningTask = z.strictObject({
  id: taskId,
  type: z.string(),
  queue: z.string(),
  attempt: z.number().int(),
});

const replica = z.strictObject({
  id: z.uuid(),
  host: z.string(),
  pid: z.number().int(),
  version: z.string(),
  roles: z.array(z.string()),
  queues: z.array(z.string()).nullable().meta({ description: 'null: every queue.' }),
  slots: z.number().int(),
  busy: z.number().int(),
  overrun: z.number().int().meta({ description: 'Slots lost to handlers that are past their deadline.' }),
  running: z.array(runningTask),
  clockOffsetMs: z.number().nullable(),
  startedAt: instant,
  seenAt: instant,
  isAlive: z.boolean().meta({ description: 'Seen within three of its reports.' }),
});

const replicaList = z.strictObject({ at: instant, replicas: z.array(replica) });

const auditPage = z.strictObject({ records: z.array(auditRecord), next });

const throughput = z.strictObject({
  perMinute: z
    .number()
    .min(0)
    .meta({ description: 'Settled runs, of all live replicas, by their newest reports.' }),
  byOutcome: z.record(z.enum(OUTCOMES), z.number().min(0)).meta({ description: 'Runs per minute.' }),
  meanWaitMs: z.number().min(0).nullable().meta({ description: 'From due to claimed; null when none was.' }),
  meanRunMs: z.number().min(0).nullable(),
});

const overview = z.strictObject({
  at: instant,
  totals: counts,
  slots: z.strictObject({
    replicas: z.number().int(),
    total: z.number().int(),
    busy: z.number().int(),
    overrun: z.number().int(),
  }),
  throughput,
  queues: z.array(queueSnapshot),
  types: z.array(typeCounts),
  unserved: z
    .array(z.string())
    .meta({ description: 'Queues with due tasks that no live replica serves, paused ones aside.' }),
});

const session = z.strictObject({
  actor: z.string(),
  role: z.enum(['read', 'act']),
  isSession: z.boolean().meta({ description: 'Logged in by cookie: there is something to log out of.' }),
});

/** RFC 9457. `code` is stable; the other texts are for people. */
const problem = z.strictObject({
  type: z.literal('about:blank'),
  title: z.string(),
  status: z.number().int(),
  code: z.string(),
  detail: z.string(),
});

/** By the name that the OpenAPI document gives them. */
export const components = {
  ArchivedPage: archivedPage,
  AuditPage: auditPage,
  AuditRecord: auditRecord,
  BulkCounts: bulkCounts,
  BulkRequest: bulkBody,
  CompletedPage: completedPage,
  CompletedTask: completedTask,
  Count: count,
  Counts: counts,
  CronEntry: cronEntry,
  CronList: cronList,
  DeadFilter: deadFilter,
  DeadLetter: deadLetter,
  DeadPage: deadPage,
  Done: done,
  Enqueued: enqueued,
  Failure: failure,
  LoginRequest: loginBody,
  Operation: operation,
  OperationList: operationList,
  Overview: overview,
  PauseAnswer: pauseAnswer,
  Problem: problem,
  Progress: progress,
  QueueDetail: queueDetail,
  QueueList: queueList,
  QueueSnapshot: queueSnapshot,
  Replica: replica,
  ReplicaList: replicaList,
  RunningTask: runningTask,
  Session: session,
  TaskDetail: taskDetail,
  TaskPage: taskPage,
  TaskSummary: taskSummary,
  Throughput: throughput,
  TimelineEvent: timelineEvent,
  TypeCounts: typeCounts,
  WeightAnswer: weightAnswer,
  WeightRequest: weightBody,
} as const;

export type ComponentName = keyof typeof components;

/** The wire type of a component, for whoever answers or reads it. */
export type Wire<Name extends ComponentName> = z.output<(typeof components)[Name]>;

/**
 * A name as one segment of a path. `encodeURIComponent`, but for `.` and `..`: no URL can carry a segment that is one
 * of them, encoded or not, so they go as `~.` and `~..` (and those two names as `~~.` and `~~..`, and so on).
 */
export function pathSegment(name: string): string {
  return /^~*\.{1,2}$/.test(name) ? `~${name}` : encodeURIComponent(name);
}

/** The reverse, of a segment that is percent-decoded already. */
export function nameOfSegment(segment: string): string {
  return /^~+\.{1,2}$/.test(segment) ? segment.slice(1) : segment;
}
