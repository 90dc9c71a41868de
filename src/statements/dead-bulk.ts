import { type ExpressionBuilder, type SqlBool, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../domain/ids.ts';
import { DEAD_GROUP_ERROR_LENGTH_MAX, DEAD_KEY_WAIT_MS, DEAD_SCAN } from '../domain/limits.ts';
import { recordAudit } from './audit.ts';
import { replayed } from './dead.ts';
import { matchesFilter } from './dead-filter.ts';
import { freeWindows } from './keys.ts';
import type { ReadLane, WriteLane } from './lanes.ts';
import { databaseNow, epochText, isDead, isExhausted, isLive } from './predicates.ts';
import { inTransaction, parameter, statement, type Values } from './statement.ts';
import { wakeChannel } from './wake-channel.ts';

// Many dead letters at once. A walk goes up by id, page by page, to the greatest id there was when it began: a task
// that dies again after its replay lies behind the walk. A batch of what a page found is written in a transaction of
// its own. It waits for no row, and for a key only while it has nothing that another could be waiting for long
// (DEAD_KEY_WAIT_MS), so that no enqueuer is ever the victim of a deadlock with it.

type Tasks = ExpressionBuilder<DB, 'async_tasks'>;

const beginStatement = statement((db) =>
  db
    .selectFrom('async_tasks')
    .where(isExhausted)
    .orderBy('async_tasks.id', 'desc')
    .limit(sql.lit(1))
    .select([sql<string>`id::text`.as('until_id'), epochText(databaseNow).as('as_of')]),
);

// The page is cut by a literal before the end of the walk is looked at: for a range between two ids a planner
// without statistics expects a handful of rows, and then sorts all that are left for each page.
export const pageStatement = statement((db) =>
  db
    .with('page', (cte) =>
      cte
        .selectFrom('async_tasks')
        .where(isExhausted)
        .where('id', '>', parameter<string>('afterId'))
        .orderBy('id')
        .limit(sql.lit(DEAD_SCAN))
        .select('id'),
    )
    .selectFrom('page')
    .where('page.id', '<=', parameter<string>('untilId'))
    .select([sql<string | null>`max(page.id)::text`.as('last_id'), sql<string>`count(*)::text`.as('looked')]),
);

const isOnPage = (t: Tasks) =>
  t.and([
    t('async_tasks.id', '>', parameter<string>('afterId')),
    t('async_tasks.id', '<=', parameter<string>('lastId')),
    isDead(t),
    matchesFilter(t),
  ]);

/** Which death it is: only a claim, and so only another run, changes it. */
const death = (t: Tasks) => sql<string>`coalesce(${epochText(t.ref('async_tasks.last_attempted_at'))}, '')`;

export const matchedStatement = statement((db) =>
  db
    .selectFrom('async_tasks')
    .where(isOnPage)
    .orderBy('async_tasks.id')
    .select((t) => [
      sql<string>`id::text`.as('id'),
      death(t).as('death'),
      sql<boolean>`unique_key is not null`.as('has_key'),
    ]),
);

// A scalar sub-select, not a join, which would read every task when the planner takes the table for small.
export const previewStatement = statement((db) =>
  db
    .with('matched', (cte) =>
      cte
        .selectFrom('async_tasks')
        .where(isOnPage)
        .select([
          'id',
          'task_type',
          'unique_key',
          sql<string | null>`left(split_part(translate(last_error, chr(13), chr(10)), chr(10), 1),
            ${sql.lit(DEAD_GROUP_ERROR_LENGTH_MAX)})`.as('error'),
        ]),
    )
    .with('judged', (cte) =>
      cte.selectFrom('matched').select((m) => [
        'matched.task_type',
        'matched.error',
        m
          .selectFrom('async_tasks')
          .whereRef('async_tasks.unique_key', '=', 'matched.unique_key')
          .where((t) =>
            t.or([
              isLive(t),
              // Of several dead letters of one key the first is the one that a replay puts back.
              t.and([t('async_tasks.id', '<', t.ref('matched.id')), isDead(t), matchesFilter(t)]),
            ]),
          )
          .limit(sql.lit(1))
          .select('async_tasks.id')
          .as('rival_id'),
      ]),
    )
    .selectFrom('judged')
    .groupBy(['judged.task_type', 'judged.error'])
    .select([
      'judged.task_type',
      'judged.error',
      sql<string>`count(*)::text`.as('count'),
      sql<string>`count(rival_id)::text`.as('key_taken'),
    ]),
);

/** Still the dead letter that the page has shown, and not one that has been replayed and died again since. */
const isAsFound = (t: Tasks) =>
  t.and([
    t('async_tasks.id', '=', sql<string>`any(${parameter<string[]>('ids')}::bigint[])`),
    isDead(t),
    matchesFilter(t),
    sql<SqlBool>`${death(t)} = (${parameter<string>('deaths')}::text::jsonb ->> ${t.ref('async_tasks.id')}::text)`,
  ]);

const limitKeyWaitStatement = statement((db) =>
  db.selectNoFrom(
    sql<string>`set_config('lock_timeout', ${sql.lit(`${DEAD_KEY_WAIT_MS}ms`)}, true)`.as('lock_timeout'),
  ),
);

// In the order of the keys, so that two bulk replays do not wait for each other; then as the replay of one.
export const lockKeysStatement = statement((db) =>
  db
    .insertInto('async_task_keys')
    .columns(['key', 'enqueued_at'])
    .expression((from) =>
      from
        .selectFrom('async_tasks')
        .where('unique_key', 'is not', null)
        .where(isAsFound)
        .distinct()
        .orderBy('unique_key')
        .select(['unique_key as key', databaseNow.as('enqueued_at')]),
    )
    .onConflict((conflict) =>
      conflict
        .column('key')
        .doUpdateSet((k) => ({ enqueued_at: k.ref('async_task_keys.enqueued_at') }))
        .where(sql<SqlBool>`false`),
    ),
);

export const replayBatchStatement = statement((db) =>
  db
    .with(
      (cte) => cte('locked').materialized(),
      (cte) =>
        cte
          .selectFrom('async_tasks')
          .where(isAsFound)
          .orderBy('async_tasks.id')
          .forUpdate()
          .skipLocked()
          .select(['async_tasks.id', 'async_tasks.unique_key']),
    )
    .with(
      (cte) => cte('judged').materialized(),
      (cte) =>
        cte
          .selectFrom('locked')
          .select((l) => [
            'locked.id',
            l
              .selectFrom('async_tasks')
              .whereRef('async_tasks.unique_key', '=', 'locked.unique_key')
              .where(isLive)
              .limit(sql.lit(1))
              .select('async_tasks.id')
              .as('rival_id'),
            sql<string>`row_number() over (partition by coalesce(unique_key, int8send(id)) order by id)`.as(
              'place',
            ),
          ]),
    )
    .with('replayed', (cte) =>
      cte
        .updateTable('async_tasks')
        .where(
          'async_tasks.id',
          '=',
          sql<string>`any(array(select judged.id from judged where judged.rival_id is null and judged.place = 1))`,
        )
        .set(replayed)
        .returning(['async_tasks.id', 'async_tasks.unique_key']),
    )
    .with('taken', (cte) =>
      cte
        .updateTable('async_task_keys')
        .from('replayed')
        .whereRef('async_task_keys.key', '=', 'replayed.unique_key')
        .set((k) => ({ task_id: k.ref('replayed.id'), enqueued_at: databaseNow }))
        .returning('async_task_keys.key'),
    )
    .selectFrom('locked')
    .leftJoin('replayed', 'replayed.id', 'locked.id')
    .orderBy('locked.id')
    .select([
      sql<string>`locked.id::text`.as('id'),
      // One for the transaction, however many rows ask for it.
      sql<
        string | null
      >`case when replayed.id is not null then pg_notify(${parameter<string>('channel')}::text, '')::text end`.as(
        'sent',
      ),
    ]),
);

export const dropBatchStatement = statement((db) =>
  db
    .with(
      (cte) => cte('locked').materialized(),
      (cte) =>
        cte
          .selectFrom('async_tasks')
          .where(isAsFound)
          .orderBy('async_tasks.id')
          .forUpdate()
          .skipLocked()
          .select('async_tasks.id'),
    )
    .with('deleted', (cte) =>
      cte
        .deleteFrom('async_tasks')
        .where('async_tasks.id', '=', sql<string>`any(array(select locked.id from locked))`)
        .returning(['async_tasks.id', 'async_tasks.unique_key']),
    )
    .with('freed', freeWindows)
    .selectFrom('deleted')
    .orderBy('deleted.id')
    .select(sql<string>`deleted.id::text`.as('id')),
);

/** Where a walk ends, and from when it measures age: seconds since the epoch, as text. */
export interface Walk {
  readonly untilId: string;
  readonly asOf: string;
}

/** Undefined when there is nothing to walk. */
export async function beginWalk(lane: ReadLane | WriteLane): Promise<Walk | undefined> {
  const [row] = await beginStatement.run(lane, {});
  return row === undefined ? undefined : { untilId: row.until_id, asOf: row.as_of };
}

/** A part of the walk: from behind one id up to the other. */
export interface DeadPage {
  readonly afterId: string;
  readonly lastId: string;
  /** How many lie on it, whatever the filter makes of them. */
  readonly looked: number;
}

/** The next page; undefined at the end of the walk. */
export async function nextPage(
  lane: ReadLane | WriteLane,
  { untilId }: Walk,
  afterId: string,
): Promise<DeadPage | undefined> {
  const [row] = await pageStatement.run(lane, { untilId, afterId });
  if (row?.last_id == null) return undefined;
  return { afterId, lastId: row.last_id, looked: Number(row.looked) };
}

/** A dead letter that the filter matches. */
export interface Found {
  readonly id: TaskId;
  readonly death: string;
  readonly hasKey: boolean;
}

/** `matches`: the values of the filter. */
export async function findMatches(lane: WriteLane, page: DeadPage, matches: Values): Promise<Found[]> {
  const rows = await matchedStatement.run(lane, { ...matches, ...page });
  return rows.map((row) => ({ id: row.id as TaskId, death: row.death, hasKey: row.has_key }));
}

/** Dead letters of one type whose errors begin alike. */
export interface MatchGroup {
  readonly type: string;
  /** The first line of the last error, cut; undefined where there is none. */
  readonly error: string | undefined;
  readonly count: number;
  /** How many of them have a key that another task has, or gets before them. */
  readonly keyTaken: number;
}

export async function groupMatches(lane: ReadLane, page: DeadPage, matches: Values): Promise<MatchGroup[]> {
  const rows = await previewStatement.run(lane, { ...matches, ...page });
  return rows.map((row) => ({
    type: row.task_type,
    error: row.error ?? undefined,
    count: Number(row.count),
    keyTaken: Number(row.key_taken),
  }));
}

/** What a batch is written under. */
export interface Deed {
  readonly actor: string;
  /** As the audit shows it. */
  readonly filter: object;
  readonly matches: Values;
}

export interface ReplayedBatch {
  readonly replayed: number;
  /** A live task has the key, or another dead letter of this replay got it. */
  readonly keyTaken: number;
  /** Locked by somebody, or no longer what was found: nothing was done with them. */
  readonly changed: number;
}

/**
 * Replays what was found, each as `replayDead` would, in one transaction with one wake and one row of the audit, which
 * names them. Where an enqueuer has one of the keys locked, those with a key follow one by one, each in a transaction
 * of its own, and one whose key is locked still counts as changed.
 */
export async function replayBatch(
  lane: WriteLane,
  found: readonly Found[],
  deed: Deed,
): Promise<ReplayedBatch> {
  const together = await tryReplay(lane, found, deed);
  if (together !== undefined) return together;
  const parts = [
    await tryReplay(
      lane,
      found.filter(({ hasKey }) => !hasKey),
      deed,
    ),
  ];
  for (const each of found.filter(({ hasKey }) => hasKey)) parts.push(await tryReplay(lane, [each], deed));
  const sum = (of: keyof ReplayedBatch) => parts.reduce((total, part) => total + (part?.[of] ?? 0), 0);
  const [replayedOnes, keyTaken] = [sum('replayed'), sum('keyTaken')];
  return { replayed: replayedOnes, keyTaken, changed: found.length - replayedOnes - keyTaken };
}

/** Undefined, and nothing written, when a key was locked too long. */
async function tryReplay(
  lane: WriteLane,
  found: readonly Found[],
  deed: Deed,
): Promise<ReplayedBatch | undefined> {
  if (found.length === 0) return { replayed: 0, keyTaken: 0, changed: 0 };
  const values = { ...batchValues(found, deed), channel: wakeChannel(lane.schema) };
  try {
    return await inTransaction(lane, async (within) => {
      if (found.some(({ hasKey }) => hasKey)) {
        await limitKeyWaitStatement.run(within, {});
        await lockKeysStatement.run(within, values);
      }
      // A statement of its own: its snapshot was taken after the locks on the keys, so it sees who has them.
      const locked = await replayBatchStatement.run(within, values);
      const ids = locked.filter(({ sent }) => sent !== null).map(({ id }) => id);
      const counts = {
        replayed: ids.length,
        keyTaken: locked.length - ids.length,
        changed: found.length - locked.length,
      };
      if (ids.length > 0) await recordBatch(within, 'dead.replay', deed, { ...counts, ids });
      return counts;
    });
  } catch (error) {
    if (isLockFailure(error)) return undefined;
    throw error;
  }
}

export interface DroppedBatch {
  readonly dropped: number;
  readonly changed: number;
}

/** Deletes what was found, in one transaction with one row of the audit. It waits for nobody. */
export async function dropBatch(lane: WriteLane, found: readonly Found[], deed: Deed): Promise<DroppedBatch> {
  return inTransaction(lane, async (within) => {
    const ids = (await dropBatchStatement.run(within, batchValues(found, deed))).map(({ id }) => id);
    const counts = { dropped: ids.length, changed: found.length - ids.length };
    if (ids.length > 0) await recordBatch(within, 'dead.drop', deed, { ...counts, ids });
    return counts;
  });
}

function batchValues(found: readonly Found[], { matches }: Deed): Values {
  return {
    ...matches,
    ids: found.map(({ id }) => id),
    deaths: JSON.stringify(Object.fromEntries(found.map(({ id, death }) => [id, death]))),
  };
}

async function recordBatch(
  lane: WriteLane,
  action: 'dead.replay' | 'dead.drop',
  { actor, filter }: Deed,
  done: object,
): Promise<void> {
  await recordAudit(lane, { actor, action, detail: { filter, ...done } });
}

/** Lock not available within the time; deadlock. */
const LOCK_FAILURES = new Set(['55P03', '40P01']);

function isLockFailure(error: unknown): boolean {
  return error instanceof Error && 'code' in error && LOCK_FAILURES.has(String(error.code));
}
