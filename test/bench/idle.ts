import { setTimeout as delay } from 'node:timers/promises';
import { createApp } from '../../src/index.ts';
import { type Bench, benchHandlers, IDLE_DATABASE, onClient } from './bench.ts';
import { type Line, measurement } from './stats.ts';

/** Longer than a minute, so that the heartbeat of the LISTEN connection is in it. */
const WATCH_MS = 65_000;
const WATCH_MS_MIN = 5_000;
/** What a start costs is over by then. */
const SETTLE_MS = 2_000;
const SLOTS = 10;
/** Where statements are not counted, so that the look at the counts is not in them. */
const OBSERVER_DATABASE = 'postgres';
const TARGET = { at: 'most', value: 0.5 } as const;

/**
 * Statements that an idle replica sends to the primary, without a read replica to take its discoveries:
 * every kind, as the server counts them.
 */
export async function measureIdle({ server, options, progress }: Bench): Promise<Line[]> {
  const watchMs = Math.max(WATCH_MS_MIN, WATCH_MS * options.scale);
  await onClient(server, OBSERVER_DATABASE, async (client) => {
    await client.query('create extension if not exists pg_stat_statements');
    await client.query(`alter database ${IDLE_DATABASE} set pg_stat_statements.track = 'top'`);
  });
  const app = createApp({
    database: server.connection(IDLE_DATABASE),
    handlers: benchHandlers(async () => undefined),
    slots: SLOTS,
  });
  await app.start();
  try {
    await delay(SETTLE_MS);
    progress(`idle: watching a replica with ${SLOTS} slots for ${(watchMs / 1_000).toFixed(0)} s`);
    const before = await statements(server);
    const startedAt = performance.now();
    await delay(watchMs);
    const after = await statements(server);
    const seconds = (performance.now() - startedAt) / 1_000;
    for (const [text, calls] of after) {
      const made = calls - (before.get(text) ?? 0);
      if (made > 0) progress(`idle: ${made} x ${text}`);
    }
    const rate = (total(after) - total(before)) / seconds;
    return [measurement({ name: 'idle replica, primary', unit: 'statements/s', values: [rate] }, TARGET)];
  } finally {
    await app.stop();
  }
}

async function statements(server: Bench['server']): Promise<Map<string, number>> {
  return onClient(server, OBSERVER_DATABASE, async (client) => {
    const { rows } = await client.query<{ query: string; calls: string }>(
      `select left(regexp_replace(query, '\\s+', ' ', 'g'), 60) as query, sum(calls)::text as calls
      from pg_stat_statements where dbid = (select oid from pg_database where datname = $1)
      group by 1`,
      [IDLE_DATABASE],
    );
    return new Map(rows.map(({ query, calls }) => [query, Number(calls)]));
  });
}

function total(statements: ReadonlyMap<string, number>): number {
  return [...statements.values()].reduce((sum, calls) => sum + calls, 0);
}
