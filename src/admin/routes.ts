import type { z } from 'zod';
import { parseTaskId, type TaskId } from '../domain/ids.ts';
import { ADMIN_COUNT_MAX } from '../domain/limits.ts';
import type { Operator } from '../operator.ts';
import { type CronEntries, createCron } from '../scheduler/entries.ts';
import * as contracts from './contracts.ts';
import { readDeadPlace, readIdPlace, readTaskPlace, writePlace } from './cursors.ts';
import { type Operations, toFilter } from './operations.ts';
import type { Overviews } from './overview.ts';
import { AdminProblem, type ProblemCode } from './problems.ts';
import type { AdminRole } from './sessions.ts';
import { taskDetail } from './task-detail.ts';
import * as wire from './wire.ts';

// Every route of the API in one table: the server, the OpenAPI document and the tests read it.

/** What a route's function works with. */
export interface RouteContext {
  /** Acts, and is audited, as whoever asks. */
  readonly operator: Operator;
  /** As the audit names whoever asks. */
  readonly actor: string;
  readonly cron: CronEntries | undefined;
  readonly overviews: Overviews;
  readonly operations: Operations;
}

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';

/** One route as data. Input has been parsed by the contracts before `run` is called. */
export interface Route {
  readonly method: Method;
  /** Below the path of the API, its parameters as `:name`. */
  readonly path: string;
  /** In the OpenAPI document. */
  readonly name: string;
  readonly summary: string;
  readonly role: AdminRole;
  readonly params: z.ZodObject;
  readonly query: z.ZodObject;
  /** Undefined for no body. */
  readonly body: z.ZodType | undefined;
  readonly answer: z.ZodType;
  /** Refusals beyond those that every route has. */
  readonly problems: readonly ProblemCode[];
  // biome-ignore lint/suspicious/noExplicitAny: `route` has checked the input against the contracts.
  readonly run: (context: RouteContext, input: any) => Promise<unknown>;
}

interface RouteOf<
  Params extends z.ZodObject,
  Query extends z.ZodObject,
  Body extends contracts.ComponentName | undefined,
  Answer extends contracts.ComponentName,
> {
  readonly params?: Params;
  readonly query?: Query;
  readonly body?: Body;
  readonly answer: Answer;
  readonly role?: AdminRole;
  readonly problems?: readonly ProblemCode[];
  readonly run: (
    context: RouteContext,
    input: {
      readonly params: z.output<Params>;
      readonly query: z.output<Query>;
      readonly body: Body extends contracts.ComponentName ? contracts.Wire<Body> : undefined;
    },
  ) => Promise<contracts.Wire<Answer>>;
}

/** GET reads and anybody may; the other methods act. */
function route<
  Answer extends contracts.ComponentName,
  Params extends z.ZodObject = typeof contracts.noParams,
  Query extends z.ZodObject = typeof contracts.noQuery,
  Body extends contracts.ComponentName | undefined = undefined,
>(place: string, name: string, summary: string, of: RouteOf<Params, Query, Body, Answer>): Route {
  const [method, path] = place.split(' ') as [Method, string];
  return {
    method,
    path,
    name,
    summary,
    role: of.role ?? (method === 'GET' ? 'read' : 'act'),
    params: of.params ?? contracts.noParams,
    query: of.query ?? contracts.noQuery,
    body: of.body === undefined ? undefined : contracts.components[of.body],
    answer: contracts.components[of.answer],
    problems: of.problems ?? [],
    run: of.run,
  };
}

const overviewRoutes = [
  route('GET /overview', 'readOverview', 'Totals, slots, throughput, and every queue and type', {
    answer: 'Overview',
    run: ({ overviews }) => overviews.read(),
  }),
  route('GET /queues', 'listQueues', 'A snapshot of every queue', {
    answer: 'QueueList',
    async run({ overviews }) {
      const { at, queues } = await overviews.read();
      return { at, queues };
    },
  }),
  route('GET /queues/:queue', 'readQueue', 'One queue, with its task types', {
    params: contracts.queueParams,
    answer: 'QueueDetail',
    problems: ['NOT_FOUND'],
    async run({ overviews }, { params }) {
      const { at, queues, types } = await overviews.read();
      const queue = queues.find((each) => each.queue === params.queue);
      if (queue === undefined) {
        throw new AdminProblem('NOT_FOUND', 'no task is in this queue, and nothing was said about it');
      }
      return { ...queue, at, types: types.filter((type) => type.queue === params.queue) };
    },
  }),
  route('GET /replicas', 'listReplicas', 'The replicas that were seen within the last day', {
    answer: 'ReplicaList',
    run: async ({ operator }) => ({
      at: new Date().toISOString(),
      replicas: (await operator.pages.listReplicas()).map(wire.replica),
    }),
  }),
];

const queueRoutes = [
  route('POST /queues/:queue/pause', 'pauseQueue', 'Let nothing more be claimed from the queue', {
    params: contracts.queueParams,
    answer: 'PauseAnswer',
    async run({ operator }, { params: { queue } }) {
      const { changed, pausedAt } = await operator.pauseQueue(queue);
      return { queue, changed, pausedAt: pausedAt.toISOString() };
    },
  }),
  route('POST /queues/:queue/resume', 'resumeQueue', 'Let it be claimed from again', {
    params: contracts.queueParams,
    answer: 'PauseAnswer',
    async run({ operator }, { params: { queue } }) {
      const before = await operator.resumeQueue(queue);
      return { queue, changed: before !== undefined, pausedAt: null };
    },
  }),
  route('PUT /queues/:queue/weight', 'setQueueWeight', 'Set the share of the queue in every replica', {
    params: contracts.queueParams,
    body: 'WeightRequest',
    answer: 'WeightAnswer',
    async run({ operator }, { params: { queue }, body: { weight } }) {
      const { changed, before } = await operator.setQueueWeight(queue, weight ?? undefined);
      return { queue, changed, before: before ?? null, weight };
    },
  }),
];

const archivedRoutes = [
  route('GET /queues/:queue/archived', 'listArchived', 'Dead letters of a queue, by page number or cursor', {
    params: contracts.queueParams,
    query: contracts.archivedQuery,
    answer: 'ArchivedPage',
    run: listArchived,
  }),
  route('POST /queues/:queue/archived/run-all', 'runAllArchived', 'Replay every dead letter of a queue', {
    params: contracts.queueParams,
    answer: 'Operation',
    problems: ['BUSY'],
    run: ({ operations, operator, actor }, { params: { queue } }) =>
      operations.begin({ kind: 'replay', filter: { queue }, dryRun: false, operator, actor }),
  }),
  route('POST /queues/:queue/archived/:id/run', 'runArchived', 'Replay one dead letter', {
    params: contracts.queueTaskParams,
    answer: 'Done',
    problems: ['NOT_DEAD', 'KEY_TAKEN'],
    run: async ({ operator }, { params }) => replayOne(operator, await deadOfQueue(operator, params)),
  }),
  route('DELETE /queues/:queue/archived/:id', 'dropArchived', 'Delete one dead letter for good', {
    params: contracts.queueTaskParams,
    answer: 'Done',
    problems: ['NOT_DEAD'],
    run: async ({ operator }, { params }) => dropOne(operator, await deadOfQueue(operator, params)),
  }),
];

const deadRoutes = [
  route('GET /dead', 'listDead', 'Dead letters that a filter matches, those that became due last first', {
    query: contracts.deadQuery,
    answer: 'DeadPage',
    async run({ operator }, { query }) {
      const { older_than: olderThan, newer_than: newerThan, limit, cursor, type, queue, error } = query;
      const filter = toFilter({ type, queue, error, olderThan, newerThan });
      const page = await operator.pages.listDead({ limit, filter, after: readDeadPlace(cursor) });
      return { tasks: page.tasks.map(wire.deadLetter), next: writePlace(page.next) };
    },
  }),
  ...(['replay', 'drop'] as const).map((kind) =>
    route(
      `POST /dead/${kind}`,
      `${kind}Many`,
      `${kind === 'replay' ? 'Replay' : 'Delete'} every dead letter that a filter matches`,
      {
        body: 'BulkRequest',
        answer: 'Operation',
        problems: ['BUSY'],
        run: ({ operations, operator, actor }, { body: { filter, dryRun } }) =>
          operations.begin({ kind, filter, dryRun, operator, actor }),
      },
    ),
  ),
  route('GET /operations', 'listOperations', 'Bulk operations of this process, the newest first', {
    answer: 'OperationList',
    run: async ({ operations }) => ({ operations: operations.list() }),
  }),
  route('GET /operations/:id', 'readOperation', 'How far one is', {
    params: contracts.operationParams,
    answer: 'Operation',
    problems: ['NOT_FOUND'],
    async run({ operations }, { params: { id } }) {
      const found = operations.find(id);
      if (found === undefined) throw new AdminProblem('NOT_FOUND', 'this process knows no such operation');
      return found;
    },
  }),
  route('POST /operations/:id/cancel', 'cancelOperation', 'End one after the batch under way', {
    params: contracts.operationParams,
    answer: 'Operation',
    problems: ['NOT_FOUND', 'NOT_RUNNING'],
    run: ({ operations }, { params: { id } }) => operations.cancel(id),
  }),
];

const taskRoutes = [
  route('GET /tasks', 'listTasks', 'Tasks that are not done', {
    query: contracts.tasksQuery,
    answer: 'TaskPage',
    async run({ operator }, { query: { limit, cursor, ...filter } }) {
      const page = await operator.pages.listTasks({ limit, filter, after: readTaskPlace(cursor) });
      return { tasks: page.tasks.map(wire.taskSummary), next: writePlace(page.next) };
    },
  }),
  route('GET /tasks/:id', 'readTask', 'One task, wherever it is, with its errors and its timeline', {
    params: contracts.taskParams,
    answer: 'TaskDetail',
    problems: ['NOT_FOUND'],
    async run({ operator }, { params: { id } }) {
      const taskId = parseTaskId(id);
      const detail = taskId === undefined ? undefined : await taskDetail(operator, taskId);
      if (detail === undefined) {
        throw new AdminProblem('NOT_FOUND', 'done without a record, pruned, dropped, or never enqueued');
      }
      return detail;
    },
  }),
  route('POST /tasks/:id/replay', 'replayTask', 'Replay one dead letter, whichever its queue', {
    params: contracts.taskParams,
    answer: 'Done',
    problems: ['NOT_DEAD', 'KEY_TAKEN'],
    run: ({ operator }, { params: { id } }) => replayOne(operator, parseTaskId(id)),
  }),
  route('POST /tasks/:id/drop', 'dropTask', 'Delete one dead letter for good, whichever its queue', {
    params: contracts.taskParams,
    answer: 'Done',
    problems: ['NOT_DEAD'],
    run: ({ operator }, { params: { id } }) => dropOne(operator, parseTaskId(id)),
  }),
  route('GET /completed', 'listCompleted', 'Finished tasks whose record is kept, the newest first', {
    query: contracts.completedQuery,
    answer: 'CompletedPage',
    async run({ operator }, { query: { limit, cursor, type, queue } }) {
      const page = await operator.pages.listCompleted({ limit, type, queue, before: readIdPlace(cursor) });
      return { tasks: page.items.map(wire.completedTask), next: writePlace(idPlace(page.next)) };
    },
  }),
];

const cronRoutes = [
  route('GET /cron', 'listCron', 'Cron entries, with their last and next ticks', {
    answer: 'CronList',
    run: async ({ operator, cron }) => ({
      hasList: cron !== undefined,
      entries: (await operator.listCron(cron ?? NO_LIST)).map(wire.cronEntry),
    }),
  }),
  route('POST /cron/:entry/run', 'runCron', 'Enqueue the task of an entry now; no tick is taken', {
    params: contracts.entryParams,
    answer: 'Enqueued',
    problems: ['NOT_FOUND', 'NO_CRON_LIST'],
    async run({ operator, cron }, { params: { entry } }) {
      if (cron === undefined) throw new AdminProblem('NO_CRON_LIST');
      if (!cron.entries.some(({ name }) => name === entry)) {
        throw new AdminProblem('NOT_FOUND', 'the list has no entry of this name');
      }
      const { id, status } = await operator.runCron(cron, entry);
      return { id, status };
    },
  }),
];

const auditRoutes = [
  route('GET /audit', 'listAudit', 'What operators have done, newest first', {
    query: contracts.auditQuery,
    answer: 'AuditPage',
    async run({ operator }, { query: { limit, cursor, actor, action, subject } }) {
      const page = await operator.pages.listAudit({
        limit,
        actor,
        action,
        subject,
        before: readIdPlace(cursor),
      });
      return { records: page.items.map(wire.auditRecord), next: writePlace(idPlace(page.next)) };
    },
  }),
];

/** All of them. `/session`, `/login`, `/logout`, `/events` and `/openapi.json` are the server's own. */
export const ROUTES: readonly Route[] = [
  ...overviewRoutes,
  ...queueRoutes,
  ...archivedRoutes,
  ...deadRoutes,
  ...taskRoutes,
  ...cronRoutes,
  ...auditRoutes,
];

async function listArchived(
  { operator }: RouteContext,
  {
    params: { queue },
    query: { page, page_size: pageSize, cursor },
  }: {
    readonly params: z.output<typeof contracts.queueParams>;
    readonly query: z.output<typeof contracts.archivedQuery>;
  },
): Promise<contracts.Wire<'ArchivedPage'>> {
  if (page !== undefined && (page < 1 || cursor !== undefined)) {
    throw new AdminProblem('REQUEST_INVALID', 'page: from 1 on, and not beside cursor');
  }
  const total = await operator.pages.countDead(queue);
  const number = page ?? 1;
  const skip = (number - 1) * pageSize;
  const answer = { queue, page: cursor === undefined ? number : null, pageSize, total };
  if (cursor !== undefined) {
    const found = await operator.pages.listDead({
      limit: pageSize,
      filter: { queue },
      after: readDeadPlace(cursor),
    });
    return { ...answer, tasks: found.tasks.map(wire.deadLetter), next: writePlace(found.next) };
  }
  if (!total.isAtLeast && skip >= total.count) return { ...answer, tasks: [], next: null };
  if (skip + pageSize > ADMIN_COUNT_MAX) {
    throw new AdminProblem(
      'REQUEST_INVALID',
      `page: beyond ${ADMIN_COUNT_MAX} dead letters go on by cursor, with \`next\` of a page before`,
    );
  }
  const found = await operator.pages.listDeadByNumber({ limit: pageSize, queue, skip });
  const isLast = !total.isAtLeast && skip + found.tasks.length >= total.count;
  const next = isLast ? null : writePlace(found.next);
  return { ...answer, tasks: found.tasks.map(wire.deadLetter), next };
}

async function replayOne(operator: Operator, id: TaskId | undefined): Promise<contracts.Wire<'Done'>> {
  const replay = id === undefined ? 'refused' : await operator.replay(id);
  if (id === undefined || replay === 'refused') throw new AdminProblem('NOT_DEAD');
  if (replay === 'key_taken') throw new AdminProblem('KEY_TAKEN');
  return { id, status: 'replayed' };
}

async function dropOne(operator: Operator, id: TaskId | undefined): Promise<contracts.Wire<'Done'>> {
  if (id === undefined || (await operator.drop(id)) === 'refused') throw new AdminProblem('NOT_DEAD');
  return { id, status: 'dropped' };
}

/** A dead letter is named with its queue, so that a mistyped id does not meet one of another. */
async function deadOfQueue(
  operator: Operator,
  { queue, id }: { readonly queue: string; readonly id: string },
): Promise<TaskId> {
  const taskId = parseTaskId(id);
  const letter = taskId === undefined ? undefined : await operator.showDead(taskId);
  if (letter === undefined || letter.queue !== queue) throw new AdminProblem('NOT_DEAD');
  return letter.id;
}

const NO_LIST = createCron({}, []);

const idPlace = (id: string | undefined) => (id === undefined ? undefined : { id });
