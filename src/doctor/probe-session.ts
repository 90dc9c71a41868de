import pg from 'pg';
import { CONNECT_TIMEOUT_MS, DOCTOR_CHECK_MS } from '../domain/limits.ts';
import { type ConnectionSettings, connectionConfig } from '../postgres/lanes.ts';

/** Runs `probe` over sessions of its own, which a pooler may or may not give server connections of their own. */
export async function withSessions<Answer>(
  database: ConnectionSettings,
  count: number,
  probe: (...sessions: pg.Client[]) => Promise<Answer>,
): Promise<Answer> {
  const sessions: pg.Client[] = [];
  try {
    for (let n = 0; n < count; n += 1) sessions.push(await openSession(database));
    return await probe(...sessions);
  } finally {
    for (const session of sessions) endSoon(session);
  }
}

async function openSession(database: ConnectionSettings): Promise<pg.Client> {
  const session = new pg.Client({
    ...connectionConfig(database),
    application_name: 'taskq doctor',
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    query_timeout: DOCTOR_CHECK_MS,
  });
  // A connection that breaks rejects the query that is under way; unheard, it would end the process.
  session.on('error', () => undefined);
  await session.connect();
  return session;
}

/** Politely if the server is there to hear it; a server that has gone silent keeps nobody waiting. */
function endSoon(session: pg.Client): void {
  const { stream } = (session as unknown as { connection: { stream: { destroy(): void } } }).connection;
  const forced = setTimeout(() => stream.destroy(), 1_000);
  void session
    .end()
    .catch(() => undefined)
    .finally(() => {
      clearTimeout(forced);
      stream.destroy();
    });
}

/** Which server process serves the session now: behind a transaction pooler, another one each time. */
export async function backendPid(session: pg.Client): Promise<number> {
  const { rows } = await session.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]?.pid ?? 0;
}

/**
 * Whether a transaction pooler stands in between. The second session holds a transaction open, so a pooler that lends
 * server connections has lent it the one that the first session had just used, or must give the first one another.
 */
export async function isPooled(first: pg.Client, second: pg.Client): Promise<boolean> {
  const before = await backendPid(first);
  await second.query('begin');
  try {
    const other = await backendPid(second);
    // Of a pool of one connection, which the second session holds now: asking with the first would wait for it.
    if (other === before) return true;
    return (await backendPid(first)) !== before;
  } finally {
    await second.query('rollback');
  }
}
