import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../../src/domain/ids.ts';
import { DEAD_BATCH_MAX, DEAD_SCAN } from '../../src/domain/limits.ts';
import {
  dropBatchStatement,
  lockKeysStatement,
  matchedStatement,
  pageStatement,
  previewStatement,
  replayBatchStatement,
} from '../../src/statements/dead-bulk.ts';
import type { Statement, Values } from '../../src/statements/statement.ts';
import { insertDead } from '../support/dead.ts';
import { insertRows } from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/schema.ts';
import { expect, test } from '../support/test.ts';

// A million dead letters are five hundred pages, and a page must cost what it looks at: not what waits between the
// dead letters, nor what lies behind them, whatever the planner last heard of the table.

const WAITING = 60_000;
const DEAD = 6_000;
/** The rows' own pages, some forty of them to one, with the index and the look-ups by key. */
const PAGE_BUFFERS_MAX = 3 * DEAD_SCAN + 100;
/** Down to each by its id, the new version in every index, its key, and its rival. */
const BATCH_BUFFERS_MAX = 60 * DEAD_BATCH_MAX;

const NO_FILTER = { type: null, queue: null, olderThanMs: null, newerThanMs: null, asOf: null };

test.for(['never analyzed', 'statistics of an empty table', 'fresh statistics'] as const)(
  'a page of a bulk replay, and a batch, cost what they hold: %s',
  async (statistics, { db }) => {
    const table = sql.raw(`${TEST_SCHEMA}.async_tasks`);
    await sql`alter table ${table} set (autovacuum_enabled = off)`.execute(db);
    if (statistics === 'statistics of an empty table') await sql`vacuum analyze ${table}`.execute(db);
    const ids: TaskId[] = [];
    for (let part = 0; part < 6; part += 1) {
      ids.push(...(await insertDead(db, DEAD / 6, { key: (n) => `${part} ${n}` })));
      await insertRows(db, WAITING / 6);
    }
    if (statistics === 'fresh statistics') await sql`vacuum analyze ${table}`.execute(db);
    const batch = ids.slice(1_000, 1_000 + DEAD_BATCH_MAX);
    const page = {
      ...NO_FILTER,
      error: 'no such text',
      afterId: ids[999] as string,
      untilId: ids.at(-1) as string,
      lastId: ids[999 + DEAD_SCAN] as string,
    };
    const written = {
      ...NO_FILTER,
      error: null,
      ids: batch,
      deaths: JSON.stringify(await deathsOf(db, batch)),
      channel: 'nobody',
    };

    for (const mode of ['force_custom_plan', 'force_generic_plan']) {
      const of = (name: string) => `${name}, ${mode}`;
      const looked = await planOf(db, mode, pageStatement, page);
      expect(looked.accesses, of('page')).toEqual(['async_tasks_exhausted']);
      expect(looked.buffers, of('page')).toBeLessThan(PAGE_BUFFERS_MAX);
      for (const error of ['no such text', 'no such customer']) {
        const matched = await planOf(db, mode, matchedStatement, { ...page, error });
        expect(matched.accesses, of('matched')).toEqual(['async_tasks_exhausted']);
        expect(matched.buffers, of('matched')).toBeLessThan(PAGE_BUFFERS_MAX);
        const preview = await planOf(db, mode, previewStatement, { ...page, error });
        expect(new Set(preview.accesses), of('preview')).toEqual(
          new Set(['async_tasks_exhausted', 'async_tasks_unique_key']),
        );
        expect(preview.buffers, of('preview')).toBeLessThan(5 * DEAD_SCAN);
      }
      const locked = await planOf(db, mode, lockKeysStatement, written);
      expect(locked.accesses, of('keys')).not.toContain('async_tasks Seq Scan');
      for (const statement of [replayBatchStatement, dropBatchStatement]) {
        const plan = await planOf(db, mode, statement as Statement<unknown>, written);
        expect(plan.accesses, of('batch')).not.toContain('async_tasks Seq Scan');
        expect(plan.buffers, of('batch')).toBeLessThan(BATCH_BUFFERS_MAX);
        expect(plan.rows, of('batch')).toBe(DEAD_BATCH_MAX);
      }
    }
  },
);

async function deathsOf(db: Kysely<DB>, ids: readonly TaskId[]): Promise<Record<string, string>> {
  const { rows } = await sql<{ id: string; death: string }>`
    select id::text, extract(epoch from last_attempted_at)::text as death
    from ${sql.table(`${TEST_SCHEMA}.async_tasks`)} where id = any(${ids}::bigint[])`.execute(db);
  return Object.fromEntries(rows.map(({ id, death }) => [id, death]));
}

interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Index Name'?: string;
  readonly Plans?: readonly PlanNode[];
}

/** As the driver runs it: prepared once, then executed with values. What it wrote is undone. */
async function planOf(
  db: Kysely<DB>,
  mode: string,
  statement: Statement<unknown>,
  values: Values,
): Promise<{ buffers: number; rows: number; accesses: string[] }> {
  const { sql: text, parameters } = statement.compile(TEST_SCHEMA);
  const given = parameters.map((place) =>
    literal(
      typeof place === 'object' && place !== null && 'name' in place ? values[String(place.name)] : place,
    ),
  );
  const undone = new Error('undone');
  let answer: { buffers: number; rows: number; accesses: string[] } | undefined;
  await db
    .transaction()
    .execute(async (tx) => {
      const run = (statement: string) => sql.raw(statement).execute(tx);
      await run(`set local plan_cache_mode = ${mode}`);
      await run(`prepare planned as ${text}`);
      const { rows } = await run(
        `explain (analyze, buffers, format json) execute planned(${given.join(', ')})`,
      );
      await run('deallocate planned');
      const [{ Plan: root }] = (rows[0] as { 'QUERY PLAN': [{ Plan: PlanNode & Record<string, number> }] })[
        'QUERY PLAN'
      ];
      answer = {
        buffers: Number(root['Shared Hit Blocks']) + Number(root['Shared Read Blocks']),
        rows: Number(root['Actual Rows']),
        accesses: [...nodesOf(root)].flatMap((node) =>
          node['Node Type'] === 'Seq Scan'
            ? [`${node['Relation Name']} Seq Scan`]
            : (node['Index Name'] ?? []),
        ),
      };
      throw undone;
    })
    .catch((error: unknown) => {
      if (error !== undone) throw error;
    });
  return answer as NonNullable<typeof answer>;
}

function literal(value: unknown): string {
  if (value === null) return 'null';
  const text = Array.isArray(value) ? `{${value.join(',')}}` : String(value);
  return `'${text.replaceAll("'", "''")}'`;
}

function* nodesOf(node: PlanNode): Generator<PlanNode> {
  yield node;
  for (const child of node.Plans ?? []) yield* nodesOf(child);
}
