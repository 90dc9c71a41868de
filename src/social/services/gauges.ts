import { sql } from 'kysely';
import type { SocialDatabase, SocialTransaction } from './run-limits.ts';

export interface GaugeSample {
  readonly label: string;
  readonly value: number;
}

/**
 * Replaces the samples of one gauge: a label that is no longer there must not go on being shown. In a table and not in
 * this process, since any replica may run the task and all of them are scraped.
 */
export async function recordGauge(
  tx: SocialTransaction,
  name: string,
  samples: readonly GaugeSample[],
): Promise<void> {
  // Two replicas that record one gauge at once would both insert: the second waits for the first here.
  await sql`SELECT pg_advisory_xact_lock(hashtextextended(${`gauge ${name}`}, 0))`.execute(tx);
  await tx.deleteFrom('gauges').where('name', '=', name).execute();
  if (samples.length === 0) return;
  const rows = samples.map(({ label, value }) => ({ name, label, value }));
  await tx.insertInto('gauges').values(rows).execute();
}

/** The gauges in the text format that Prometheus scrapes. */
export async function renderGauges(db: SocialDatabase): Promise<string> {
  const rows = await db.selectFrom('gauges').selectAll().orderBy('name').orderBy('label').execute();
  const lines = rows.map(({ name, label, value }) => `${name}${label === '' ? '' : `{${label}}`} ${value}`);
  return lines.map((line) => `${line}\n`).join('');
}

/** A label's value as the format wants it. */
export function labelOf(name: string, value: string): string {
  const escaped = value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
  return `${name}="${escaped}"`;
}
