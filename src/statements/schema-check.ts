import { sql } from 'kysely';
import { migrations as knownMigrations } from '../../generated/migrations.ts';
import { TaskqError } from '../domain/errors.ts';
import { quoteIdentifier } from '../domain/schema-name.ts';
import type { OwnLane } from './lanes.ts';

/** Not kysely's default names: in a schema shared with an application, those are the application's own. */
export const MIGRATION_TABLE = 'taskq_migrations';
export const MIGRATION_LOCK_TABLE = 'taskq_migrations_lock';

/** Which migrations a schema has, seen from this version of taskq; names in order. */
export interface MigrationStatus {
  readonly schema: string;
  readonly applied: readonly string[];
  readonly pending: readonly string[];
  /** Applied by a newer version; this one does not know them. */
  readonly ahead: readonly string[];
}

/** What the catalogue says about the schema and about the role that asks. */
export interface SchemaFacts {
  readonly database: string;
  readonly role: string;
  readonly schemaExists: boolean;
  readonly mayUseSchema: boolean;
  readonly mayCreateInSchema: boolean;
  readonly mayCreateSchema: boolean;
  readonly recordExists: boolean;
  readonly mayReadRecord: boolean;
  readonly mayWriteRecord: boolean;
}

type Executor = OwnLane['executor'];
interface Named {
  readonly name: string;
}

/**
 * Reads the catalogue. Writes nothing and needs no privilege.
 */
export async function readSchemaFacts(executor: Executor, schema: string): Promise<SchemaFacts> {
  const { rows } = await sql<SchemaFacts>`
    select current_database()::text as "database", current_user::text as "role",
      n.oid is not null as "schemaExists",
      coalesce(has_schema_privilege(n.oid, 'USAGE'), false) as "mayUseSchema",
      coalesce(has_schema_privilege(n.oid, 'CREATE'), false) as "mayCreateInSchema",
      has_database_privilege(current_database(), 'CREATE') as "mayCreateSchema",
      c.oid is not null as "recordExists",
      coalesce(has_table_privilege(c.oid, 'SELECT'), false) as "mayReadRecord",
      coalesce(has_table_privilege(c.oid, 'INSERT') and has_table_privilege(c.oid, 'UPDATE')
        and has_table_privilege(c.oid, 'DELETE'), false) as "mayWriteRecord"
    from (select 1) as always
    left join pg_catalog.pg_namespace n on n.nspname = ${schema}
    left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = ${MIGRATION_TABLE}`.execute(
    executor,
  );
  return rows[0] as SchemaFacts;
}

/**
 * Compares the recorded migrations with `migrations`. Takes no lock but ACCESS SHARE on the record.
 * @throws TaskqError `PRIVILEGE_MISSING` when the role may not read the record
 */
export async function readMigrationStatus(
  executor: Executor,
  schema: string,
  migrations: readonly Named[] = knownMigrations,
  facts?: SchemaFacts,
): Promise<MigrationStatus> {
  const known = facts ?? (await readSchemaFacts(executor, schema));
  const names = migrations.map(({ name }) => name);
  if (!known.recordExists) return { schema, applied: [], pending: names, ahead: [] };
  requireReadable(known, schema);
  const { rows } = await sql<Named>`
    select name from ${sql.id(schema, MIGRATION_TABLE)} order by name collate "C"`.execute(executor);
  const recorded = rows.map(({ name }) => name);
  return {
    schema,
    applied: recorded,
    pending: names.filter((name) => !recorded.includes(name)),
    ahead: recorded.filter((name) => !names.includes(name)),
  };
}

/**
 * For the start of a worker: whether this version of taskq can work with the schema. Only reads.
 * A schema that is ahead is fine while a newer replica rolls out, since migrations only add;
 * one that does not is named `<number>_breaking_<words>`, which an older version can tell from the record.
 * @throws TaskqError `SCHEMA_BEHIND` with the command to run, `SCHEMA_AHEAD`, `PRIVILEGE_MISSING`
 */
export async function checkSchema(
  executor: Executor,
  schema: string,
  migrations: readonly Named[] = knownMigrations,
): Promise<MigrationStatus> {
  const facts = await readSchemaFacts(executor, schema);
  const status = await readMigrationStatus(executor, schema, migrations, facts);
  const breaking = status.ahead.filter((name) => /^\d+_breaking_/.test(name));
  if (breaking.length > 0) {
    throw new TaskqError(
      'SCHEMA_AHEAD',
      `schema ${quoteIdentifier(schema)} in database ${quoteIdentifier(facts.database)} has ${breaking.join(', ')}, ` +
        'which this version of taskq cannot work with: install the newer version',
    );
  }
  if (status.pending.length > 0) {
    const lacks = facts.recordExists ? `lacks ${status.pending.join(', ')}` : 'has no tables of taskq yet';
    throw new TaskqError(
      'SCHEMA_BEHIND',
      `schema ${quoteIdentifier(schema)} in database ${quoteIdentifier(facts.database)} ${lacks}; run: ` +
        migrateCommand(schema),
    );
  }
  return status;
}

/** The command for a message, with the schema when it is not the default one, quoted for a POSIX shell. */
export function migrateCommand(schema: string): string {
  if (schema === 'taskq') return 'taskq migrate up';
  return `taskq migrate up --schema '${schema.replaceAll("'", String.raw`'\''`)}'`;
}

interface TablePrivileges {
  readonly role: string;
  readonly missingRight: string | null;
  readonly unseenBy: string | null;
}

/**
 * For the start of a worker, after `checkSchema`: whether the role may do what a worker does. Only reads.
 * An identity column needs no right on its sequence, and the functions called are PostgreSQL's own.
 * @throws TaskqError `PRIVILEGE_MISSING` naming the first missing right, its object and the statement that grants it
 */
export async function checkPrivileges(executor: Executor, schema: string): Promise<void> {
  const facts = await readSchemaFacts(executor, schema);
  if (!facts.mayUseSchema) throw missingUsage(facts, schema);
  for (const table of WORKER_TABLES) await checkTable(executor, schema, table, facts);
}

type Right = 'SELECT' | 'INSERT' | 'UPDATE' | 'DELETE';
export interface WorkerTable {
  readonly name: string;
  readonly rights: readonly Right[];
}

const READ: readonly Right[] = ['SELECT'];
const READ_AND_WRITE: readonly Right[] = ['SELECT', 'INSERT', 'UPDATE', 'DELETE'];

/** What a worker needs, whichever its roles are. What operators say about queues it only reads. */
export const WORKER_TABLES: readonly WorkerTable[] = [
  { name: 'async_tasks', rights: READ_AND_WRITE },
  { name: 'async_task_keys', rights: READ_AND_WRITE },
  { name: 'async_queues', rights: READ },
  { name: 'async_completed_tasks', rights: READ_AND_WRITE },
  { name: 'async_cron_ticks', rights: READ_AND_WRITE },
  { name: 'async_audit', rights: READ_AND_WRITE },
  { name: 'async_task_types', rights: READ_AND_WRITE },
  { name: 'async_replicas', rights: READ_AND_WRITE },
];

async function checkTable(
  executor: Executor,
  schema: string,
  { name, rights }: WorkerTable,
  facts: SchemaFacts,
): Promise<void> {
  const { rows } = await sql<TablePrivileges>`
    select current_user::text as "role",
      (select r.right from (values (1, 'SELECT'), (2, 'INSERT'), (3, 'UPDATE'), (4, 'DELETE')) as r(place, "right")
        where r.right = any(${rights}) and not has_table_privilege(c.oid, r.right) order by r.place limit 1) as "missingRight",
      (select r.right from (values (1, 'r', 'SELECT'), (2, 'a', 'INSERT'), (3, 'w', 'UPDATE'), (4, 'd', 'DELETE'))
          as r(place, letter, "right")
        where r.right = any(${rights}) and row_security_active(c.oid) and not exists (
          select from pg_catalog.pg_policy p
          where p.polrelid = c.oid and p.polpermissive and p.polcmd::text in ('*', r.letter)
            and exists (select from unnest(p.polroles) as granted(oid)
              where granted.oid = 0 or pg_has_role(granted.oid, 'USAGE')))
        order by r.place limit 1) as "unseenBy"
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = ${schema} and c.relname = ${name}`.execute(executor);
  const found = rows[0];
  const table = `${quoteIdentifier(schema)}.${name}`;
  if (found === undefined)
    throw new TaskqError('SCHEMA_BEHIND', `table ${table} is missing; run: ${migrateCommand(schema)}`);
  if (found.missingRight !== null) {
    throw privilegeMissing(facts, found.missingRight, `table ${table}`, [
      `GRANT ${rights.join(', ')} ON ${table} TO ${quoteIdentifier(found.role)}`,
    ]);
  }
  // Row-level security hides rows without an error: the worker would idle beside a full queue.
  if (found.unseenBy !== null) {
    throw privilegeMissing(facts, `a row-level security policy for ${found.unseenBy}`, `table ${table}`, [
      `CREATE POLICY taskq_worker ON ${table} TO ${quoteIdentifier(found.role)} USING (true) WITH CHECK (true)`,
    ]);
  }
}

function requireReadable(facts: SchemaFacts, schema: string): void {
  if (!facts.mayUseSchema) throw missingUsage(facts, schema);
  if (facts.mayReadRecord) return;
  const table = `${quoteIdentifier(schema)}.${MIGRATION_TABLE}`;
  throw privilegeMissing(facts, 'SELECT', `table ${table}`, [
    `GRANT SELECT ON ${table} TO ${quoteIdentifier(facts.role)}`,
  ]);
}

function missingUsage(facts: SchemaFacts, schema: string): TaskqError {
  const name = quoteIdentifier(schema);
  return privilegeMissing(facts, 'USAGE', `schema ${name}`, [
    `GRANT USAGE ON SCHEMA ${name} TO ${quoteIdentifier(facts.role)}`,
  ]);
}

/** One sentence for every missing right: who, what, on what, and what an owner may run (any one of `remedies`). */
export function privilegeMissing(
  facts: Pick<SchemaFacts, 'role' | 'database'>,
  right: string,
  object: string,
  remedies: readonly string[],
): TaskqError {
  const database = quoteIdentifier(facts.database);
  const place = object === `database ${database}` ? '' : ` in database ${database}`;
  return new TaskqError(
    'PRIVILEGE_MISSING',
    `role ${quoteIdentifier(facts.role)} lacks ${right} on ${object}${place}. ` +
      `Run as its owner: ${remedies.map((remedy) => `${remedy};`).join(' or ')}`,
  );
}
