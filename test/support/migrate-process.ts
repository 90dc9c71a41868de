import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import type { Migration } from '../../src/statements/migrate.ts';
import type { Connection } from './databases.ts';

const PROCESS_MS_MAX = 150_000;
const SCRIPT = fileURLToPath(new URL('../hazards/fixtures/migrate-process.ts', import.meta.url));

export interface MigrateProcess {
  readonly child: ChildProcess;
  readonly ended: Promise<{
    readonly exitCode: number | null;
    readonly report: { readonly ran?: string[]; readonly code?: string; readonly message?: string };
    readonly progress: string;
  }>;
}

/** `taskq migrate up` in a process of its own, with `extra` migrations after those that exist. */
export function startMigrateProcess(
  connection: Connection,
  schema: string,
  extra: readonly Migration[] = [],
): MigrateProcess {
  const settings = JSON.stringify({ connection, schema, extra });
  const child = spawn(process.execPath, ['--import', 'jiti/register', SCRIPT, settings], {
    stdio: ['ignore', 'pipe', 'pipe'],
    // A test that fails half-way must not leave it behind.
    timeout: PROCESS_MS_MAX,
    killSignal: 'SIGKILL',
  });
  const ended = Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]).then(
    ([output, progress, [exitCode]]) => ({
      exitCode: exitCode as number | null,
      report: output === '' ? {} : JSON.parse(output),
      progress,
    }),
  );
  return { child, ended };
}

/** A connection that is closed with `await using`. */
export async function session(
  connection: pg.ClientConfig,
): Promise<pg.Client & { [Symbol.asyncDispose](): Promise<void> }> {
  const client = new pg.Client(connection);
  client.on('error', () => {});
  await client.connect();
  return Object.assign(client, { [Symbol.asyncDispose]: () => client.end() });
}

/** The advisory locks held or waited for in `client`'s database. */
export async function advisoryLocks(client: pg.Client): Promise<{ granted: boolean; pid: number }[]> {
  const { rows } = await client.query(
    `SELECT l.granted, l.pid FROM pg_locks l JOIN pg_database d ON d.oid = l.database
     WHERE l.locktype = 'advisory' AND d.datname = current_database()`,
  );
  return rows;
}
