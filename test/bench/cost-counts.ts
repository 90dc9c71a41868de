import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import type { EmbeddedPostgres } from '../../src/embedded/index.ts';
import { migrateUp } from '../../src/statements/migrate.ts';
import { onClient } from './bench.ts';

// What a database has done between two looks, by the server's own counts. The looks are taken from another database,
// whose statements are not counted.

export const COST_DATABASE = 'cost';
const OBSERVER_DATABASE = 'postgres';

/** Autovacuum writes when it likes; it would be in the figures of whatever is measured then. */
export const COUNTING_SETTINGS = {
  shared_preload_libraries: 'pg_stat_statements',
  'pg_stat_statements.track': 'top',
  'pg_stat_statements.track_utility': 'on',
  autovacuum: 'off',
} as const;

/** Statements by what they are for. */

export type Purpose =
  | 'transaction'
  | 'enqueue'
  | 'discover'
  | 'claim'
  | 'settle'
  | 'heartbeat'
  | 'presence'
  | 'other';

export interface Statements {
  readonly calls: number;
}

export interface Counts {
  readonly statements: ReadonlyMap<Purpose, Statements>;
  readonly walBytes: number;
  /** Versions of rows of the two tables of tasks that an update or a delete has left behind. */
  readonly deadVersions: number;
  /** Of these, left by an update that touched no index: gone with the next visit of the page, without vacuum. */
  readonly heapOnly: number;
}

export async function prepareCounting(server: EmbeddedPostgres): Promise<void> {
  await onClient(server, OBSERVER_DATABASE, async (client) => {
    await client.query('create extension if not exists pg_stat_statements');
    await client.query(`create database ${COST_DATABASE}`);
    await client.query(`alter database ${OBSERVER_DATABASE} set pg_stat_statements.track = 'none'`);
  });
  await migrateUp(server.connection(COST_DATABASE), { schema: 'taskq' });
}

/** Runs `work` between two looks; what it leaves running is in neither. */
export async function countedDuring(
  server: EmbeddedPostgres,
  work: () => Promise<void>,
  progress: (message: string) => void = () => {},
): Promise<Counts> {
  return onClient(server, OBSERVER_DATABASE, async (client) => {
    const tables = new pg.Client(server.connection(COST_DATABASE));
    await tables.connect();
    try {
      const deadBefore = await deadOf(tables);
      await client.query('select pg_stat_statements_reset()');
      const walBefore = await walOf(client);
      await work();
      const wal = await walOf(client);
      const statements = await statementsOf(client, progress);
      const dead = await deadOf(tables);
      return {
        statements,
        walBytes: wal - walBefore,
        deadVersions: dead.versions - deadBefore.versions,
        heapOnly: dead.heapOnly - deadBefore.heapOnly,
      };
    } finally {
      await tables.end();
    }
  });
}

/** Statements alone, on a server that takes no writes too. */
export async function statementsDuring(
  server: EmbeddedPostgres,
  work: () => Promise<void>,
  progress: (message: string) => void = () => {},
): Promise<ReadonlyMap<Purpose, Statements>> {
  return onClient(server, OBSERVER_DATABASE, async (client) => {
    await client.query('select pg_stat_statements_reset()');
    await work();
    return statementsOf(client, progress);
  });
}

async function walOf(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ bytes: string }>(
    `select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::text as bytes`,
  );
  return Number(rows[0]?.bytes);
}

/** How long a session keeps its counts to itself after it has gone idle. */
const STATISTICS_FLUSH_MS = 11_000;

async function deadOf(client: pg.Client): Promise<{ versions: number; heapOnly: number }> {
  await delay(STATISTICS_FLUSH_MS);
  const { rows } = await client.query<{ versions: string; heap_only: string }>(
    `select sum(n_tup_upd + n_tup_del)::text as versions, sum(n_tup_hot_upd)::text as heap_only
    from pg_stat_user_tables
    where schemaname = 'taskq' and relname in ('async_tasks', 'async_completed_tasks')`,
  );
  return { versions: Number(rows[0]?.versions), heapOnly: Number(rows[0]?.heap_only) };
}

async function statementsOf(
  client: pg.Client,
  progress: (message: string) => void,
): Promise<Map<Purpose, Statements>> {
  const { rows } = await client.query<{ query: string; calls: string }>(
    `select query, calls::text from pg_stat_statements
    where dbid = (select oid from pg_database where datname = $1)`,
    [COST_DATABASE],
  );
  const statements = new Map<Purpose, Statements>();
  for (const row of rows) {
    const text = row.query.replaceAll(/\s+/g, ' ').toLowerCase();
    const purpose = purposeOf(text);
    if (purpose === undefined) continue;
    progress(`${row.calls.padStart(7)} x ${purpose}: ${text.slice(0, 100)}`);
    const { calls } = statements.get(purpose) ?? { calls: 0 };
    statements.set(purpose, { calls: calls + Number(row.calls) });
  }
  return statements;
}

/** By words that only such a statement has. Undefined for what this script itself sends. */
function purposeOf(text: string): Purpose | undefined {
  if (text.includes('pg_stat_user_tables')) return undefined;
  if (/^(begin|start transaction|commit|rollback|set )/.test(text)) return 'transaction';
  if (text.includes('async_replicas') || text.includes('async_task_types')) return 'presence';
  if (text.includes('row_number()')) return 'discover';
  if (text.startsWith('with "picked"')) return 'claim';
  if (text.startsWith('with "given"') || /insert into "taskq"."async_tasks"/.test(text)) return 'enqueue';
  if (/update .*set "lease_expires_at"/.test(text)) return 'heartbeat';
  if (/(delete from|update) "taskq"."async_tasks"/.test(text)) return 'settle';
  return 'other';
}

export function total(statements: ReadonlyMap<Purpose, Statements>): number {
  return [...statements.values()].reduce((sum, { calls }) => sum + calls, 0);
}
