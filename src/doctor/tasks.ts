import { formatDuration } from '../domain/duration.ts';
import {
  DOCTOR_BACKLOG_MS,
  DOCTOR_CEILING_RATIO,
  DOCTOR_CEILING_RATIO_PROBLEM,
  DOCTOR_CEILING_RATIO_WARN,
  DOCTOR_LEASE_MS_MAX,
  DOCTOR_ORPHAN_MS,
  DOCTOR_ORPHAN_PROBLEM_FACTOR,
  DOCTOR_RUNS_MIN,
} from '../domain/limits.ts';
import {
  type MeasuredRuns,
  readBacklog,
  readLapsedLeases,
  readLongLeases,
  readMeasuredRuns,
  readTimedOut,
  readUnknownWork,
} from '../statements/doctor.ts';
import { listReplicas, type Replica } from '../statements/replicas.ts';
import { type Check, knownTypes, ok, verdict } from './check.ts';
import { argument, counted, named } from './phrases.ts';
import { runsTasks } from './workers.ts';

// Whether the tasks that wait are taken, and those that run have room to.

const NO_TASKS = 'name the module of the workers with --handlers, or write handlers into taskq.config.ts';

const ceilings: Check = {
  id: 'ceilings',
  group: 'tasks',
  describes:
    "Each type's ceiling against the 99th percentile of its runs, by the newest 10,000 records of finished tasks; about ten times is right. Warning: below 5 times. Problem: below 2 times. Unknown: nothing was recorded (20 runs of a type at least), or the ceilings are not known.",
  async examine(examination) {
    const records = await examination.onReadLane(readMeasuredRuns);
    const measured = records.filter(({ runs }) => runs >= DOCTOR_RUNS_MIN);
    if (measured.length === 0)
      return verdict(
        'unknown',
        `no type has ${DOCTOR_RUNS_MIN} records of finished tasks to measure by`,
        'give a type a retention to measure its runs, or look at the metric taskq_run_duration_seconds',
      );
    const shown = named(measured.map(describeRuns));
    const types = await knownTypes(examination);
    if (types === undefined) return verdict('unknown', `${shown}; their ceilings are not known`, NO_TASKS);
    const tight = measured.flatMap((runs) => {
      const ceilingMs = types[runs.type]?.ceilingMs;
      if (ceilingMs === undefined || runs.p99Ms * DOCTOR_CEILING_RATIO_WARN <= ceilingMs) return [];
      return [{ runs, ceilingMs }];
    });
    if (tight.length === 0) return ok(shown);
    const cuts = tight.some(({ runs, ceilingMs }) => runs.p99Ms * DOCTOR_CEILING_RATIO_PROBLEM > ceilingMs);
    return verdict(
      cuts ? 'problem' : 'warning',
      named(
        tight.map(({ runs, ceilingMs }) => `${describeRuns(runs)}, ceiling ${formatDuration(ceilingMs)}`),
      ),
      ...tight.map(({ runs }) => {
        const better = Math.ceil((runs.p99Ms * DOCTOR_CEILING_RATIO) / 1_000);
        return `give '${runs.type}' a ceiling of about '${better}s', ten times its worst case, or cut it into slices`;
      }),
    );
  },
};

const describeRuns = ({ type, runs, p99Ms }: MeasuredRuns): string =>
  `${type}: 99 % of ${runs} runs within ${formatDuration(p99Ms)}`;

const deadlinesReached: Check = {
  id: 'deadlines-reached',
  group: 'tasks',
  describes:
    'Unfinished tasks and dead letters whose last run was ended at its deadline: their handler hangs, or its ceiling is too low. Warning: there are some.',
  async examine({ onReadLane }) {
    const timedOut = await onReadLane(readTimedOut);
    if (timedOut.length === 0) return ok('none');
    return verdict(
      'warning',
      named(timedOut.map(({ type, rows }) => `${type}: ${counted(rows, 'task')}`)),
      'see where the handler waits, and that it passes its signal on to what it waits for; else raise the ceiling',
    );
  },
};

const unregisteredTypes: Check = {
  id: 'unregistered-types',
  group: 'tasks',
  describes:
    'Waiting tasks of a type, or of a newer payload revision, that the code given (else: any worker so far) does not know. Warning: there are some. Problem: one has been due for 10 minutes.',
  async examine(examination) {
    const types = await knownTypes(examination);
    if (types === undefined) return verdict('unknown', 'what the workers register is not known', NO_TASKS);
    const revisions = Object.fromEntries(
      Object.entries(types).map(([type, { revision }]) => [type, revision]),
    );
    const unknown = await examination.onReadLane((lane) => readUnknownWork(lane, revisions));
    if (unknown.length === 0) return ok('every waiting task is of a registered type and revision');
    const isLate = unknown.some(({ oldestDueMs }) => oldestDueMs > DOCTOR_BACKLOG_MS);
    return verdict(
      isLate ? 'problem' : 'warning',
      named(
        unknown.map(({ type, revision, rows, oldestDueMs }) => {
          const what = Object.hasOwn(types, type) ? `revision ${revision} of ${type}` : `type ${type}`;
          const since = oldestDueMs > 0 ? `, due for ${formatDuration(oldestDueMs)}` : '';
          return `${what}: ${counted(rows, 'task')}${since}`;
        }),
      ),
      'deploy workers that register them, if a rollout is not doing so already',
      'a type that was renamed or removed: keep its definition and handler until its rows are gone',
    );
  },
};

const orphanedLeases: Check = {
  id: 'orphaned-leases',
  group: 'tasks',
  describes:
    'Leases that ended 5 minutes ago and were not taken over: nobody serves that queue or type. Warning: there are some. Problem: for an hour.',
  async examine({ onReadLane }) {
    const lapsed = await onReadLane((lane) => readLapsedLeases(lane, DOCTOR_ORPHAN_MS));
    if (lapsed.length === 0) return ok('every lease that ended was taken over');
    const isOld = lapsed.some(({ oldestMs }) => oldestMs > DOCTOR_ORPHAN_MS * DOCTOR_ORPHAN_PROBLEM_FACTOR);
    return verdict(
      isOld ? 'problem' : 'warning',
      named(
        lapsed.map(
          ({ type, queue, rows, oldestMs }) =>
            `${type} in queue ${queue}: ${counted(rows, 'task')}, the oldest for ${formatDuration(oldestMs)}`,
        ),
      ),
      ...new Set(
        lapsed.map(
          ({ queue }) =>
            `see that a worker serves the queue and registers the type: taskq work --queues ${argument(queue)}`,
        ),
      ),
    );
  },
};

const longLeases: Check = {
  id: 'long-leases',
  group: 'tasks',
  describes:
    'Leases that end later than a claim of their type could have stamped (a day, where the ceiling is not known): a crash of their worker would be taken over only then. Problem: there are some.',
  async examine(examination) {
    const { leaseMarginMs } = examination;
    const types = (await knownTypes(examination)) ?? {};
    const leaseMs = Object.fromEntries(
      Object.entries(types).map(([type, { ceilingMs }]) => [type, ceilingMs + leaseMarginMs]),
    );
    const long = await examination.onReadLane((lane) =>
      readLongLeases(lane, { leaseMs, otherwiseMs: DOCTOR_LEASE_MS_MAX }),
    );
    if (long.length === 0) return ok('no lease is longer than its type allows');
    return verdict(
      'problem',
      named(
        long.map(
          ({ type, rows, longestMs, id }) =>
            `${type}: ${counted(rows, 'task')} (such as ${id}), leased for another ${formatDuration(longestMs)}`,
        ),
      ),
      'see whether workers with a higher ceiling or margin are running, or somebody has written to the table by hand',
      'a row that nobody holds is given back by: UPDATE async_tasks SET lease_token = NULL, lease_expires_at = NULL WHERE id = …;',
    );
  },
};

const queuesPaused: Check = {
  id: 'queues-paused',
  group: 'tasks',
  describes: 'Queues that an operator has paused. Warning: there are some.',
  async examine({ onPrimary }) {
    const paused = (await onPrimary(readBacklog)).flatMap(({ pausedMs, ...queue }) =>
      pausedMs === undefined ? [] : [{ ...queue, pausedMs }],
    );
    if (paused.length === 0) return ok('none');
    return verdict(
      'warning',
      named(
        paused.map(
          ({ queue, pausedMs, due }) =>
            `${queue} for ${formatDuration(Math.max(0, pausedMs))}, with ${counted(due, 'due task')} waiting`,
        ),
      ),
      ...paused.map(({ queue }) => `taskq queue resume ${argument(queue)}`),
    );
  },
};

const backlog: Check = {
  id: 'backlog',
  group: 'tasks',
  describes:
    'The longest-waiting due task of each queue that is served, and the slots that are free for it. Warning: due for 10 minutes. Problem: and nothing of its queue is running.',
  async examine({ onPrimary }) {
    const { queues, replicas } = await onPrimary(async (lane) => ({
      queues: (await readBacklog(lane)).filter(({ pausedMs }) => pausedMs === undefined),
      replicas: (await listReplicas(lane)).filter(runsTasks),
    }));
    const late = queues.filter(({ oldestDueMs }) => oldestDueMs > DOCTOR_BACKLOG_MS);
    const due = queues.reduce((sum, queue) => sum + queue.due, 0);
    const running = queues.reduce((sum, queue) => sum + queue.running, 0);
    if (late.length === 0) return ok(`${counted(due, 'due task')}, ${running} running, none due for long`);
    const status = late.some((queue) => queue.running === 0) ? 'problem' : 'warning';
    const found = late.map(
      (queue) =>
        `${queue.queue}: ${counted(queue.due, 'due task')}, the oldest for ${formatDuration(queue.oldestDueMs)}, ${queue.running} running, ${freeFor(queue.queue, replicas)}`,
    );
    return verdict(status, named(found), ...new Set(late.map(({ queue }) => remedyFor(queue, replicas))));
  },
};

const serving = (queue: string, replicas: readonly Replica[]): readonly Replica[] =>
  replicas.filter(({ queues }) => queues === undefined || queues.includes(queue));

const freeSlots = (replicas: readonly Replica[]): number =>
  replicas.reduce((sum, { slots, busy }) => sum + slots - busy, 0);

function freeFor(queue: string, replicas: readonly Replica[]): string {
  const those = serving(queue, replicas);
  const slots = those.reduce((sum, replica) => sum + replica.slots, 0);
  return those.length === 0 ? 'no worker serves it' : `${freeSlots(those)} of ${counted(slots, 'slot')} free`;
}

function remedyFor(queue: string, replicas: readonly Replica[]): string {
  const those = serving(queue, replicas);
  if (those.length === 0) return `start a worker that serves it: taskq work --queues ${argument(queue)}`;
  if (freeSlots(those) > 0)
    return 'slots are free, so the workers do not know the tasks (the check unregistered-types) or cannot claim: see their log';
  return 'no slot is free: add workers, or slots with --concurrency; see what takes so long: taskq stats';
}

export const TASK_CHECKS = [
  ceilings,
  deadlinesReached,
  unregisteredTypes,
  orphanedLeases,
  longLeases,
  queuesPaused,
  backlog,
];
