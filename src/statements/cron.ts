import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../domain/ids.ts';
import {
  CRON_ENTRY_KEPT_MS,
  CRON_IDLE_MS,
  CRON_LOCK_WAIT_MS,
  CRON_NEWEST_SCAN,
  CRON_TICKS_KEPT_MS,
  PRUNE_BATCH,
} from '../domain/limits.ts';
import type { Lane, WriteLane } from './lanes.ts';
import { databaseNow } from './predicates.ts';
import { parameter, statement } from './statement.ts';

// The ticks of the cron list; sql/0005_cron_ticks.sql says what a row means. A tick travels as whole milliseconds
// since the epoch, so that every replica makes the same timestamp of it.

/** What became of a tick: its task was enqueued, or another task was in the way. */
export type TickOutcome = 'enqueued' | 'skipped';

/** An entry as its rows know it: the name, and the schedule with its time zone as written. */
export interface ScheduledEntry {
  readonly entry: string;
  readonly schedule: string;
}

export interface Tick extends ScheduledEntry {
  readonly tickMs: number;
}

const epochMs = (column: string) => sql<string>`(extract(epoch from ${sql.ref(column)}) * 1000)::text`;
const nowMs = sql<string>`(extract(epoch from ${databaseNow}) * 1000)::text`;
const timestampOf = sql<Date>`to_timestamp(${parameter<number>('tickMs')}::float8 / 1000)`;
const ago = (ms: number) => sql<Date>`${databaseNow} - ${sql.lit(ms)} * interval '1 millisecond'`;
const given = sql<{
  entry: string;
  schedule: string;
}>`jsonb_to_recordset(${parameter<string>('entries')}::text::jsonb)`.as<'given'>(
  sql`given(entry text, schedule text)`,
);

// The newest row of all, and the newest tick that this version's schedule has had: during a rollout, rows of another
// version's schedule lie between. The look back for that one ends after a thousand of them.
export const readStatement = statement((db) =>
  db
    .selectFrom(given)
    .leftJoinLateral(
      (from) =>
        from
          .selectFrom('async_cron_ticks as t')
          .whereRef('t.entry', '=', 'given.entry')
          .orderBy('t.tick', 'desc')
          .limit(sql.lit(1))
          .select(['t.schedule', 't.tick'])
          .as('newest'),
      (join) => join.onTrue(),
    )
    .leftJoinLateral(
      (from) =>
        from
          .selectFrom((recent) =>
            recent
              .selectFrom('async_cron_ticks as t')
              .whereRef('t.entry', '=', 'given.entry')
              .orderBy('t.tick', 'desc')
              .limit(sql.lit(CRON_NEWEST_SCAN))
              .select(['t.schedule', 't.tick', 't.outcome'])
              .as('recent'),
          )
          .whereRef('recent.schedule', '=', 'given.schedule')
          .where('recent.outcome', '<>', 'since')
          .limit(sql.lit(1))
          .select('recent.tick')
          .as('own'),
      (join) => join.onTrue(),
    )
    .select([
      'given.entry',
      nowMs.as('now_ms'),
      'newest.schedule',
      epochMs('newest.tick').as('newest_ms'),
      epochMs('own.tick').as('own_ms'),
    ]),
);

export interface EntryTicks {
  readonly entry: string;
  /** The newest row: undefined when there is none, or when it was written under another schedule. */
  readonly newestMs: number | undefined;
  /** The newest tick taken under this very schedule. */
  readonly takenMs: number | undefined;
}

/** The database's time, and what the rows know of each entry given, of which there must be one. */
export async function readTicks(
  lane: Lane,
  entries: readonly ScheduledEntry[],
): Promise<{ readonly nowMs: number; readonly ticks: readonly EntryTicks[] }> {
  const rows = await readStatement.run(lane, { entries: JSON.stringify(entries) });
  const schedules = new Map(entries.map(({ entry, schedule }) => [entry, schedule]));
  return {
    nowMs: Number(rows[0]?.now_ms),
    ticks: rows.map((row) => ({
      entry: row.entry,
      newestMs: row.schedule === schedules.get(row.entry) ? toMs(row.newest_ms) : undefined,
      takenMs: toMs(row.own_ms),
    })),
  };
}

const sinceStatement = statement((db) =>
  db
    .insertInto('async_cron_ticks')
    .columns(['entry', 'tick', 'outcome', 'schedule'])
    .expression((from) =>
      from
        .selectFrom(given)
        .select([
          'given.entry',
          databaseNow.as('tick'),
          sql<string>`'since'`.as('outcome'),
          'given.schedule',
        ]),
    )
    .onConflict((conflict) => conflict.doNothing())
    .returning(['entry', epochMs('tick').as('tick_ms')]),
);

/** Notes from when on the entries have their schedules; answers the moment by entry. */
export async function beginSchedules(
  lane: WriteLane,
  entries: readonly ScheduledEntry[],
): Promise<ReadonlyMap<string, number>> {
  const rows = await sinceStatement.run(lane, { entries: JSON.stringify(entries) });
  return new Map(rows.map(({ entry, tick_ms }) => [entry, Number(tick_ms)]));
}

// A second one for the same entry and tick waits until the first one's transaction ends. The wait is bounded here,
// and so is any other one of this transaction, so that it holds up no other entry; and a replica that freezes with a
// tick in its hands loses its session, and with it the tick, rather than keep it from all others. The settings last
// until the transaction ends. They stand in the CTE that the insert reads, so they come before its wait.
const setting = (name: string, ms: number) =>
  sql<string>`set_config(${sql.lit(name)}, ${sql.lit(`${ms}ms`)}, true)`;

export const takeStatement = statement((db) =>
  db
    .with(
      (cte) => cte('clock').materialized(),
      (cte) =>
        cte.selectNoFrom([
          databaseNow.as('now'),
          setting('lock_timeout', CRON_LOCK_WAIT_MS).as('wait'),
          setting('idle_in_transaction_session_timeout', CRON_IDLE_MS).as('idle'),
        ]),
    )
    .with('taken', (cte) =>
      cte
        .insertInto('async_cron_ticks')
        .columns(['entry', 'tick', 'outcome', 'schedule'])
        .expression((from) =>
          from
            .selectFrom('clock')
            .where(timestampOf, '<=', sql.ref<Date>('clock.now'))
            .select([
              parameter<string>('entry').as('entry'),
              timestampOf.as('tick'),
              sql<string>`'enqueued'`.as('outcome'),
              parameter<string>('schedule').as('schedule'),
            ]),
        )
        .onConflict((conflict) => conflict.doNothing())
        .returning('async_cron_ticks.entry'),
    )
    .selectFrom('clock')
    .leftJoin('taken', (join) => join.onTrue())
    .select([epochMs('clock.now').as('now_ms'), 'taken.entry']),
);

export interface Take {
  /** `lost`: another replica has it. `early`: it is not due by the database's clock. */
  readonly answer: 'taken' | 'lost' | 'early';
  readonly nowMs: number;
}

/**
 * Takes a tick for the transaction of `lane`, which then enqueues its task: one for an entry and tick, whoever asks and
 * however often. Waits two seconds at the most for another transaction that is about to have it, and then rejects
 * (55P03); a transaction that sends nothing for five seconds after it is ended by the server.
 */
export async function takeTick(lane: WriteLane, { entry, tickMs, schedule }: Tick): Promise<Take> {
  const [row] = await takeStatement.run(lane, { entry, tickMs, schedule });
  const now = Number(row?.now_ms);
  if (row?.entry !== undefined && row.entry !== null) return { answer: 'taken', nowMs: now };
  return { answer: tickMs <= now ? 'lost' : 'early', nowMs: now };
}

const recordStatement = statement((db) =>
  db
    .updateTable('async_cron_ticks')
    .where('entry', '=', parameter<string>('entry'))
    .where('tick', '=', timestampOf)
    .set({ task_id: parameter<string>('taskId'), outcome: parameter<string>('outcome') }),
);

/** What became of a tick that was taken, within the same transaction. */
export async function recordTick(
  lane: WriteLane,
  { entry, tickMs }: Tick,
  { taskId, outcome }: { readonly taskId: TaskId; readonly outcome: TickOutcome },
): Promise<void> {
  await recordStatement.run(lane, { entry, tickMs, taskId, outcome });
}

// From one entry's name to the next, by the index: the ticks of an entry may be a million, the entries are a few.
const withEntryNames = (db: Kysely<DB>) =>
  db.withRecursive('names(entry)', (cte) =>
    cte
      .selectFrom('async_cron_ticks as t')
      .select((t) => t.fn.min<string | null>('t.entry').as('entry'))
      .unionAll((from) =>
        from
          .selectFrom('names')
          .where('names.entry', 'is not', null)
          .select((n) =>
            n
              .selectFrom('async_cron_ticks as t')
              .whereRef('t.entry', '>', 'names.entry')
              .select((t) => t.fn.min<string | null>('t.entry').as('entry'))
              .as('entry'),
          ),
      ),
  );

export const listStatement = statement((db) =>
  withEntryNames(db)
    .selectFrom('names')
    .leftJoinLateral(
      (from) =>
        from
          .selectFrom('async_cron_ticks as t')
          .whereRef('t.entry', '=', 'names.entry')
          .orderBy('t.tick', 'desc')
          .limit(sql.lit(1))
          .select('t.schedule')
          .as('newest'),
      (join) => join.onTrue(),
    )
    .leftJoinLateral(
      (from) =>
        from
          .selectFrom('async_cron_ticks as t')
          .whereRef('t.entry', '=', 'names.entry')
          .where('t.outcome', '<>', 'since')
          .orderBy('t.tick', 'desc')
          .limit(sql.lit(1))
          .select(['t.tick', 't.outcome', 't.task_id'])
          .as('last'),
      (join) => join.onTrue(),
    )
    .select([
      nowMs.as('now_ms'),
      'names.entry',
      'newest.schedule',
      epochMs('last.tick').as('tick_ms'),
      'last.outcome',
      sql<string | null>`last.task_id::text`.as('task_id'),
    ]),
);

export interface StoredEntry extends ScheduledEntry {
  /** Undefined when it has had no tick yet. */
  readonly last:
    | { readonly tickMs: number; readonly outcome: TickOutcome; readonly taskId: TaskId | undefined }
    | undefined;
}

/** Every entry that there are rows of, in the order of their names, with its last tick; and the database's time. */
export async function listEntries(
  lane: Lane,
): Promise<{ readonly nowMs: number; readonly entries: readonly StoredEntry[] }> {
  const rows = await listStatement.run(lane, {});
  return {
    nowMs: Math.floor(Number(rows[0]?.now_ms)),
    entries: rows.flatMap(({ entry, schedule, tick_ms, outcome, task_id }): StoredEntry[] => {
      // The walk from name to name ends with none.
      if (entry === null || schedule === null) return [];
      const tickMs = toMs(tick_ms);
      if (tickMs === undefined) return [{ entry, schedule, last: undefined }];
      const taskId = task_id === null ? undefined : (task_id as TaskId);
      return [{ entry, schedule, last: { tickMs, outcome: outcome as TickOutcome, taskId } }];
    }),
  };
}

export const pruneStatement = statement((db) =>
  withEntryNames(db)
    .with(
      (cte) => cte('old').materialized(),
      (cte) =>
        cte
          .selectFrom('names')
          .innerJoinLateral(
            (from) =>
              from
                .selectFrom('async_cron_ticks as t')
                .whereRef('t.entry', '=', 'names.entry')
                .select((t) => t.fn.max<Date>('t.tick').as('tick'))
                .as('newest'),
            (join) => join.onTrue(),
          )
          .innerJoinLateral(
            (from) =>
              from
                .selectFrom('async_cron_ticks as t')
                .whereRef('t.entry', '=', 'names.entry')
                .where('t.tick', '<', ago(CRON_TICKS_KEPT_MS))
                .where((t) =>
                  t.or([
                    t('t.tick', '<', t.ref('newest.tick')),
                    t('newest.tick', '<', ago(CRON_ENTRY_KEPT_MS)),
                  ]),
                )
                .orderBy('t.tick')
                .limit(sql.lit(PRUNE_BATCH))
                .forUpdate()
                .skipLocked()
                .select(['t.entry', 't.tick'])
                .as('each'),
            (join) => join.onTrue(),
          )
          .limit(sql.lit(PRUNE_BATCH))
          .select(['each.entry', 'each.tick']),
    )
    .with('deleted', (cte) =>
      cte
        .deleteFrom('async_cron_ticks')
        .using('old')
        .whereRef('async_cron_ticks.entry', '=', 'old.entry')
        .whereRef('async_cron_ticks.tick', '=', 'old.tick')
        .returning('async_cron_ticks.entry'),
    )
    .selectFrom('deleted')
    .select(sql<string>`count(*)::text`.as('deleted')),
);

/**
 * Deletes up to a thousand ticks that are older than 30 days, all but the newest of each entry, and that one, too, of
 * an entry without a tick for 400 days. Answers whether there may be more.
 */
export async function pruneTicks(lane: WriteLane): Promise<{ readonly hasMore: boolean }> {
  const [row] = await pruneStatement.run(lane, {});
  return { hasMore: Number(row?.deleted ?? 0) === PRUNE_BATCH };
}

function toMs(text: string | null | undefined): number | undefined {
  return text === null || text === undefined ? undefined : Number(text);
}
