import { type ExpressionBuilder, expressionBuilder, type RawBuilder, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { type Statement, statement } from './statement.ts';

// Pages of long lists are written as SQL: what counts in them is the exact shape of the plan.

/** Makes the name of a table of the queue, with the schema before it. */
export type TableOf = (table: keyof DB) => RawBuilder<unknown>;

/** The predicates of `predicates.ts` on rows that the statement calls `async_tasks`. */
export const taskRow: ExpressionBuilder<DB, 'async_tasks'> = expressionBuilder<DB, 'async_tasks'>();

/** A statement that is compiled once, written as SQL. */
export function rawStatement<Row>(text: (table: TableOf) => RawBuilder<Row>): Statement<Row> {
  return statement<Row>((db, schema) => ({
    compile: () => text((table) => sql`${sql.id(schema, table)}`).compile(db),
  }));
}

/** A value that may be null, with its type, since PostgreSQL could not tell it. */
export const given = (parameter: RawBuilder<unknown>, type: 'text' | 'bigint'): RawBuilder<never> =>
  sql<never>`${parameter}::${sql.raw(type)}`;

// As a number the planner would know that it is large, and would rather read everything and sort.
export const untold = (limit: RawBuilder<unknown>): RawBuilder<never> =>
  sql<never>`(select ${limit}::bigint)`;

/** Microseconds since the epoch, as text: a Date would lose the last three digits, and a page with them rows. */
export const microsOf = (instant: RawBuilder<unknown>): RawBuilder<string> =>
  sql<string>`(extract(epoch from ${instant}) * 1000000)::bigint::text`;

export const fromMicros = (micros: RawBuilder<unknown>): RawBuilder<Date> =>
  sql<Date>`(timestamptz 'epoch' + ${micros}::bigint * interval '1 microsecond')`;
