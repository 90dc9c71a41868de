import { type ExpressionBuilder, type RawBuilder, type SqlBool, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { CheckedFilter } from '../domain/dead-letter-filter.ts';
import { databaseNow } from './predicates.ts';
import { parameter, type Values } from './statement.ts';

type Tasks = ExpressionBuilder<DB, 'async_tasks'>;

/** A part of the filter that nobody gave is null, and then matches everything. */
const unlessAbsent = (part: RawBuilder<unknown>, condition: RawBuilder<SqlBool>) =>
  sql<SqlBool>`(${part} is null or ${condition})`;

const text = (name: string) => sql<string>`${parameter<string | null>(name)}::text`;

const ago = (name: string) =>
  sql<Date>`coalesce(to_timestamp(${parameter<string | null>('asOf')}::float8), ${databaseNow})
    - ${parameter<number | null>(name)}::float8 * interval '1 millisecond'`;

const absent = (name: string) => sql`${parameter<number | null>(name)}::float8`;

/** As the prune has it: one that was never attempted is as old as its row. */
const lastAttempt = (t: Tasks) =>
  sql<Date>`coalesce(${t.ref('async_tasks.last_attempted_at')}, ${t.ref('async_tasks.created_at')})`;

/** What an operator asked for; of a dead letter. Both sides are lowered by the database, and nothing is a wildcard. */
export const matchesFilter = (t: Tasks) =>
  t.and([
    unlessAbsent(text('type'), sql<SqlBool>`${t.ref('async_tasks.task_type')} = ${text('type')}`),
    unlessAbsent(text('queue'), sql<SqlBool>`${t.ref('async_tasks.queue')} = ${text('queue')}`),
    unlessAbsent(absent('olderThanMs'), sql<SqlBool>`${lastAttempt(t)} <= ${ago('olderThanMs')}`),
    unlessAbsent(absent('newerThanMs'), sql<SqlBool>`${lastAttempt(t)} > ${ago('newerThanMs')}`),
    unlessAbsent(
      text('error'),
      sql<SqlBool>`strpos(lower(${t.ref('async_tasks.last_error')}), lower(${text('error')})) > 0`,
    ),
  ]);

/**
 * The values of `matchesFilter`.
 * @param asOf seconds since the epoch, as `epochText` writes them: a walk of many statements measures age from its
 *   own beginning. Undefined: from the statement's now().
 */
export const filterValues = (filter: CheckedFilter, asOf?: string): Values => ({
  ...filter,
  asOf: asOf ?? null,
});
