import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { claimStatement } from '../../src/statements/claim.ts';
import { discoverStatement } from '../../src/statements/discover.ts';
import type { Statement, Values } from '../../src/statements/statement.ts';
import { administer, databaseName, urlOf } from '../support/databases.ts';
import { TEST_SCHEMA } from '../support/schema.ts';
import { knownRevisions, LEASE_MS } from '../support/tasks.ts';

// What discovery and claim cost must not depend on how many rows lie around that nobody can claim now, nor on
// what the planner last heard of the table, nor on whether it plans for these values or once for all.

const DEAD = 200_000;
const FUTURE = 200_000;
const BURST = 20_000;
const CANDIDATES = 20;
/** A handful of index pages for each queue, and the due row itself. */
const DISCOVERY_BUFFERS_MAX = 50;
/** Four pages down to each candidate by its id, and the one update. */
const CLAIM_BUFFERS_MAX = 5 * CANDIDATES + 20;

const SITUATIONS = {
  'one row, never analyzed': 'single',
  'one row, analyzed': 'single_analyzed',
  '200,000 dead and 200,000 future rows around it, statistics of one row': 'stale',
  '200,000 dead and 200,000 future rows around it, fresh statistics': 'fresh',
  'a burst of 20,000 due rows, no statistics': 'burst',
  'a burst of 20,000 due rows, statistics of one row': 'burst_stale',
  'a burst of 20,000 due rows, statistics of a queue that had been drained': 'burst_drained',
} as const;

type Situation = (typeof SITUATIONS)[keyof typeof SITUATIONS];

const databases = Object.fromEntries(
  Object.values(SITUATIONS).map((situation) => [situation, databaseName(`plans ${situation}`)]),
) as Record<Situation, string>;

beforeAll(async () => {
  await copy(inject('templateName'), 'single', [
    'alter table taskq.async_tasks set (autovacuum_enabled = off)',
    insertOf("now() - interval '1 minute'", 0, 1),
  ]);
  await copy(databases.single, 'single_analyzed', ['analyze taskq.async_tasks']);
  await copy(databases.single_analyzed, 'stale', [
    insertOf("now() - n * interval '1 second'", 20, DEAD),
    insertOf("now() + interval '1 hour' + n * interval '1 second'", 0, FUTURE),
  ]);
  const burst = insertOf("now() - interval '1 minute' + n * interval '1 millisecond'", 0, BURST - 1);
  await copy(databases.single, 'burst', [burst]);
  await copy(databases.single_analyzed, 'burst_stale', [burst]);
  await copy(databases.single, 'burst_drained', [
    burst,
    'delete from taskq.async_tasks',
    'vacuum (analyze) taskq.async_tasks',
    burst,
  ]);
  await copy(databases.stale, 'fresh', ['vacuum (analyze) taskq.async_tasks']);
});

afterAll(async () => {
  for (const name of Object.values(databases)) {
    await administer(inject('serverUrl'), `drop database if exists ${name} with (force)`);
  }
});

const DISCOVERIES = {
  'discovery in every queue': {
    statement: discoverStatement(CANDIDATES, 'every'),
    values: { queues: undefined },
    burstQueues: 3,
  },
  'discovery in named queues': {
    statement: discoverStatement(CANDIDATES, 'named'),
    values: { queues: ['default', 'critical', 'no_such_queue'] },
    burstQueues: 2,
  },
  'discovery from a horizon on': {
    statement: discoverStatement(CANDIDATES, 'from'),
    values: { queues: ['default', 'critical'], from: [0, 0] },
    burstQueues: 2,
  },
};

for (const [title, situation] of Object.entries(SITUATIONS)) {
  // A table of one page is read whole, rightly: there only what it costs is pinned, and that it costs nothing.
  const isOnePage = situation === 'single_analyzed';
  const isBig = situation === 'stale' || situation === 'fresh';
  const isBurst = situation.startsWith('burst');

  for (const mode of ['force_custom_plan', 'force_generic_plan', 'auto'] as const) {
    describe(`with ${title}, ${mode}`, () => {
      for (const [name, { statement, values, burstQueues }] of Object.entries(DISCOVERIES)) {
        test(`${name} reads only the index of discovery, and little of it`, async () => {
          const plan = await planOf(databases[situation], mode, statement, {
            ...values,
            known: JSON.stringify(knownRevisions),
          });

          if (!isOnePage) expect(new Set(plan.accesses)).toEqual(new Set(['async_tasks_discovery']));
          expect(plan.buffers).toBeLessThan(DISCOVERY_BUFFERS_MAX);
          expect(plan.rows).toBe(isBurst ? CANDIDATES * burstQueues : 1);
        });
      }

      test('a claim reaches its candidates by the primary key, and leases the one that is due', async () => {
        const plan = await planOf(databases[situation], mode, claimStatement(1), {
          // The oldest rows: a due one, and beside it dead ones or due ones.
          ids: await firstIds(databases[situation]),
          known: JSON.stringify(knownRevisions),
          leaseMs: JSON.stringify(LEASE_MS),
          marginMs: 30_000,
        });

        if (isBig || isBurst) expect(new Set(plan.accesses)).toEqual(new Set(['async_tasks_pkey']));
        if (!isOnePage) expect(plan.accesses).not.toContain('Seq Scan');
        expect(plan.buffers).toBeLessThan(CLAIM_BUFFERS_MAX);
        expect(plan.rows).toBe(1);
      });
    });
  }
}

async function firstIds(database: string): Promise<string[]> {
  const { rows } = await administer(
    urlOf(inject('serverUrl'), database),
    `select id from taskq.async_tasks order by id limit ${CANDIDATES}`,
  );
  return rows.map(({ id }) => id as string);
}

async function copy(template: string, situation: Situation, statements: readonly string[]): Promise<void> {
  const serverUrl = inject('serverUrl');
  await administer(serverUrl, `create database ${databases[situation]} template ${template}`);
  await administer(urlOf(serverUrl, databases[situation]), ...statements);
}

function insertOf(runAt: string, attemptCount: number, count: number): string {
  return `insert into taskq.async_tasks (task_type, queue, payload, run_at, attempt_count)
    select 'plain', (array['default', 'critical', 'low'])[1 + n % 3], '{}', ${runAt}, ${attemptCount}
    from generate_series(1, ${count}) n`;
}

interface Plan {
  /** The index, or the word 'Seq Scan', for each place of the plan that reads the table. */
  readonly accesses: readonly string[];
  /** Pages touched by the execution. */
  readonly buffers: number;
  /** Rows answered. */
  readonly rows: number;
}

type Node = Readonly<Record<string, unknown>> & { readonly Plans?: readonly Node[] };

/** As the driver runs it: prepared once, then executed with values. Nothing that it writes is kept. */
async function planOf(
  database: string,
  mode: string,
  statement: Statement<unknown>,
  values: Values,
): Promise<Plan> {
  const { sql, parameters } = statement.compile(TEST_SCHEMA);
  const literals = parameters.map((place) => {
    const { name } = Object(place) as { name?: string };
    return literal(name === undefined ? place : values[name]);
  });
  const client = new pg.Client({ connectionString: urlOf(inject('serverUrl'), database) });
  await client.connect();
  try {
    await client.query(`set plan_cache_mode = ${mode}`);
    await client.query(`prepare pinned as ${sql}`);
    await client.query('begin');
    const execute = literals.length === 0 ? 'execute pinned' : `execute pinned(${literals.join(', ')})`;
    const { rows } = await client.query(`explain (analyze, buffers, format json) ${execute}`);
    await client.query('rollback');
    const root = rows[0]['QUERY PLAN'][0].Plan as Node;
    return {
      accesses: nodesOf(root).flatMap(accessOf),
      buffers: Number(root['Shared Hit Blocks']) + Number(root['Shared Read Blocks']),
      rows: Number(root['Actual Rows']),
    };
  } finally {
    await client.end();
  }
}

function nodesOf(node: Node): Node[] {
  return [node, ...(node.Plans ?? []).flatMap(nodesOf)];
}

function accessOf(node: Node): string[] {
  const index = node['Index Name'];
  if (typeof index === 'string') return index.startsWith('async_tasks_') ? [index] : [];
  if (node['Node Type'] === 'Seq Scan' && node['Relation Name'] === 'async_tasks') return ['Seq Scan'];
  return [];
}

function literal(value: unknown): string {
  if (value === undefined || value === null) return 'null';
  if (Array.isArray(value)) return pg.escapeLiteral(`{${value.join(',')}}`);
  return typeof value === 'string' ? pg.escapeLiteral(value) : String(value);
}
