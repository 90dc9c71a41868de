import { sql } from 'kysely';
import { REPLICA_ALIVE_MS, REPLICA_KEPT_MS } from '../domain/limits.ts';
import type { TaskFacts } from '../domain/observer.ts';
import type { Outcome } from '../domain/outcome.ts';
import type { WriteLane } from './lanes.ts';
import { databaseNow, epochText, instantDate } from './predicates.ts';
import { given, rawStatement } from './raw-statement.ts';
import { parameter } from './statement.ts';

// Which replicas there are. One says so itself, with one heap-only update of its own row for each report; one that died
// is known by its silence.

/** What a replica has settled since its report before. Milliseconds. */
export interface SettledSince {
  readonly intervalMs: number;
  readonly outcomes: Readonly<Partial<Record<Outcome, number>>>;
  /** From due to claimed, of `waited` claims together. */
  readonly waitMs: number;
  readonly waited: number;
  /** Of `ran` handlers together. */
  readonly ranMs: number;
  readonly ran: number;
}

/** What a replica says of itself. */
export interface ReplicaReport {
  readonly id: string;
  readonly host: string;
  readonly pid: number;
  readonly version: string;
  readonly roles: readonly string[];
  /** Undefined for every queue. */
  readonly queues: readonly string[] | undefined;
  readonly slots: number;
  readonly busy: number;
  readonly overrun: number;
  readonly running: readonly Pick<TaskFacts, 'id' | 'type' | 'queue' | 'attempt'>[];
  readonly clockOffsetMs: number | undefined;
  readonly settled: SettledSince;
}

export interface Replica extends ReplicaReport {
  readonly startedAt: Date;
  readonly seenAt: Date;
  /** Seen within three of its reports. */
  readonly isAlive: boolean;
}

interface ReplicaRow {
  readonly id: string;
  readonly host: string;
  readonly pid: number;
  readonly version: string;
  readonly roles: string;
  readonly queues: string | null;
  readonly slots: number;
  readonly busy: number;
  readonly overrun: number;
  readonly running: string;
  readonly clock_offset_ms: string | null;
  readonly settled: string;
  readonly started_at: string;
  readonly seen_at: string;
  readonly is_alive: boolean;
}

const ago = (ms: number) => sql`(${databaseNow} - ${sql.lit(ms)} * interval '1 millisecond')`;
const id = sql`${parameter<string>('id')}::uuid`;
const whole = (name: string) => sql`${parameter<number>(name)}::int`;
const json = (name: string) => sql`${parameter<string>(name)}::text::jsonb`;
/** Arrays as JSON: a driver may be told to write arrays in ways of its own. */
const texts = (value: ReturnType<typeof json>) => sql`array(select jsonb_array_elements_text(${value}))`;

// The long silent are forgotten by the way: there is no other statement that anybody runs so seldom and so surely.
export const reportStatement = rawStatement<{ id: string }>(
  (table) => sql<{ id: string }>`with forgotten as (
    delete from ${table('async_replicas')} where id in (
      select id from ${table('async_replicas')}
        where seen_at < ${ago(REPLICA_KEPT_MS)} and id <> ${id} for update skip locked))
  insert into ${table('async_replicas')} as r
    (id, host, pid, version, roles, queues, slots, busy, overrun, running, clock_offset_ms, settled)
  values (${id}, ${given(parameter('host'), 'text')}, ${whole('pid')}, ${given(parameter('version'), 'text')},
    ${texts(json('roles'))}, case when ${given(parameter('queues'), 'text')} is null then null else ${texts(json('queues'))} end,
    ${whole('slots')}, ${whole('busy')}, ${whole('overrun')}, ${json('running')},
    ${parameter<number | null>('clockOffsetMs')}::float8, ${json('settled')})
  on conflict (id) do update set busy = excluded.busy, overrun = excluded.overrun, running = excluded.running,
    clock_offset_ms = excluded.clock_offset_ms, settled = excluded.settled, seen_at = ${databaseNow}
  returning r.id::text as id`,
);

const forgetStatement = rawStatement<{ id: string }>(
  (table) =>
    sql<{ id: string }>`delete from ${table('async_replicas')} where id = ${id} returning id::text as id`,
);

export const listReplicasStatement = rawStatement<ReplicaRow>(
  (table) => sql<ReplicaRow>`select id::text as id, host, pid, version, to_jsonb(roles)::text as roles,
    to_jsonb(queues)::text as queues, slots, busy, overrun, running::text as running,
    clock_offset_ms::text as clock_offset_ms, settled::text as settled, ${epochText(sql`started_at`)} as started_at,
    ${epochText(sql`seen_at`)} as seen_at, seen_at > ${ago(REPLICA_ALIVE_MS)} as is_alive
  from ${table('async_replicas')} order by started_at, id limit 1000`,
);

/** Writes that the replica is there. */
export async function reportReplica(lane: WriteLane, report: ReplicaReport): Promise<void> {
  const { roles, queues, running, clockOffsetMs = null, settled } = report;
  await reportStatement.run(lane, {
    ...report,
    roles: JSON.stringify(roles),
    queues: queues === undefined ? null : JSON.stringify(queues),
    running: JSON.stringify(running),
    clockOffsetMs,
    settled: JSON.stringify(settled),
  });
}

/** Of a replica that stops in order. */
export async function forgetReplica(lane: WriteLane, replicaId: string): Promise<void> {
  await forgetStatement.run(lane, { id: replicaId });
}

/**
 * Those that were seen within the last day, the longest running first. From the primary: on a replica that lags, all
 * of them would seem to be silent.
 */
export async function listReplicas(lane: WriteLane): Promise<Replica[]> {
  const rows = await listReplicasStatement.run(lane, {});
  return rows.map((row) => ({
    id: row.id,
    host: row.host,
    pid: row.pid,
    version: row.version,
    roles: JSON.parse(row.roles) as string[],
    queues: row.queues === null ? undefined : (JSON.parse(row.queues) as string[]),
    slots: row.slots,
    busy: row.busy,
    overrun: row.overrun,
    running: JSON.parse(row.running) as Replica['running'],
    clockOffsetMs: row.clock_offset_ms === null ? undefined : Number(row.clock_offset_ms),
    settled: JSON.parse(row.settled) as SettledSince,
    startedAt: instantDate(row.started_at),
    seenAt: instantDate(row.seen_at),
    isAlive: row.is_alive,
  }));
}
