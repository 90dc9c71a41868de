import { sql } from 'kysely';
import { type OwnLane, readLane } from './lanes.ts';

// What `taskq doctor` asks of the server's own views. Nothing here writes; what a role may not see comes back as null.

/**
 * Runs `work` in a read-only transaction in which no statement runs longer than `limitMs`: a look at a queue that is
 * in trouble must not add to it.
 */
export async function lookOnly<Answer>(
  lane: OwnLane,
  limitMs: number,
  work: (within: OwnLane) => Promise<Answer>,
): Promise<Answer> {
  const transaction = lane.executor
    .transaction()
    .setIsolationLevel('read committed')
    .setAccessMode('read only');
  return transaction.execute(async (within) => {
    const timeout = `${Math.ceil(limitMs)}ms`;
    await sql`select set_config('statement_timeout', ${timeout}, true)`.execute(within);
    return work(readLane(within, lane.schema));
  });
}

export interface ServerFacts {
  readonly version: string;
  /** 180004 for 18.4. */
  readonly versionNumber: number;
  readonly inRecovery: boolean;
  readonly role: string;
  /** As whom it has logged in: settings of a role are of this one. */
  readonly login: string;
  readonly database: string;
  /** Whether the role sees what sessions of other roles do. */
  readonly seesAllSessions: boolean;
}

export async function readServer(lane: OwnLane): Promise<ServerFacts> {
  const { rows } = await sql<ServerFacts>`
    select current_setting('server_version') as "version",
      current_setting('server_version_num')::int as "versionNumber",
      pg_is_in_recovery() as "inRecovery", current_user::text as "role", session_user::text as "login",
      current_database()::text as "database", pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') as "seesAllSessions"`.execute(
    lane.executor,
  );
  return rows[0] as ServerFacts;
}

export interface ServerSetting {
  readonly name: string;
  /** As a new session of this role in this database has it, in `unit`. */
  readonly value: string;
  readonly unit: string | null;
  /** Where it was set: 'default', 'configuration file', 'database', 'user', 'client'. */
  readonly source: string;
}

/** The settings that exist, by name. */
export async function readSettings(
  lane: OwnLane,
  names: readonly string[],
): Promise<ReadonlyMap<string, ServerSetting>> {
  // The transaction of this statement has set a time limit: reset_val is what it was before, and where that came from
  // is in the catalogue.
  const { rows } = await sql<ServerSetting>`
    select s.name, s.reset_val as "value", s.unit,
      case when s.source = 'session' then coalesce(
        (select case when g.setrole = 0 then 'database' else 'user' end
          from pg_catalog.pg_db_role_setting g, unnest(g.setconfig) as given(text)
          where g.setrole in (0, (select oid from pg_catalog.pg_roles where rolname = session_user))
            and g.setdatabase in (0, (select oid from pg_catalog.pg_database where datname = current_database()))
            and given.text like s.name || '=%'
          order by g.setrole desc, g.setdatabase desc limit 1), 'default')
        else s.source end as "source"
    from pg_catalog.pg_settings s where s.name = any(${names})`.execute(lane.executor);
  return new Map(rows.map((row) => [row.name, row]));
}

export interface ConnectionUse {
  readonly used: number;
  readonly max: number;
  readonly reserved: number;
  readonly usedByRole: number;
  /** Null for no limit of its own. */
  readonly roleMax: number | null;
  readonly usedOfDatabase: number;
  readonly databaseMax: number | null;
}

export async function readConnectionUse(lane: OwnLane): Promise<ConnectionUse> {
  const { rows } = await sql<ConnectionUse>`
    select
      (select count(*)::int from pg_catalog.pg_stat_activity where datid is not null) as "used",
      current_setting('max_connections')::int as "max",
      current_setting('superuser_reserved_connections')::int
        + coalesce(current_setting('reserved_connections', true)::int, 0) as "reserved",
      (select count(*)::int from pg_catalog.pg_stat_activity a where a.usesysid = r.oid and a.datid is not null)
        as "usedByRole",
      nullif(r.rolconnlimit, -1) as "roleMax",
      (select count(*)::int from pg_catalog.pg_stat_activity a where a.datid = d.oid) as "usedOfDatabase",
      nullif(d.datconnlimit, -1) as "databaseMax"
    from pg_catalog.pg_roles r, pg_catalog.pg_database d
    where r.rolname = session_user and d.datname = current_database()`.execute(lane.executor);
  return rows[0] as ConnectionUse;
}

/** Something that keeps vacuum from removing rows, oldest first. */
export interface HorizonHolder {
  readonly kind: 'session' | 'standby' | 'slot' | 'prepared';
  /** The name of the slot or of the prepared transaction; of a session, its state. */
  readonly name: string;
  readonly pid: number | null;
  readonly role: string | null;
  readonly application: string | null;
  /** How long ago it began; null where the server does not say. */
  readonly ageMs: number | null;
  /** Transactions begun since. */
  readonly transactions: number;
}

export async function readHorizon(lane: OwnLane): Promise<HorizonHolder[]> {
  const { rows } = await sql<HorizonHolder>`
    with holders(kind, name, pid, role, application, began, transactions) as (
      select 'session', coalesce(state, ''), pid, usename::text, application_name, xact_start,
          greatest(age(backend_xid), age(backend_xmin))
        from pg_catalog.pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
          and coalesce(backend_xid, backend_xmin) is not null
          and backend_type is distinct from 'autovacuum worker' and query !~* '^\\s*vacuum'
      union all
      select 'standby', coalesce(state, ''), pid, usename::text, application_name, null::timestamptz, age(backend_xmin)
        from pg_catalog.pg_stat_replication where backend_xmin is not null
      union all
      select 'slot', slot_name::text, active_pid, null, null, null, age(xmin)
        from pg_catalog.pg_replication_slots where xmin is not null
      union all
      select 'prepared', gid, null, owner::text, null, prepared, age(transaction)
        from pg_catalog.pg_prepared_xacts where database = current_database())
    select kind, name, pid, role, application, transactions::int,
      (extract(epoch from clock_timestamp() - began) * 1000)::float8 as "ageMs"
    from holders order by "ageMs" desc nulls last, transactions desc`.execute(lane.executor);
  return rows;
}

export interface TableHealth {
  readonly name: string;
  readonly rows: number;
  readonly deadRows: number;
  /** Dead rows from which on autovacuum comes, by the settings of the table and of the server. */
  readonly threshold: number;
  readonly isEnabled: boolean;
  /** Null for never, and for what the statistics have forgotten. */
  readonly vacuumedAgoMs: number | null;
}

/** The tables of the queue as autovacuum sees them. On the primary: a standby counts no dead rows. */
export async function readTableHealth(lane: OwnLane): Promise<TableHealth[]> {
  const option = (name: string) =>
    sql`(select o.option_value from pg_options_to_table(c.reloptions) o where o.option_name = ${sql.lit(name)})`;
  const { rows } = await sql<TableHealth>`
    select c.relname::text as "name", coalesce(s.n_live_tup, 0)::float8 as "rows",
      coalesce(s.n_dead_tup, 0)::float8 as "deadRows",
      (coalesce(${option('autovacuum_vacuum_threshold')}, current_setting('autovacuum_vacuum_threshold'))::float8
        + coalesce(${option('autovacuum_vacuum_scale_factor')}, current_setting('autovacuum_vacuum_scale_factor'))::float8
          * greatest(c.reltuples, 0))::float8 as "threshold",
      coalesce(${option('autovacuum_enabled')}::boolean, true) as "isEnabled",
      (extract(epoch from clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum)) * 1000)::float8
        as "vacuumedAgoMs"
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
      left join pg_catalog.pg_stat_all_tables s on s.relid = c.oid
    where n.nspname = ${lane.schema} and c.relkind = 'r' and c.relname like 'async\\_%'
    order by c.relname`.execute(lane.executor);
  return rows;
}

/** The database's clock at the very moment, in milliseconds since the epoch. */
export async function readClock(lane: OwnLane): Promise<number> {
  const { rows } = await sql<{ ms: string }>`
    select (extract(epoch from clock_timestamp()) * 1000)::text as ms`.execute(lane.executor);
  return Number(rows[0]?.ms);
}

/** Up to where the primary has written, or the standby has replayed, its log: bytes, to be compared only. */
export async function readLogPosition(lane: OwnLane): Promise<number | undefined> {
  const { rows } = await sql<{ position: string | null }>`
    select (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end
      - '0/0'::pg_lsn)::text as position`.execute(lane.executor);
  const position = rows[0]?.position;
  return position === null || position === undefined ? undefined : Number(position);
}
