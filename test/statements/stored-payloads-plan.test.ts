import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import { CHECK_PAGE_ROWS } from '../../src/domain/limits.ts';
import { pageStatement } from '../../src/statements/stored-payloads.ts';
import { insertRows } from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/schema.ts';
import { expect, test } from '../support/test.ts';

// A walk over a million rows is two thousand pages: each must cost what it holds, and not what lies behind it.

const ROWS = 50_000;
/** Of the rows' own pages, some fifty to a page, and the way down to them. */
const BUFFERS_MAX = 60;

test.for(['never analyzed', 'statistics of an empty table', 'fresh statistics'] as const)(
  'a page of the check of payloads reads its own rows by the primary key: %s',
  async (statistics, { db }) => {
    const table = sql.raw(`${TEST_SCHEMA}.async_tasks`);
    await sql`alter table ${table} set (autovacuum_enabled = off)`.execute(db);
    if (statistics === 'statistics of an empty table') await sql`vacuum analyze ${table}`.execute(db);
    const ids = await insertRows(db, ROWS);
    if (statistics === 'fresh statistics') await sql`vacuum analyze ${table}`.execute(db);

    for (const mode of ['force_custom_plan', 'force_generic_plan']) {
      const plan = await explainPage(db, mode, {
        afterId: ids[999] as string,
        untilId: ids.at(-1) as string,
      });
      expect(plan.rows, mode).toBe(CHECK_PAGE_ROWS);
      expect(plan.buffers, mode).toBeLessThan(BUFFERS_MAX);
    }
  },
);

/** As the driver runs it: prepared once, then executed with values. */
async function explainPage(
  db: Kysely<DB>,
  mode: string,
  ids: { afterId: string; untilId: string },
): Promise<{ rows: number; buffers: number }> {
  const values: Record<string, string> = { ...ids, known: `'{"plain": 1}'`, bytes: '1000000' };
  const { sql: text, parameters } = pageStatement.compile(TEST_SCHEMA);
  const given = parameters.map((place) => values[(place as { name: string }).name] as string);
  return db.connection().execute(async (connection) => {
    const run = (statement: string) => sql.raw(statement).execute(connection);
    await run(`set plan_cache_mode = ${mode}`);
    await run(`prepare page as ${text}`);
    const { rows } = await run(`explain (analyze, buffers, format json) execute page(${given.join(', ')})`);
    await run('deallocate page');
    const [{ Plan: root }] = (rows[0] as { 'QUERY PLAN': [{ Plan: Record<string, number> }] })['QUERY PLAN'];
    return {
      rows: Number(root['Actual Rows']),
      buffers: Number(root['Shared Hit Blocks']) + Number(root['Shared Read Blocks']),
    };
  });
}
