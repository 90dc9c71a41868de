import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'kysely';
import pg from 'pg';
import type { ConnectionSettings } from '../index.ts';
import { DEMO_CEILING_MS, DEMO_MARGIN_MS } from './demo-timings.ts';
import type { EnqueuedTask } from './ledger.ts';
import type { DemoDatabase, ExploreDatabase } from './schema.ts';
import type { ChangeAnswer } from './service.ts';
import { type Story, seconds } from './story.ts';
import type { TaskEvents } from './task-events.ts';
import type { WorkerProcess } from './worker-process.ts';

// The crash that is shown. A report holds locks on one stack's resources in the Explore database, as a long
// transaction does; the stack is deleted, and its purge gets as far as those rows and no further. The worker that
// runs it is killed right there.

/** The stack whose purge is interrupted. */
export interface Victim {
  readonly id: string;
  readonly name: string;
  readonly resources: number;
}

/** What became of the task whose worker was killed. */
export interface Takeover {
  readonly taskId: string;
  readonly type: string;
  readonly stack: string;
  readonly killedWorker: string;
  readonly takenOverBy: string;
  readonly attempt: number;
  /** From the first claim to the second: the lease, and what was left until the next poll. */
  readonly waitedMs: number;
  readonly leaseMs: number;
}

export interface CrashScene {
  readonly explore: ExploreDatabase;
  /** Of the Explore database. */
  readonly connection: ConnectionSettings;
  readonly serviceUrl: string;
  readonly events: TaskEvents;
  readonly workers: readonly WorkerProcess[];
  readonly story: Story;
}

const LEASE_MS = DEMO_CEILING_MS + DEMO_MARGIN_MS;
/** On a busy machine the purge stands behind whatever else is waiting. */
const CLAIM_MS_MAX = 30_000;
const LOCK_POLL_MS = 20;
/** Well after the lease and the poll, so that only a takeover that never comes is reported as one. */
const TAKEOVER_MS_MAX = 45_000;

/** The stack with the most resources; nothing is deleted yet. */
export async function chooseVictim(db: DemoDatabase, explore: ExploreDatabase): Promise<Victim> {
  const { stack_id: id, resources } = await explore
    .selectFrom('resources')
    .select(({ fn }) => ['stack_id', fn.countAll<string>().as('resources')])
    .groupBy('stack_id')
    .orderBy('resources', 'desc')
    .orderBy('stack_id')
    .limit(1)
    .executeTakeFirstOrThrow();
  const { name } = await db
    .selectFrom('stacks')
    .select('name')
    .where('id', '=', id)
    .executeTakeFirstOrThrow();
  return { id, name, resources: Number(resources) };
}

/** Kills a worker in the middle of the victim's purge and waits until another has finished it. */
export async function crashMidTask(scene: CrashScene, victim: Victim): Promise<Takeover> {
  const { events, story } = scene;
  const report = await openReport(scene.connection, victim);
  let purge: EnqueuedTask;
  let killed: WorkerProcess;
  try {
    story.say(`a report reads '${victim.name}' and keeps its ${victim.resources} rows in Explore locked`);
    purge = await deleteVictim(scene.serviceUrl, victim);
    killed = await workerInTheMiddleOf(scene, purge, victim);
    await killed.kill();
    story.say(`kill -9 ${killed.pid}: worker ${killed.name} is gone, and could not say so to anybody`);
  } finally {
    await report.end();
  }
  story.say(
    `task ${purge.id} stays leased until ${seconds(LEASE_MS)} after its claim ` +
      `(ceiling ${seconds(DEMO_CEILING_MS)} + margin ${seconds(DEMO_MARGIN_MS)}): until then nobody can tell ` +
      'a dead worker from a slow one; the other worker goes on with the rest',
  );
  return await takeoverOf(events, story, purge, killed.name, victim);
}

async function openReport(connection: ConnectionSettings, victim: Victim): Promise<pg.Client> {
  const report = new pg.Client(
    typeof connection === 'string' ? { connectionString: connection } : connection,
  );
  report.on('error', () => {});
  await report.connect();
  await report.query('BEGIN');
  await report.query('SELECT value FROM resources WHERE stack_id = $1 FOR UPDATE', [victim.id]);
  return report;
}

async function deleteVictim(serviceUrl: string, victim: Victim): Promise<EnqueuedTask> {
  const response = await fetch(`${serviceUrl}/stacks/${victim.id}?force=true`, { method: 'DELETE' });
  const { tasks } = (await response.json()) as ChangeAnswer;
  const purge = tasks.find(({ type }) => type === 'explore_purge');
  if (purge === undefined) throw new Error(`the service did not delete '${victim.name}'`);
  return purge;
}

/** The worker that runs the purge, once its handler waits inside its transaction for the report's locks. */
async function workerInTheMiddleOf(
  { explore, events, workers, story }: CrashScene,
  purge: EnqueuedTask,
  victim: Victim,
): Promise<WorkerProcess> {
  const claim = await events.until(() => events.of(purge.id).claims[0], 'the purge is claimed', CLAIM_MS_MAX);
  const worker = workers.find(({ name }) => name === claim.worker);
  if (worker === undefined) throw new Error(`task ${purge.id} was claimed by an unknown worker`);
  // No event tells that a statement waits for a lock; the server's own view does. It must be seen within the
  // ceiling, or the handler has given up already.
  const giveUpAt = performance.now() + DEMO_CEILING_MS;
  while (!(await waitsForLock(explore, worker.name))) {
    if (performance.now() > giveUpAt)
      throw new Error(`task ${purge.id} was never seen in the middle of its work`);
    await delay(LOCK_POLL_MS);
  }
  story.say(
    `'${victim.name}' is deleted; worker ${worker.name} (pid ${worker.pid}) runs its purge, task ${purge.id}: ` +
      'it is inside its transaction and waits for the locked rows',
  );
  return worker;
}

async function waitsForLock(explore: ExploreDatabase, worker: string): Promise<boolean> {
  const { rows } = await sql`
    SELECT 1 FROM pg_stat_activity
    WHERE application_name = ${`handlers of worker ${worker}`} AND wait_event_type = 'Lock'
      AND query ILIKE 'delete from "resources"%'`.execute(explore);
  return rows.length > 0;
}

async function takeoverOf(
  events: TaskEvents,
  story: Story,
  purge: EnqueuedTask,
  killedWorker: string,
  victim: Victim,
): Promise<Takeover> {
  const { id } = purge;
  const [first, second] = await events.until(
    () => (events.of(id).claims.length > 1 ? events.of(id).claims : undefined),
    `task ${id} is taken over`,
    TAKEOVER_MS_MAX,
  );
  if (first === undefined || second === undefined) throw new Error('unreachable: two claims were awaited');
  const waitedMs = second.at - first.at;
  story.say(
    `worker ${second.worker} took task ${id} over ${seconds(waitedMs)} after its first claim, attempt ${second.attempt}`,
  );
  const end = await events.until(
    () => events.of(id).settlements.at(-1),
    `task ${id} is settled`,
    TAKEOVER_MS_MAX,
  );
  story.say(
    `task ${id} ended with ${end.outcome}: what the killed worker had begun was rolled back, and the rows of ` +
      `'${victim.name}' are gone`,
  );
  return {
    taskId: id,
    type: purge.type,
    stack: victim.name,
    killedWorker,
    takenOverBy: second.worker,
    attempt: second.attempt,
    waitedMs,
    leaseMs: LEASE_MS,
  };
}
