import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import pg from 'pg';
import { migrations as knownMigrations } from '../../generated/migrations.ts';
import { formatDuration } from '../domain/duration.ts';
import { TaskqError } from '../domain/errors.ts';
import {
  MIGRATION_CLIENT_CHECK_MS,
  MIGRATION_LOCK_TIMEOUT_MS,
  MIGRATION_TURN_WAIT_MS,
} from '../domain/limits.ts';
import { checkSchemaName, quoteIdentifier } from '../domain/schema-name.ts';
import { databaseOver, openConnection, rehearsalOver, type UntypedDatabase } from './migration-connection.ts';
import {
  MIGRATION_LOCK_TABLE,
  MIGRATION_TABLE,
  type MigrationStatus,
  privilegeMissing,
  readMigrationStatus,
  readSchemaFacts,
  type SchemaFacts,
} from './schema-check.ts';

// One run is one transaction: turn lock, schema, record and every pending migration commit together or not at
// all. The turn lock belongs to that transaction, so a killed process leaves nothing and PgBouncer cannot keep it.

export interface Migration {
  readonly name: string;
  readonly up: string;
  readonly down: string;
}

export interface MigrateOptions {
  /** The schema of the queue's tables, any name; default `taskq`. */
  readonly schema?: string;
  /** The longest wait for a lock on a table, milliseconds; default 5 s. */
  readonly lockTimeoutMs?: number;
  /** The longest wait for another migration of the same schema, milliseconds; default 30 s. */
  readonly turnWaitMs?: number;
  /** Told what is being done or waited for, one sentence at a time. */
  readonly onProgress?: (message: string) => void;
  /** Default: those this version of taskq was built with. */
  readonly migrations?: readonly Migration[];
}

/** How far down. By default one migration. */
export interface DownOptions {
  /** The migration to stop at, which stays; `'none'` undoes them all. */
  readonly to?: string;
  readonly steps?: number;
}

export interface MigrationReport extends MigrationStatus {
  /** What this run did, in the order it was done; empty when there was nothing to do. */
  readonly ran: readonly string[];
}

export interface PlannedSql {
  readonly schema: string;
  /** The migrations that would run, in order. */
  readonly migrations: readonly string[];
  /** The transaction that would run, as text; empty when there is nothing to do. */
  readonly sql: string;
}

type Connection = string | pg.ClientConfig;
type Settings = Required<Omit<MigrateOptions, 'onProgress'>> & { onProgress: (message: string) => void };
/** Where a run ends: `undefined` when there is nothing to do. */
type Target = { readonly direction: 'up' } | { readonly direction: 'down'; readonly to: string | undefined };

/**
 * Applies every pending migration. Nothing pending: only reads, whatever else is locked, and needs no right but to read.
 * @throws TaskqError `MIGRATION_FAILED` naming the file, rolled back; `MIGRATION_LOCKED` when another run does not
 *   end; `PRIVILEGE_MISSING` with the grant to run; `SCHEMA_AHEAD`; `CONFIG_INVALID` for the schema's name
 */
export async function migrateUp(
  connection: Connection,
  options: MigrateOptions = {},
): Promise<MigrationReport> {
  return migrate(connection, options, (status) => planUp(status));
}

/**
 * Undoes applied migrations, and with them the data they hold.
 * @throws TaskqError as `migrateUp`; `OPTION_INVALID` for a target that is not applied
 */
export async function migrateDown(
  connection: Connection,
  options: MigrateOptions & DownOptions = {},
): Promise<MigrationReport> {
  return migrate(connection, options, (status) => planDown(status, options));
}

/**
 * Only reads.
 * @throws TaskqError `PRIVILEGE_MISSING` when the record may not be read
 */
export async function migrationStatus(
  connection: Connection,
  options: MigrateOptions = {},
): Promise<MigrationStatus> {
  const settings = settingsOf(options);
  return withConnection(connection, (client) =>
    readMigrationStatus(databaseOver(client), settings.schema, settings.migrations),
  );
}

/**
 * What `migrateUp` or `migrateDown` would send, for `--dry-run`. Only reads, and takes no lock.
 * @throws TaskqError as the run itself, save for missing rights: the text may be for somebody who has them
 */
export async function plannedSql(
  connection: Connection,
  options: MigrateOptions & DownOptions & { readonly direction?: 'up' | 'down' } = {},
): Promise<PlannedSql> {
  const settings = settingsOf(options);
  return withConnection(connection, async (client) => {
    const status = await readMigrationStatus(databaseOver(client), settings.schema, settings.migrations);
    const target = options.direction === 'down' ? planDown(status, options) : planUp(status);
    if (target === undefined) return { schema: settings.schema, migrations: [], sql: '' };
    const opening = await openingStatements(client, settings);
    const statements = [...opening, `SELECT pg_advisory_xact_lock(${turnKey(settings.schema)})`];
    const silent = { ...settings, onProgress: () => {} };
    const ran = await runMigrator(rehearsalOver(client, statements), silent, target);
    statements.push('COMMIT');
    return { schema: settings.schema, migrations: ran, sql: statements.map(terminated).join('') };
  });
}

/** A semicolon behind a comment would be part of it. */
function terminated(statement: string): string {
  if (statement.endsWith(';')) return `${statement}\n`;
  return statement.includes('--') ? `${statement}\n;\n` : `${statement};\n`;
}

async function migrate(
  connection: Connection,
  options: MigrateOptions,
  plan: (status: MigrationStatus) => Target | undefined,
): Promise<MigrationReport> {
  const settings = settingsOf(options);
  return withConnection(connection, async (client) => {
    const db = databaseOver(client);
    const status = await readMigrationStatus(db, settings.schema, settings.migrations);
    if (plan(status) === undefined) return { ...status, ran: [] };
    try {
      return await migrateInTurn(client, settings, plan);
    } catch (error) {
      if (!isSchemaRace(error)) throw error;
      // Somebody who does not take the turn lock created the schema in the same moment; it exists now.
      return await migrateInTurn(client, settings, plan);
    }
  });
}

/** One attempt: a transaction that waits for its turn, then looks again at what is left to do. */
async function migrateInTurn(
  client: pg.Client,
  settings: Settings,
  plan: (status: MigrationStatus) => Target | undefined,
): Promise<MigrationReport> {
  const db = databaseOver(client);
  let facts: SchemaFacts | undefined;
  try {
    for (const statement of await openingStatements(client, settings)) await client.query(statement);
    await takeTurn(client, settings);
    facts = await readSchemaFacts(db, settings.schema);
    const status = await readMigrationStatus(db, settings.schema, settings.migrations, facts);
    const target = plan(status);
    if (target === undefined) {
      await client.query('ROLLBACK');
      return { ...status, ran: [] };
    }
    requireRights(facts, settings.schema);
    const ran = await runMigrator(db, settings, target);
    const after = await readMigrationStatus(db, settings.schema, settings.migrations);
    await commit(client);
    for (const name of ran) settings.onProgress(`${target.direction === 'up' ? 'applied' : 'undid'} ${name}`);
    return { ...after, ran };
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {});
    const first =
      error instanceof FileFailure || error instanceof TaskqError ? error : (db.firstError() ?? error);
    throw await explain(client, settings, first, facts);
  }
}

/** A connection that breaks here leaves open whether the server had committed, so the error must not say it did not. */
async function commit(client: pg.Client): Promise<void> {
  try {
    await client.query('COMMIT');
  } catch (cause) {
    if (sqlState(cause) !== undefined) throw cause;
    throw new TaskqError(
      'MIGRATION_FAILED',
      'the connection broke while committing; whether the migration stands is told by: taskq migrate status',
      { cause },
    );
  }
}

function settingsOf(options: MigrateOptions): Settings {
  return {
    schema: checkSchemaName(options.schema ?? 'taskq'),
    lockTimeoutMs: options.lockTimeoutMs ?? MIGRATION_LOCK_TIMEOUT_MS,
    turnWaitMs: options.turnWaitMs ?? MIGRATION_TURN_WAIT_MS,
    migrations: options.migrations ?? knownMigrations,
    onProgress: options.onProgress ?? (() => {}),
  };
}

async function withConnection<T>(
  connection: Connection,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = await openConnection(connection);
  try {
    return await work(client);
  } finally {
    await client.end().catch(() => {});
  }
}

function planUp(status: MigrationStatus): Target | undefined {
  if (status.pending.length === 0) return undefined;
  // Whoever applied the newer ones should have applied these before them; guessing an order could lose data.
  if (status.ahead.length > 0) {
    throw new TaskqError(
      'SCHEMA_AHEAD',
      `schema ${quoteIdentifier(status.schema)} has ${status.ahead.join(', ')}, unknown to this version of taskq, ` +
        `but lacks ${status.pending.join(', ')}: migrate with the newest version`,
    );
  }
  return { direction: 'up' };
}

function planDown(status: MigrationStatus, { to, steps }: DownOptions): Target | undefined {
  const { applied } = status;
  if (to !== undefined && steps !== undefined) {
    throw new TaskqError('OPTION_INVALID', 'migrate down takes a target or a number of steps, not both');
  }
  if (to !== undefined && to !== 'none' && !applied.includes(to)) {
    throw new TaskqError(
      'OPTION_INVALID',
      `migrate down: '${to}' is not applied (applied: ${applied.join(', ') || 'none'})`,
    );
  }
  if (steps !== undefined && (!Number.isSafeInteger(steps) || steps < 1)) {
    throw new TaskqError(
      'OPTION_INVALID',
      `migrate down: steps must be a whole number from 1, received ${steps}`,
    );
  }
  const kept = to === undefined ? Math.max(0, applied.length - (steps ?? 1)) : applied.indexOf(to) + 1;
  const undone = applied.slice(kept);
  if (undone.length === 0) return undefined;
  // Also when one below it is wanted: the Migrator refuses a record it does not know in full.
  if (status.ahead.length > 0) {
    throw new TaskqError(
      'SCHEMA_AHEAD',
      `schema ${quoteIdentifier(status.schema)} has ${status.ahead.join(', ')}: ` +
        'only the version of taskq that applied them can undo them',
    );
  }
  return { direction: 'down', to: applied[kept - 1] };
}

/**
 * READ COMMITTED whatever the database's default: under a snapshot from before the wait for the turn,
 * what the other run has just created would be created again.
 */
async function openingStatements(client: pg.Client, { schema, lockTimeoutMs }: Settings): Promise<string[]> {
  const statements = [
    'BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE',
    // Named last, pg_temp is not searched first: a temporary table cannot stand in for one of ours.
    `SET LOCAL search_path = ${quoteIdentifier(schema)}, pg_temp`,
    `SET LOCAL lock_timeout = ${Math.ceil(lockTimeoutMs)}`,
    // A role's limit for ordinary statements would cut off the wait for a turn, or a long migration.
    'SET LOCAL statement_timeout = 0',
  ];
  // Otherwise the server notices a killed client only when its statement ends,
  // and a long index build would keep the turn until then. Not every platform can: there, setting it fails.
  const check = 'client_connection_check_interval';
  const supported = await client
    .query(`SELECT set_config('${check}', '${MIGRATION_CLIENT_CHECK_MS}', true)`)
    .then(
      () => true,
      () => false,
    );
  if (supported) statements.push(`SET LOCAL ${check} = ${MIGRATION_CLIENT_CHECK_MS}`);
  return statements;
}

/** The key is the database's and the schema's own: advisory locks of other databases never collide. */
function turnKey(schema: string): string {
  return createHash('sha256').update(`taskq migrate ${schema}`).digest().readBigInt64BE().toString();
}

/**
 * Waits until no other migration of this schema runs; the turn ends with the transaction.
 * @throws TaskqError `MIGRATION_LOCKED` when the other one outlasts `turnWaitMs`
 */
async function takeTurn(client: pg.Client, settings: Settings): Promise<void> {
  const key = turnKey(settings.schema);
  const { rows } = await client.query(`SELECT pg_try_advisory_xact_lock(${key}) AS taken`);
  if (rows[0].taken) return;
  const holder = await describeHolder(client, key);
  const other = `another migration of schema ${quoteIdentifier(settings.schema)} (${holder})`;
  settings.onProgress(`waiting up to ${formatDuration(settings.turnWaitMs)} for ${other}`);
  try {
    await client.query(`SET LOCAL lock_timeout = ${Math.ceil(settings.turnWaitMs)}`);
    await client.query(`SELECT pg_advisory_xact_lock(${key})`);
    await client.query(`SET LOCAL lock_timeout = ${Math.ceil(settings.lockTimeoutMs)}`);
  } catch (cause) {
    if (sqlState(cause) !== LOCK_NOT_AVAILABLE) throw cause;
    throw new TaskqError(
      'MIGRATION_LOCKED',
      `gave up after ${formatDuration(settings.turnWaitMs)}: ${other} is still running; nothing was changed`,
      { cause },
    );
  }
}

async function describeHolder(client: pg.Client, key: string): Promise<string> {
  const { rows } = await client.query(
    `SELECT l.pid, a.application_name, date_trunc('second', clock_timestamp() - a.xact_start)::text AS age
     FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a USING (pid)
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
       AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
       AND ((l.classid::bigint << 32) | l.objid::bigint) = ${key}`,
  );
  return rows.length === 0 ? 'just ending' : rows.map(describeBackend).join(', ');
}

function describeBackend(row: { pid: number; application_name: string | null; age: string | null }): string {
  const application = row.application_name ? `, ${row.application_name}` : '';
  return `backend ${row.pid}${application}${row.age === null ? '' : `, for ${row.age}`}`;
}

/** Before the first statement that writes, so that the message can name the right and the grant. */
function requireRights(facts: SchemaFacts, schema: string): void {
  const [name, role, database] = [schema, facts.role, facts.database].map(quoteIdentifier);
  if (!facts.schemaExists && !facts.mayCreateSchema) {
    throw privilegeMissing(facts, `CREATE (to create schema ${name})`, `database ${database}`, [
      `GRANT CREATE ON DATABASE ${database} TO ${role}`,
      `CREATE SCHEMA ${name} AUTHORIZATION ${role}`,
    ]);
  }
  if (facts.schemaExists && !(facts.mayUseSchema && facts.mayCreateInSchema)) {
    const right = facts.mayUseSchema ? 'CREATE' : facts.mayCreateInSchema ? 'USAGE' : 'USAGE, CREATE';
    throw privilegeMissing(facts, right, `schema ${name}`, [
      `GRANT USAGE, CREATE ON SCHEMA ${name} TO ${role}`,
    ]);
  }
  if (facts.recordExists && !facts.mayWriteRecord) {
    throw privilegeMissing(facts, 'INSERT, UPDATE, DELETE', `table ${name}.${MIGRATION_TABLE}`, [
      `GRANT SELECT, INSERT, UPDATE, DELETE ON ${name}.${MIGRATION_TABLE} TO ${role}`,
    ]);
  }
}

/** Runs kysely's Migrator to the target and answers what it ran. Its own failures leave as they are. */
async function runMigrator(db: UntypedDatabase, settings: Settings, target: Target): Promise<string[]> {
  const { Migrator, NO_MIGRATIONS } = await loadMigrator();
  const migrator = new Migrator({
    db,
    provider: {
      getMigrations: async () =>
        Object.fromEntries(
          settings.migrations.map(({ name, up, down }) => [
            name,
            {
              up: (inner: UntypedDatabase) => runFile(inner, settings, `${name}.sql`, up),
              down: (inner: UntypedDatabase) => runFile(inner, settings, `${name}.down.sql`, down),
            },
          ]),
        ),
    },
    migrationTableSchema: settings.schema,
    migrationTableName: MIGRATION_TABLE,
    migrationLockTableName: MIGRATION_LOCK_TABLE,
    nameComparator: (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0),
  });
  const { error, results = [] } =
    target.direction === 'up'
      ? await migrator.migrateToLatest()
      : await migrator.migrateTo(target.to ?? NO_MIGRATIONS);
  if (error !== undefined) throw error;
  const ran = results.map(({ migrationName }) => migrationName);
  if (target.direction === 'up') await stampByDatabase(db, settings.schema, ran);
  return ran;
}

/**
 * The Migrator stamps with the clock of this machine and later sorts by it: two machines whose clocks differ
 * would record an order it refuses as corrupted. Equal stamps of one run are sorted by name.
 */
async function stampByDatabase(db: UntypedDatabase, schema: string, names: readonly string[]): Promise<void> {
  const stamp = sql.lit('YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
  await sql`update ${sql.id(schema, MIGRATION_TABLE)} set "timestamp" = to_char(now() at time zone 'UTC', ${stamp}) where name in (${sql.join(names)})`.execute(
    db,
  );
}

async function runFile(
  db: UntypedDatabase,
  { onProgress }: Settings,
  file: string,
  text: string,
): Promise<void> {
  onProgress(`running ${file}`);
  try {
    await sql.raw(text).execute(db);
  } catch (cause) {
    throw new FileFailure(file, text, cause);
  }
}

/** Carries the file's name past the Migrator, which hands back the error alone. */
class FileFailure extends Error {
  readonly file: string;
  readonly text: string;
  constructor(file: string, text: string, cause: unknown) {
    super(file, { cause });
    this.file = file;
    this.text = text;
  }
}

interface MigratorOutcome {
  readonly error?: unknown;
  readonly results?: readonly { readonly migrationName: string }[];
}
interface MigratorModule {
  readonly Migrator: new (
    props: object,
  ) => {
    migrateToLatest(): Promise<MigratorOutcome>;
    migrateTo(target: unknown): Promise<MigratorOutcome>;
  };
  readonly NO_MIGRATIONS: unknown;
}

/** kysely 0.28 exports the Migrator from its root, 0.29 from `kysely/migration` only: no static import suits both. */
async function loadMigrator(): Promise<MigratorModule> {
  const root: object = await import('kysely');
  if ('Migrator' in root && typeof root.Migrator === 'function') return root as MigratorModule;
  const subpath = 'kysely/migration';
  return (await import(subpath)) as MigratorModule;
}

const LOCK_NOT_AVAILABLE = '55P03';
const INSUFFICIENT_PRIVILEGE = '42501';

function sqlState(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError ? error.code : undefined;
}

function isSchemaRace(error: unknown): boolean {
  const cause = error instanceof TaskqError ? error.cause : error;
  if (!(cause instanceof pg.DatabaseError)) return false;
  return (
    cause.code === '42P06' || (cause.code === '23505' && cause.constraint === 'pg_namespace_nspname_index')
  );
}

/** The error for the caller, after the rollback: what failed, where, and what to do. */
async function explain(
  client: pg.Client,
  { schema, lockTimeoutMs }: Settings,
  error: unknown,
  facts: SchemaFacts | undefined,
): Promise<TaskqError> {
  if (error instanceof TaskqError) return error;
  const cause = error instanceof FileFailure ? error.cause : error;
  const where = error instanceof FileFailure ? `${error.file}${lineOf(error.text, cause)}: ` : '';
  const problem = cause instanceof Error ? cause.message : String(cause);
  const state = sqlState(cause);
  if (state === LOCK_NOT_AVAILABLE) {
    const holders = await describeTableUsers(client, schema).catch(() => '');
    return new TaskqError(
      'MIGRATION_FAILED',
      `${where}no lock on a table within ${formatDuration(lockTimeoutMs)}${holders}. Rolled back, nothing was ` +
        'changed; run it again when whatever uses the table (a backup, a long transaction) has ended',
      { cause },
    );
  }
  if (state === INSUFFICIENT_PRIVILEGE) {
    const role = facts === undefined ? 'the role' : `role ${quoteIdentifier(facts.role)}`;
    return new TaskqError(
      'PRIVILEGE_MISSING',
      `${where}${problem} (schema ${quoteIdentifier(schema)}). Rolled back; migrate as the owner of the schema and ` +
        `its tables, or make ${role} a member of the owning role: GRANT <owner> TO ${facts === undefined ? '<role>' : quoteIdentifier(facts.role)};`,
      { cause },
    );
  }
  return new TaskqError('MIGRATION_FAILED', `${where}${problem}. Rolled back, nothing was changed`, {
    cause,
  });
}

function lineOf(text: string, cause: unknown): string {
  const position = cause instanceof pg.DatabaseError ? Number(cause.position) : Number.NaN;
  // The server counts characters, not UTF-16 units.
  return position >= 1 ? ` line ${[...text].slice(0, position).join('').split('\n').length}` : '';
}

async function describeTableUsers(client: pg.Client, schema: string): Promise<string> {
  const { rows } = await client.query(
    `SELECT l.pid, a.application_name, date_trunc('second', clock_timestamp() - min(a.xact_start))::text AS age
     FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_class c ON c.oid = l.relation
       JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
       LEFT JOIN pg_catalog.pg_stat_activity a USING (pid)
     WHERE n.nspname = $1 AND l.granted AND l.pid <> pg_backend_pid()
     GROUP BY l.pid, a.application_name ORDER BY l.pid LIMIT 5`,
    [schema],
  );
  return rows.length === 0 ? '' : ` (in use by ${rows.map(describeBackend).join('; ')})`;
}
