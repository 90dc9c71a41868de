import { sql } from 'kysely';
import type { TaskId } from '../domain/ids.ts';
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
  readonly headers: Readonly<Record<string, string>>;
}

// One JSON document carries any number of rows: one parameter of one type, whichever driver sends it.
// The rows are inserted in the given order, so their ids ascend in that order too. The wake is selected
// from the inserted rows: in a CTE that nobody reads it would never fire, and a task due later needs none.
const insertStatement = statement((db) =>
  db
    .with('given', (cte) =>
      cte
        .selectFrom(
          sql<{
            task: unknown;
            position: string;
          }>`jsonb_array_elements(${parameter<string>('tasks')}::text::jsonb) with ordinality`.as<'given'>(
            sql`given(task, position)`,
          ),
        )
        .selectAll(),
    )
    .with('inserted', (cte) =>
      cte
        .insertInto('async_tasks')
        .columns(['queue', 'task_type', 'payload', 'payload_revision', 'run_at', 'max_attempts', 'headers'])
        .expression((from) =>
          from
            .selectFrom('given')
            .select([
              sql<string>`task ->> 'queue'`.as('queue'),
              sql<string>`task ->> 'type'`.as('task_type'),
              sql<string>`task -> 'payload'`.as('payload'),
              sql<number>`(task ->> 'revision')::int`.as('payload_revision'),
              runAt.as('run_at'),
              sql<number>`(task ->> 'maxAttempts')::int`.as('max_attempts'),
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
        .limit(sql.lit(1))
        .select(sql<string>`pg_notify(${parameter<string>('channel')}::text, '')::text`.as('sent')),
    )
    .selectFrom('inserted')
    .leftJoin('wake', (join) => join.onTrue())
    .orderBy('inserted.id')
    .select([sql<string>`inserted.id::text`.as('id'), 'wake.sent']),
);

const runAt = sql<Date>`case
  when task ->> 'delayMs' is not null then clock_timestamp() + (task ->> 'delayMs')::float8 * interval '1 millisecond'
  when task ->> 'runAtMs' is not null then to_timestamp((task ->> 'runAtMs')::float8 / 1000)
  else now() end`;

/**
 * Inserts tasks in the caller's transaction and sends the wake in the same statement, so that both exist
 * exactly when that transaction commits. PostgreSQL folds equal notifications of a transaction into one.
 * Answers the ids in the order of `tasks`.
 */
export async function insertTasks(lane: CallerLane, tasks: readonly NewTask[]): Promise<TaskId[]> {
  const values = { tasks: `[${tasks.map(toJson).join(',')}]`, channel: wakeChannel(lane.schema) };
  const rows = await insertStatement.run(lane, values);
  return rows.map((row) => row.id as TaskId);
}

/** The bytes a task takes in the statement; for cutting a bulk enqueue into statements. */
export function insertBytes(task: NewTask): number {
  return Buffer.byteLength(task.payloadText) + 200;
}

function toJson(task: NewTask): string {
  const { payloadText, ...rest } = task;
  const { queue, type, payloadRevision: revision, runAtMs, delayMs, maxAttempts, headers } = rest;
  const fields = JSON.stringify({ queue, type, revision, runAtMs, delayMs, maxAttempts, headers });
  // The payload is JSON already: it is put in as it is, not encoded a second time.
  return `${fields.slice(0, -1)},"payload":${payloadText}}`;
}
