import assert from 'node:assert/strict';
import { sql } from 'kysely';
import { ACTOR_DEFAULT } from '../domain/actor.ts';
import { recordAudit } from './audit.ts';
import { countTasks } from './counts.ts';
import type { ReadLane, WriteLane } from './lanes.ts';
import { databaseNow, epochText, hasAttemptsLeft } from './predicates.ts';
import { inTransaction, parameter, statement } from './statement.ts';
import { wakeChannel } from './wake-channel.ts';

// What operators say about queues. Discovery and claim read these rows; each write is audited in its transaction, and
// one that changes nothing writes nothing.

/** A queue with tasks, or one about which an operator has said something. */
export interface QueueState {
  readonly queue: string;
  /** As an operator has set it; undefined: as the replicas are configured. */
  readonly weight: number | undefined;
  /** Undefined when it is served. */
  readonly pausedAt: Date | undefined;
  /** The sums of `stats()` over the types. */
  readonly pending: number;
  readonly due: number;
  readonly running: number;
  readonly dead: number;
  /** How long the longest-waiting due task has been due; 0 when none is. */
  readonly oldestDueSeconds: number;
}

const settingsStatement = statement((db) =>
  db
    .selectFrom('async_queues')
    .where((q) => q.or([q('weight', 'is not', null), q('paused_at', 'is not', null)]))
    .select((q) => ['name', 'weight', epochText(q.ref('paused_at')).as('paused_at')]),
);

const pausedStatement = statement((db) =>
  db
    .selectFrom('async_queues')
    .where('paused_at', 'is not', null)
    .orderBy('name')
    .select((q) => ['name', epochText(q.ref('paused_at').$notNull()).as('paused_at')]),
);

const pauseStatement = statement((db) =>
  db
    .insertInto('async_queues')
    .values({ name: parameter<string>('queue'), paused_at: databaseNow })
    .onConflict((conflict) =>
      conflict
        .column('name')
        .doUpdateSet({ paused_at: databaseNow, changed_at: databaseNow })
        .where('async_queues.paused_at', 'is', null),
    )
    .returning((q) => epochText(q.ref('async_queues.paused_at')).as('paused_at')),
);

const findStatement = statement((db) =>
  db
    .selectFrom('async_queues')
    .where('name', '=', parameter<string>('queue'))
    .select((q) => epochText(q.ref('paused_at')).as('paused_at')),
);

const hasTaskStatement = statement((db) =>
  db.selectNoFrom((s) =>
    s
      .exists(
        s
          .selectFrom('async_tasks')
          .where('queue', '=', parameter<string>('queue'))
          .where(hasAttemptsLeft)
          .select(sql.lit(1).as('one')),
      )
      .as('has_task'),
  ),
);

const resumeStatement = statement((db) =>
  db
    .with('paused', (cte) =>
      cte
        .selectFrom('async_queues')
        .where('name', '=', parameter<string>('queue'))
        .where('paused_at', 'is not', null)
        .forUpdate()
        .select(['name', 'paused_at']),
    )
    .updateTable('async_queues')
    .from('paused')
    .whereRef('async_queues.name', '=', 'paused.name')
    .set({ paused_at: null, changed_at: databaseNow })
    .returning([
      (q) => epochText(q.ref('paused.paused_at')).as('paused_at'),
      sql<string>`pg_notify(${parameter<string>('channel')}::text, '')::text`.as('sent'),
    ]),
);

const ensureStatement = statement((db) =>
  db
    .insertInto('async_queues')
    .values({ name: parameter<string>('queue') })
    .onConflict((conflict) => conflict.column('name').doNothing()),
);

const lockStatement = statement((db) =>
  db.selectFrom('async_queues').where('name', '=', parameter<string>('queue')).forUpdate().select('weight'),
);

const setWeightStatement = statement((db) =>
  db
    .updateTable('async_queues')
    .where('name', '=', parameter<string>('queue'))
    .set({ weight: parameter<number | null>('weight'), changed_at: databaseNow }),
);

/** What operators have said about queues, by name. */
export async function listQueueSettings(
  lane: WriteLane,
): Promise<{ queue: string; weight: number | undefined; pausedAt: Date | undefined }[]> {
  const rows = await settingsStatement.run(lane, {});
  return rows.map(({ name, weight, paused_at }) => ({
    queue: name,
    weight: weight ?? undefined,
    pausedAt: toDate(paused_at),
  }));
}

/** By name. The counts are those of the read lane; what operators have said comes from the primary. */
export async function listQueues(read: ReadLane, write: WriteLane): Promise<QueueState[]> {
  const [counts, settings] = await Promise.all([countTasks(read), settingsStatement.run(write, {})]);
  const states = new Map<string, QueueState>();
  for (const { name, weight, paused_at } of settings) {
    states.set(name, { ...NO_TASKS, queue: name, weight: weight ?? undefined, pausedAt: toDate(paused_at) });
  }
  for (const count of counts) {
    const state = states.get(count.queue) ?? { ...NO_TASKS, queue: count.queue };
    states.set(count.queue, {
      ...state,
      pending: state.pending + count.pending,
      due: state.due + count.due,
      running: state.running + count.running,
      dead: state.dead + count.dead,
      oldestDueSeconds: Math.max(state.oldestDueSeconds, count.oldestDueSeconds),
    });
  }
  return [...states.values()].sort((left, right) => (left.queue < right.queue ? -1 : 1));
}

export interface PausedQueue {
  readonly queue: string;
  readonly pausedAt: Date;
}

export async function listPaused(read: ReadLane): Promise<PausedQueue[]> {
  const rows = await pausedStatement.run(read, {});
  return rows.map(({ name, paused_at }) => ({ queue: name, pausedAt: new Date(Number(paused_at) * 1_000) }));
}

const NO_TASKS = {
  weight: undefined,
  pausedAt: undefined,
  pending: 0,
  due: 0,
  running: 0,
  dead: 0,
  oldestDueSeconds: 0,
};

export interface Pause {
  /** False: it was paused already, since `pausedAt`. */
  readonly changed: boolean;
  readonly pausedAt: Date;
  /** Whether a task waits or runs in it; false may also mean that the name is mistyped. */
  readonly hasTask: boolean;
}

/** Nothing more is claimed from the queue once this has committed; what runs, runs on. */
export async function pauseQueue(
  lane: WriteLane,
  queue: string,
  actor: string = ACTOR_DEFAULT,
): Promise<Pause> {
  return inTransaction(lane, async (within) => {
    const [paused] = await pauseStatement.run(within, { queue });
    // A row that was paused already is locked by now, and stays so: nobody resumes it between the two statements.
    const [row] = paused === undefined ? await findStatement.run(within, { queue }) : [paused];
    const pausedAt = toDate(row?.paused_at ?? null);
    assert(pausedAt !== undefined, 'a queue that was not paused has been paused');
    if (paused !== undefined) {
      const detail = { old: null, new: pausedAt };
      await recordAudit(within, { actor, action: 'queue.pause', subject: queue, detail });
    }
    const [tasks] = await hasTaskStatement.run(within, { queue });
    return { changed: paused !== undefined, pausedAt, hasTask: tasks?.has_task === true };
  });
}

/** Undefined: it was not paused, and nothing was written. Else since when it was; idle replicas are woken. */
export async function resumeQueue(
  lane: WriteLane,
  queue: string,
  actor: string = ACTOR_DEFAULT,
): Promise<Date | undefined> {
  return inTransaction(lane, async (within) => {
    const [row] = await resumeStatement.run(within, { queue, channel: wakeChannel(lane.schema) });
    const pausedAt = toDate(row?.paused_at ?? null);
    if (pausedAt === undefined) return undefined;
    const detail = { old: pausedAt, new: null };
    await recordAudit(within, { actor, action: 'queue.resume', subject: queue, detail });
    return pausedAt;
  });
}

export interface WeightChange {
  readonly changed: boolean;
  /** Undefined: as the replicas were configured. */
  readonly before: number | undefined;
}

/** `weight`: 1 to 1000; undefined for what the replicas are configured with. */
export async function setQueueWeight(
  lane: WriteLane,
  queue: string,
  weight: number | undefined,
  actor: string = ACTOR_DEFAULT,
): Promise<WeightChange> {
  return inTransaction(lane, async (within) => {
    if (weight !== undefined) await ensureStatement.run(within, { queue });
    const [row] = await lockStatement.run(within, { queue });
    const before = row?.weight ?? undefined;
    if (before === weight) return { changed: false, before };
    await setWeightStatement.run(within, { queue, weight: weight ?? null });
    const detail = { old: before ?? null, new: weight ?? null };
    await recordAudit(within, { actor, action: 'queue.weight', subject: queue, detail });
    return { changed: true, before };
  });
}

function toDate(epochSeconds: string | null): Date | undefined {
  return epochSeconds === null ? undefined : new Date(Number(epochSeconds) * 1_000);
}
