import { type RawBuilder, sql } from 'kysely';
import type { TaskId } from '../domain/ids.ts';
import type { Wake } from '../domain/task-definition.ts';
import type { CallerLane } from './lanes.ts';
import { databaseNow } from './predicates.ts';
import { parameter, statement } from './statement.ts';
import { wakeChannel } from './wake-channel.ts';

/** A task to insert, already validated and encoded. */
export interface NewTask {
  readonly queue: string;
  readonly type: string;
  readonly payloadText: string;
  readonly payloadRevision: number;
  /** Milliseconds since the epoch; undefined for now. */
  readonly runAtMs: number | undefined;
  /** Counted by the database from the moment of the insert; undefined for none. */
  readonly delayMs: number | undefined;
  readonly maxAttempts: number;
  /** A lower ceiling than the type's, in whole milliseconds; undefined for the type's. */
  readonly ceilingMs: number | undefined;
  /** How long the record of the finished task is kept, in whole milliseconds; undefined for not at all. */
  readonly retentionMs: number | undefined;
  readonly headers: Readonly<Record<string, string>>;
}

const givenColumns = {
  queue: parameter<string>('queue'),
  task_type: parameter<string>('type'),
  payload: sql<string>`${parameter<string>('payload')}::text::jsonb`,
  payload_revision: parameter<number>('revision'),
  max_attempts: parameter<number>('maxAttempts'),
  headers: sql<string>`${parameter<string>('headers')}::text::jsonb`,
};

// One task. The caller's connection prepares no statements, so these are parsed and planned at every call, which
// costs more than the insert: hence a plain VALUES, and statements of their own for the ordinary task, which is due at
// once and has no limits of its own.
const insertDueStatement = statement((db) =>
  db
    .insertInto('async_tasks')
    .values(givenColumns)
    .returning([
      sql<string>`id::text`.as('id'),
      sql<string>`pg_notify(${parameter<string>('channel')}, '')::text`.as('sent'),
    ]),
);

const insertDueQuietlyStatement = statement((db) =>
  db.insertInto('async_tasks').values(givenColumns).returning(sql<string>`id::text`.as('id')),
);

const insertWithLimitsStatement = statement((db) =>
  db
    .insertInto('async_tasks')
    .values({
      ...givenColumns,
      ceiling_ms: parameter<number | null>('ceilingMs'),
      retention_ms: parameter<number | null>('retentionMs'),
      run_at: runAtOf(
        sql`${parameter<number | null>('delayMs')}::float8`,
        sql`${parameter<number | null>('runAtMs')}::float8`,
      ),
    })
    .returning([
      sql<string>`id::text`.as('id'),
      sql<
        string | null
      >`case when run_at <= ${databaseNow} and ${parameter<string | null>('channel')}::text is not null
        then pg_notify(${parameter<string | null>('channel')}::text, '')::text end`.as('sent'),
    ]),
);

// One JSON document carries any number of rows: one parameter of one type, whichever driver sends it.
// It stands in a sub-select, or the planner would parse all of it for a constant before the statement does.
// The rows are inserted in the given order, so their ids ascend in that order too. The wake is selected
// from the inserted rows: in a CTE that nobody reads it would never fire, and a task due later needs none. Nor does
// anything without a channel.
const insertStatement = statement((db) =>
  db
    .with('given', (cte) =>
      cte
        .selectFrom(
          sql<{
            task: unknown;
            position: string;
          }>`jsonb_array_elements((select ${parameter<string>('tasks')}::text::jsonb)) with ordinality`.as<'given'>(
            sql`given(task, position)`,
          ),
        )
        .selectAll(),
    )
    .with('inserted', (cte) =>
      cte
        .insertInto('async_tasks')
        .columns([
          ...(['queue', 'task_type', 'payload', 'payload_revision', 'run_at', 'max_attempts'] as const),
          ...(['ceiling_ms', 'retention_ms', 'headers'] as const),
        ])
        .expression((from) =>
          from
            .selectFrom('given')
            .select([
              sql<string>`task ->> 'queue'`.as('queue'),
              sql<string>`task ->> 'type'`.as('task_type'),
              sql<string>`task -> 'payload'`.as('payload'),
              sql<number>`(task ->> 'revision')::int`.as('payload_revision'),
              runAtOf(sql`(task ->> 'delayMs')::float8`, sql`(task ->> 'runAtMs')::float8`).as('run_at'),
              sql<number>`(task ->> 'maxAttempts')::int`.as('max_attempts'),
              sql<string | null>`(task ->> 'ceilingMs')::bigint`.as('ceiling_ms'),
              sql<string | null>`(task ->> 'retentionMs')::bigint`.as('retention_ms'),
              sql<string>`task -> 'headers'`.as('headers'),
            ])
            .orderBy('position'),
        )
        .returning(['async_tasks.id', 'async_tasks.run_at']),
    )
    .with('wake', (cte) =>
      cte
        .selectFrom('inserted')
        .where('inserted.run_at', '<=', databaseNow)
        .where(sql<boolean>`${parameter<string | null>('channel')}::text is not null`)
        .limit(sql.lit(1))
        .select(sql<string>`pg_notify(${parameter<string | null>('channel')}::text, '')::text`.as('sent')),
    )
    .selectFrom('inserted')
    .leftJoin('wake', (join) => join.onTrue())
    .orderBy('inserted.id')
    .select([sql<string>`inserted.id::text`.as('id'), 'wake.sent']),
);

/** `delayMs` counts from the insert itself, which may be long after the transaction's own now(). */
function runAtOf(delayMs: RawBuilder<unknown>, runAtMs: RawBuilder<unknown>): RawBuilder<Date> {
  return sql<Date>`case
    when ${delayMs} is not null then clock_timestamp() + ${delayMs} * interval '1 millisecond'
    when ${runAtMs} is not null then to_timestamp(${runAtMs} / 1000)
    else ${databaseNow} end`;
}

/**
 * Inserts tasks in the caller's transaction and sends the wake in the same statement, so that both exist
 * exactly when that transaction commits. PostgreSQL folds equal notifications of a transaction into one.
 * Answers the ids in the order of `tasks`.
 * @param wake `poll` for no wake
 */
export async function insertTasks(
  lane: CallerLane,
  tasks: readonly NewTask[],
  wake: Wake = 'notify',
): Promise<TaskId[]> {
  const [first] = tasks;
  const channel = wake === 'poll' ? null : wakeChannel(lane.schema);
  if (first !== undefined && tasks.length === 1) return [await insertTask(lane, first, channel)];
  const values = { tasks: `[${tasks.map(taskJson).join(',')}]`, channel };
  const rows = await insertStatement.run(lane, values);
  return rows.map((row) => row.id as TaskId);
}

async function insertTask(lane: CallerLane, task: NewTask, channel: string | null): Promise<TaskId> {
  const { queue, type, payloadText: payload, payloadRevision: revision, maxAttempts } = task;
  const { runAtMs = null, delayMs = null, ceilingMs = null, retentionMs = null } = task;
  const given = {
    queue,
    type,
    payload,
    revision,
    maxAttempts,
    headers: JSON.stringify(task.headers),
    channel,
  };
  const limits = { runAtMs, delayMs, ceilingMs, retentionMs };
  const isOrdinary = runAtMs === null && delayMs === null && ceilingMs === null && retentionMs === null;
  const ordinary = channel === null ? insertDueQuietlyStatement : insertDueStatement;
  const [row] = isOrdinary
    ? await ordinary.run(lane, given)
    : await insertWithLimitsStatement.run(lane, { ...given, ...limits });
  return row?.id as TaskId;
}

/** The bytes a task takes in the statement; for cutting a bulk enqueue into statements. */
export function insertBytes(task: NewTask): number {
  return Buffer.byteLength(task.payloadText) + 200;
}

/** A task as one JSON document of a bulk statement. */
export function taskJson(task: NewTask): string {
  const { payloadText, ...rest } = task;
  const { queue, type, payloadRevision: revision, runAtMs, delayMs, maxAttempts, headers } = rest;
  const { ceilingMs, retentionMs } = rest;
  const limits = { maxAttempts, ceilingMs, retentionMs };
  const fields = JSON.stringify({ queue, type, revision, runAtMs, delayMs, ...limits, headers });
  // The payload is JSON already: it is put in as it is, not encoded a second time.
  return `${fields.slice(0, -1)},"payload":${payloadText}}`;
}
