import { sql } from 'kysely';
import type { TaskId } from '../domain/ids.ts';
import type { Wake } from '../domain/task-definition.ts';
import type { UniqueKey, Uniqueness } from '../domain/uniqueness.ts';
import { type NewTask, taskJson } from './enqueue.ts';
import type { CallerLane } from './lanes.ts';
import { parameter, statement } from './statement.ts';

/** A task to insert unless its key stands in the way. */
export interface NewUniqueTask extends NewTask {
  readonly unique: Uniqueness;
  readonly key: UniqueKey;
}

export interface UniqueResult {
  readonly id: TaskId;
  readonly status: 'enqueued' | 'existing' | 'replaced';
}

// The function of sql/0007_enqueue_limits.sql does the work: judging a key needs a snapshot taken after the lock on it,
// so it cannot be one statement. The tasks are taken out of the document in its order, and so the keys are locked
// in that order. Their JSON is written out by the database: a trigger that passes
// jsonb_build_object('stackId', …)::text as its key has the key of `by: ['stackId']`.
const enqueueStatement = statement((db, schema) =>
  db
    .with(
      (cte) => cte('given').materialized(),
      (cte) =>
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
    .selectFrom('given')
    .innerJoinLateral(
      sql<{ id: string; status: UniqueResult['status'] }>`${sql.id(schema, 'enqueue')}(
        task_type => task ->> 'type',
        payload => task -> 'payload',
        queue => task ->> 'queue',
        run_at => to_timestamp((task ->> 'runAtMs')::float8 / 1000),
        delay => (task ->> 'delayMs')::float8 * interval '1 millisecond',
        max_attempts => (task ->> 'maxAttempts')::int,
        headers => task -> 'headers',
        payload_revision => (task ->> 'revision')::int,
        unique_key => coalesce(task ->> 'keyText', (task -> 'keyJson')::text, (task -> 'payload')::text),
        unique_while => task ->> 'while',
        unique_window => (task ->> 'windowMs')::float8 * interval '1 millisecond',
        on_conflict => task ->> 'onConflict',
        timeout => (task ->> 'ceilingMs')::float8 * interval '1 millisecond',
        retention => (task ->> 'retentionMs')::float8 * interval '1 millisecond',
        wake => ${parameter<Wake>('wake')}::text)`.as('enqueued'),
      (join) => join.onTrue(),
    )
    .orderBy('given.position')
    .select([sql<string>`enqueued.id::text`.as('id'), 'enqueued.status']),
);

/**
 * Enqueues each task unless one with its key is in the way, in the caller's transaction, and locks the keys until
 * that ends. A conflict is an answer, also with `onConflict: 'error'`: raised here, it would abort the transaction.
 * Answers in the order of `tasks`, in which the keys are locked: the caller sorts.
 */
export async function enqueueUnique(
  lane: CallerLane,
  tasks: readonly NewUniqueTask[],
  wake: Wake,
): Promise<UniqueResult[]> {
  const rows = await enqueueStatement.run(lane, { tasks: `[${tasks.map(toJson).join(',')}]`, wake });
  return rows.map(({ id, status }) => ({ id: id as TaskId, status }));
}

function toJson({ unique, key, ...task }: NewUniqueTask): string {
  const { while: mode, windowMs, onConflict } = unique;
  const fields = JSON.stringify({
    while: mode,
    windowMs,
    onConflict: onConflict === 'replace' ? 'replace' : 'skip',
    ...(key.kind === 'text' ? { keyText: key.text } : {}),
  });
  const keyJson = key.kind === 'json' ? `,"keyJson":${key.text}` : '';
  return `${taskJson(task).slice(0, -1)}${keyJson},${fields.slice(1)}`;
}
