import pg from 'pg';
import { type Duration, durationMs } from '../domain/duration.ts';
import { TaskqError } from '../domain/errors.ts';
import { checkSchemaName, quoteIdentifier } from '../domain/schema-name.ts';
import { type ConnectionSettings, connectionConfig } from '../postgres/lanes.ts';
import { CLOCK_MOVED, wakeChannel } from '../statements/wake-channel.ts';
import { searchPathSettings } from './search-path.ts';

// A database clock that a test moves, without a word about it in the product's SQL. The statements call now() and
// clock_timestamp() unqualified, and PostgreSQL looks names up along search_path; pg_catalog comes first only as long
// as the path does not name it. So functions of the same names, in a schema put before pg_catalog on the path of the
// test's connections, are what those calls mean there. Every other connection keeps the real time.
//
// now() is STABLE as the original is: the planner may not fold it into a plan, so a prepared statement follows the
// clock, and it may still be compared with an index. Column defaults were bound to the real now() when the table was
// made, whatever the path, so those of the queue's own tables are bound anew while the clock exists; and so is the
// search_path that the queue's own functions carry, for whichever connection calls them.

/** One for each database: it is the database's time that moves, for every queue in it. */
const CLOCK_SCHEMA = 'taskq_test_clock';

export interface TestClockOptions {
  /** The schema of the queue's tables, for their column defaults and for the wake. Default `'taskq'`. */
  readonly schema?: string;
  /** Needed unless the name of the database has the word `test` in it. */
  readonly allow?: 'this is a test database';
}

/** The time of a test database, as the connections made with `connection` tell it. It runs on from where it is put. */
export interface TestClock {
  /** For `createApp`, `drain`, and the test's own pool: pg's connection settings, with the clock's search_path. */
  readonly connection: pg.ClientConfig;
  /** Moves the time on: leases lapse, backoffs end, delayed tasks become due. Wakes the replicas. Answers the new time. */
  advance(by: Duration): Promise<Date>;
  /** Puts the time to a moment, in the past too. Wakes the replicas. Answers the new time. */
  set(to: Date | string): Promise<Date>;
  /** What the database answers to `clock_timestamp()`. */
  now(): Promise<Date>;
  /** Back to the real time; the clock stays. */
  reset(): Promise<void>;
  /** Takes the clock out of the database: column defaults and functions as they were, its schema dropped. */
  remove(): Promise<void>;
}

/**
 * Puts a clock into a test database, or finds the one that is there. Migrate first. Needs the right to create a schema
 * and to alter the queue's tables.
 * @throws TaskqError `CONFIG_INVALID` when the database does not look like one of a test, when the schema holds no
 *   queue, or for connection settings that cannot carry a search_path; database errors as they are
 */
export async function createTestClock(
  connection: ConnectionSettings,
  options: TestClockOptions = {},
): Promise<TestClock> {
  const schema = checkSchemaName(options.schema ?? 'taskq');
  const searchPath = await withClient(connection, async (client) => {
    await refuseUnlessTest(client, options.allow);
    await install(client, schema);
    return clockedSearchPath(client);
  });
  return new InstalledClock(connection, schema, searchPathSettings(connection, searchPath));
}

class InstalledClock implements TestClock {
  readonly connection: pg.ClientConfig;
  readonly #original: ConnectionSettings;
  readonly #schema: string;

  constructor(original: ConnectionSettings, schema: string, connection: pg.ClientConfig) {
    this.connection = connection;
    this.#original = original;
    this.#schema = schema;
  }

  async advance(by: Duration): Promise<Date> {
    return this.#move('ahead_ms + $2::float8', durationMs(by, 'advance'));
  }

  async set(to: Date | string): Promise<Date> {
    const ms = new Date(to).getTime();
    if (Number.isNaN(ms)) {
      throw new TaskqError(
        'OPTION_INVALID',
        `the test clock: expected a valid Date or ISO text, received ${String(to)}`,
      );
    }
    return this.#move('$2::float8 - extract(epoch from pg_catalog.clock_timestamp())::float8 * 1000', ms);
  }

  now(): Promise<Date> {
    return this.#ask(`select ${NOW_MS} as ms`);
  }

  async reset(): Promise<void> {
    await this.#move('$2::float8', 0);
  }

  async remove(): Promise<void> {
    await withClient(this.#original, async (client) => {
      await inTransaction(client, async () => {
        await rebindDefaults(client, CLOCK_DEFAULTS, (name) => `pg_catalog.${name}()`);
        await rebindFunctions(client, CLOCK_FUNCTIONS, (schema) => `${schema}, pg_temp`);
        await client.query(`drop schema if exists ${CLOCK_SCHEMA} cascade`);
      });
    });
  }

  // The wake goes out with the commit, so whoever looks because of it sees the new time.
  #move(aheadMs: string, value: number): Promise<Date> {
    const moved = `update ${CLOCK_SCHEMA}.state set ahead_ms = ${aheadMs} returning pg_notify($1, '${CLOCK_MOVED}'), ahead_ms`;
    const values = [wakeChannel(this.#schema), value];
    return this.#ask(`with moved as (${moved}) select ${REAL_MS} + ahead_ms as ms from moved`, values);
  }

  async #ask(query: string, values: unknown[] = []): Promise<Date> {
    const { rows } = await withClient(this.#original, (client) =>
      client.query<{ ms: number }>(query, values),
    );
    return new Date(Math.round(rows[0]?.ms ?? Number.NaN));
  }
}

const REAL_MS = 'extract(epoch from pg_catalog.clock_timestamp())::float8 * 1000';
const NOW_MS = `extract(epoch from ${CLOCK_SCHEMA}.clock_timestamp())::float8 * 1000`;

/** `app_test`, `test-3`, `TestDb` is not: a word of its own, so that `latest` or `contest` do not pass. */
const TEST_NAME = /(?:^|[^a-z])tests?(?:[^a-z]|$)/i;

async function refuseUnlessTest(client: pg.Client, allow: string | undefined): Promise<void> {
  if (allow === 'this is a test database') return;
  const { rows } = await client.query<{ name: string }>('select pg_catalog.current_database()::text as name');
  const name = rows[0]?.name ?? '';
  if (TEST_NAME.test(name)) return;
  throw new TaskqError(
    'CONFIG_INVALID',
    `the test clock: '${name}' does not look like the database of a test, whose name has the word 'test' in it; if it is one, say so with { allow: 'this is a test database' }`,
  );
}

async function install(client: pg.Client, schema: string): Promise<void> {
  await inTransaction(client, async () => {
    await refuseUnlessQueue(client, schema);
    // Two test files may put the clock into one database at once.
    await client.query(`select pg_advisory_xact_lock(hashtext('${CLOCK_SCHEMA}'))`);
    await client.query(INSTALL);
    await rebindDefaults(client, realDefaultsOf(schema), (name) => `${CLOCK_SCHEMA}.${name}()`);
    const clocked = (own: string) => `${own}, ${CLOCK_SCHEMA}, pg_catalog, pg_temp`;
    await rebindFunctions(client, functionsOf(schema), clocked);
  });
}

async function refuseUnlessQueue(client: pg.Client, schema: string): Promise<void> {
  const table = `${quoteIdentifier(schema)}.async_tasks`;
  const { rows } = await client.query<{ found: boolean }>('select to_regclass($1) is not null as found', [
    table,
  ]);
  if (rows[0]?.found === true) return;
  throw new TaskqError(
    'CONFIG_INVALID',
    `the test clock: there is no queue in the schema '${schema}'; migrate it first, or name its schema`,
  );
}

// Anyone may read the clock: for a role that may not, PostgreSQL passes the schema over, and the time is real again.
const INSTALL = `
create schema if not exists ${CLOCK_SCHEMA};
create table if not exists ${CLOCK_SCHEMA}.state (
  only_row boolean primary key default true check (only_row),
  ahead_ms double precision not null default 0
);
insert into ${CLOCK_SCHEMA}.state default values on conflict do nothing;
create or replace function ${CLOCK_SCHEMA}.now() returns timestamptz language sql stable parallel safe as
  $$ select pg_catalog.now() + ahead_ms * interval '1 millisecond' from ${CLOCK_SCHEMA}.state $$;
create or replace function ${CLOCK_SCHEMA}.transaction_timestamp() returns timestamptz language sql stable parallel safe as
  $$ select ${CLOCK_SCHEMA}.now() $$;
create or replace function ${CLOCK_SCHEMA}.statement_timestamp() returns timestamptz language sql stable parallel safe as
  $$ select pg_catalog.statement_timestamp() + ahead_ms * interval '1 millisecond' from ${CLOCK_SCHEMA}.state $$;
create or replace function ${CLOCK_SCHEMA}.clock_timestamp() returns timestamptz language sql volatile parallel safe as
  $$ select pg_catalog.clock_timestamp() + ahead_ms * interval '1 millisecond' from ${CLOCK_SCHEMA}.state $$;
grant usage on schema ${CLOCK_SCHEMA} to public;
grant select on ${CLOCK_SCHEMA}.state to public;
`;

interface CatalogQuery {
  readonly where: string;
  readonly values: readonly string[];
}

/** Defaults of one schema that call the real clock. */
const realDefaultsOf = (schema: string): CatalogQuery => ({
  where: `n.nspname = $1 and pg_get_expr(d.adbin, d.adrelid) in ('now()', 'clock_timestamp()')`,
  values: [schema],
});

/** Defaults of any schema that call the test's. */
const CLOCK_DEFAULTS: CatalogQuery = {
  where: `pg_get_expr(d.adbin, d.adrelid) in ('${CLOCK_SCHEMA}.now()', '${CLOCK_SCHEMA}.clock_timestamp()')`,
  values: [],
};

async function rebindDefaults(
  client: pg.Client,
  { where, values }: CatalogQuery,
  expression: (functionName: string) => string,
): Promise<void> {
  // An expression is shown with those names qualified that the path does not find.
  await client.query('set local search_path = pg_catalog');
  const { rows } = await client.query<Record<'table' | 'column' | 'name', string>>(
    `select format('%I.%I', n.nspname, c.relname) as table, quote_ident(a.attname) as column,
       substring(pg_get_expr(d.adbin, d.adrelid) from '([a-z_]+)\\(\\)$') as name
     from pg_attrdef d
       join pg_class c on c.oid = d.adrelid
       join pg_namespace n on n.oid = c.relnamespace
       join pg_attribute a on a.attrelid = d.adrelid and a.attnum = d.adnum
     where ${where} order by 1, 2`,
    [...values],
  );
  for (const { table, column, name } of rows) {
    await client.query(`alter table ${table} alter column ${column} set default ${expression(name)}`);
  }
}

/** Functions of one schema that carry a search_path. */
const functionsOf = (schema: string): CatalogQuery => ({
  where: `n.nspname = $1 and exists (select from unnest(p.proconfig) s where s like 'search_path=%')`,
  values: [schema],
});

/** Functions of any schema that carry the clock's. */
const CLOCK_FUNCTIONS: CatalogQuery = {
  where: `exists (select from unnest(p.proconfig) s where s like 'search_path=%${CLOCK_SCHEMA}%')`,
  values: [],
};

/** After `rebindDefaults`, whose search_path makes the functions' names qualified. */
async function rebindFunctions(
  client: pg.Client,
  { where, values }: CatalogQuery,
  searchPath: (schema: string) => string,
): Promise<void> {
  const { rows } = await client.query<Record<'function' | 'schema', string>>(
    `select p.oid::regprocedure::text as function, quote_ident(n.nspname) as schema
     from pg_proc p join pg_namespace n on n.oid = p.pronamespace where ${where} order by 1`,
    [...values],
  );
  for (const row of rows) {
    await client.query(`alter function ${row.function} set search_path = ${searchPath(row.schema)}`);
  }
}

/** The path that the connection has without the clock, behind the clock and pg_catalog. */
async function clockedSearchPath(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ path: string }>(`select current_setting('search_path') as path`);
  const { path = '' } = rows[0] ?? {};
  return [CLOCK_SCHEMA, 'pg_catalog', ...(path.trim() === '' ? [] : [path])].join(', ');
}

async function inTransaction(client: pg.Client, work: () => Promise<void>): Promise<void> {
  await client.query('begin');
  await work();
  await client.query('commit');
}

/** A connection for one operation: the clock holds none, so a test has nothing to close. A failure rolls back. */
async function withClient<Answer>(
  connection: ConnectionSettings,
  use: (client: pg.Client) => Promise<Answer>,
): Promise<Answer> {
  const client = new pg.Client(connectionConfig(connection));
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}
