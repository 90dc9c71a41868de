import { sql } from 'kysely';
import type { SecretShape } from '../domain/secret-fields.ts';
import type { ReadLane, WriteLane } from './lanes.ts';
import { epochText, instantDate } from './predicates.ts';
import { parameter, statement } from './statement.ts';

// What the workers have said about their task types. Written at the start of a replica; read by operators' tools,
// which have no definitions at hand.

/** A task type at one revision of its payload, as a replica runs it. */
export interface TaskTypeFacts {
  readonly type: string;
  readonly revision: number;
  /** Where the payload has secret fields; undefined for none. */
  readonly secrets: SecretShape | undefined;
  readonly cursorSecrets: SecretShape | undefined;
  readonly ceilingMs: number;
  readonly maxAttempts: number;
}

/** As it was registered, and when a replica with it was last started: to the hour. */
export interface RegisteredType extends TaskTypeFacts {
  readonly registeredAt: Date;
}

// In one order in every replica: those that start together would wait for each other in a circle. One that says
// nothing new writes once an hour, so that a replica that dies at every start leaves no trail of dead rows.
const registerStatement = statement((db) =>
  db
    .insertInto('async_task_types')
    .columns(['task_type', 'payload_revision', 'secrets', 'cursor_secrets', 'ceiling_ms', 'max_attempts'])
    .expression((from) =>
      from
        .selectFrom(
          sql<{
            type: string;
            revision: number;
            secrets: string | null;
            cursor_secrets: string | null;
            ceiling_ms: string;
            max_attempts: number;
          }>`jsonb_to_recordset(${parameter<string>('types')}::text::jsonb)`.as<'given'>(
            sql`given(type text, revision integer, secrets jsonb, cursor_secrets jsonb, ceiling_ms bigint, max_attempts integer)`,
          ),
        )
        .orderBy(sql`type collate "C"`)
        .orderBy('revision')
        .select(['type', 'revision', 'secrets', 'cursor_secrets', 'ceiling_ms', 'max_attempts']),
    )
    .onConflict((conflict) =>
      conflict
        .columns(['task_type', 'payload_revision'])
        .doUpdateSet((t) => ({
          secrets: t.ref('excluded.secrets'),
          cursor_secrets: t.ref('excluded.cursor_secrets'),
          ceiling_ms: t.ref('excluded.ceiling_ms'),
          max_attempts: t.ref('excluded.max_attempts'),
          registered_at: sql<Date>`now()`,
        }))
        .where(
          sql<boolean>`(async_task_types.secrets, async_task_types.cursor_secrets, async_task_types.ceiling_ms, async_task_types.max_attempts)
            is distinct from (excluded.secrets, excluded.cursor_secrets, excluded.ceiling_ms, excluded.max_attempts)
            or async_task_types.registered_at < now() - interval '1 hour'`,
        ),
    ),
);

const columns = [
  'task_type',
  'payload_revision',
  sql<string | null>`secrets::text`.as('secrets'),
  sql<string | null>`cursor_secrets::text`.as('cursor_secrets'),
  sql<string>`ceiling_ms::text`.as('ceiling_ms'),
  'max_attempts',
] as const;

const findStatement = statement((db) =>
  db
    .selectFrom('async_task_types')
    .innerJoin(
      sql<{
        type: string;
        revision: number;
      }>`unnest(${parameter<string[]>('types')}::text[], ${parameter<number[]>('revisions')}::integer[])`.as<'wanted'>(
        sql`wanted(type, revision)`,
      ),
      (join) =>
        join
          .onRef('wanted.type', '=', 'async_task_types.task_type')
          .onRef('wanted.revision', '=', 'async_task_types.payload_revision'),
    )
    .select(columns)
    .select((t) => epochText(t.ref('registered_at')).as('registered_at')),
);

const listStatement = statement((db) =>
  db
    .selectFrom('async_task_types')
    .orderBy('task_type')
    .orderBy('payload_revision')
    .select(columns)
    .select((t) => epochText(t.ref('registered_at')).as('registered_at')),
);

/** Says what this replica runs, one row for each type. What is registered already is written once an hour. */
export async function registerTypes(lane: WriteLane, types: readonly TaskTypeFacts[]): Promise<void> {
  const given = types.map((of) => ({
    type: of.type,
    revision: of.revision,
    secrets: of.secrets ?? null,
    cursor_secrets: of.cursorSecrets ?? null,
    ceiling_ms: Math.ceil(of.ceilingMs),
    max_attempts: of.maxAttempts,
  }));
  await registerStatement.run(lane, { types: JSON.stringify(given) });
}

/** Those of the pairs that a replica has registered. */
export async function findTypes(
  lane: ReadLane,
  wanted: readonly { readonly type: string; readonly revision: number }[],
): Promise<RegisteredType[]> {
  const rows = await findStatement.run(lane, {
    types: wanted.map(({ type }) => type),
    revisions: wanted.map(({ revision }) => revision),
  });
  return rows.map(toRegisteredType);
}

/** Every type and revision that was ever registered, by name. */
export async function listTypes(lane: ReadLane): Promise<RegisteredType[]> {
  return (await listStatement.run(lane, {})).map(toRegisteredType);
}

function toRegisteredType(row: Awaited<ReturnType<typeof listStatement.run>>[number]): RegisteredType {
  return {
    type: row.task_type,
    revision: row.payload_revision,
    secrets: shapeOf(row.secrets),
    cursorSecrets: shapeOf(row.cursor_secrets),
    ceilingMs: Number(row.ceiling_ms),
    maxAttempts: row.max_attempts,
    registeredAt: instantDate(row.registered_at),
  };
}

function shapeOf(text: string | null): SecretShape | undefined {
  return text === null ? undefined : (JSON.parse(text) as SecretShape);
}
