import { sql } from 'kysely';
import { DISCOVER_LIMIT, LEASE_MARGIN_MS } from '../domain/limits.ts';
import { claimStatement } from './claim.ts';
import { discoverStatement } from './discover.ts';
import type { OwnLane } from './lanes.ts';
import { knownRevisionsValue } from './predicates.ts';
import type { Statement, Values } from './statement.ts';

// How PostgreSQL would run the statements that every slot sends all day. EXPLAIN without ANALYZE: nothing is run.

/** A statement that is sent for every task, and the index without which it reads the whole table. */
export const HOT_STATEMENTS = [
  { name: 'discover', index: 'async_tasks_discovery' },
  { name: 'claim', index: 'async_tasks_pkey' },
] as const;
export type HotStatement = (typeof HOT_STATEMENTS)[number]['name'];

/** `values`: planned for one set of values, as the first times; `generic`: once for all, as a prepared one later. */
export type PlanMode = 'values' | 'generic';

export interface HotPlan {
  readonly statement: HotStatement;
  readonly mode: PlanMode;
  /** The planner's own unit. */
  readonly cost: number;
  readonly indexes: ReadonlySet<string>;
  /** Whether the table of tasks would be read whole. */
  readonly readsAll: boolean;
}

interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Total Cost': number;
  readonly 'Index Name'?: string;
  readonly 'Relation Name'?: string;
  readonly Plans?: readonly PlanNode[];
}
interface Explained {
  readonly 'QUERY PLAN': [{ readonly Plan: PlanNode }];
}

const VALUES: Readonly<Record<HotStatement, Values>> = {
  discover: { known: knownRevisionsValue({ doctor: 1 }), queues: ['default'] },
  claim: {
    ids: Array.from({ length: DISCOVER_LIMIT }, (_, n) => String(n + 1)),
    known: knownRevisionsValue({ doctor: 1 }),
    leaseMs: '{"doctor": 1000}',
    marginMs: LEASE_MARGIN_MS,
  },
};

/**
 * The plan as it is made now, and with `useIndexes` as it would be if the table were too big to be read whole.
 * Within a transaction, which it leaves as it was.
 */
export async function explainHot(
  lane: OwnLane,
  name: HotStatement,
  { mode, useIndexes }: { readonly mode: PlanMode; readonly useIndexes: boolean },
): Promise<HotPlan> {
  const hot: Statement<unknown> =
    name === 'claim' ? claimStatement(1) : discoverStatement(DISCOVER_LIMIT, 'named');
  const seqscan = useIndexes ? 'off' : 'on';
  await sql`select set_config('enable_seqscan', ${seqscan}, true)`.execute(lane.executor);
  const plan =
    mode === 'values' ? await explainValues(lane, hot, VALUES[name]) : await explainGeneric(lane, hot);
  const nodes = [...nodesOf(plan)];
  return {
    statement: name,
    mode,
    cost: plan['Total Cost'],
    indexes: new Set(nodes.flatMap((node) => node['Index Name'] ?? [])),
    readsAll: nodes.some(
      (node) => node['Node Type'] === 'Seq Scan' && node['Relation Name'] === 'async_tasks',
    ),
  };
}

async function explainValues(lane: OwnLane, hot: Statement<unknown>, values: Values): Promise<PlanNode> {
  const compiled = hot.compile(lane.schema);
  const { rows } = await lane.executor.executeQuery<Explained>({
    ...compiled,
    sql: `explain (format json) ${compiled.sql}`,
    parameters: compiled.parameters.map((place) =>
      typeof place === 'object' && place !== null && 'name' in place ? values[String(place.name)] : place,
    ),
  } as never);
  return planOf(rows);
}

const PREPARED = 'taskq_doctor';

// PREPARE is undone by no rollback, and behind a pooler the session is somebody else's next.
async function explainGeneric(lane: OwnLane, hot: Statement<unknown>): Promise<PlanNode> {
  const { executor } = lane;
  const compiled = hot.compile(lane.schema);
  const nulls = compiled.parameters.map(() => 'null').join(', ');
  await sql`select set_config('plan_cache_mode', 'force_generic_plan', true)`.execute(executor);
  await sql.raw(`prepare ${PREPARED} as ${compiled.sql}`).execute(executor);
  await sql`savepoint ${sql.id(PREPARED)}`.execute(executor);
  try {
    const { rows } = await sql
      .raw<Explained>(`explain (format json) execute ${PREPARED}(${nulls})`)
      .execute(executor);
    return planOf(rows);
  } finally {
    await sql`rollback to savepoint ${sql.id(PREPARED)}`.execute(executor);
    await sql.raw(`deallocate ${PREPARED}`).execute(executor);
  }
}

function planOf(rows: readonly Explained[]): PlanNode {
  const [explained] = rows[0]?.['QUERY PLAN'] ?? [];
  if (explained === undefined) throw new Error('EXPLAIN answered nothing');
  return explained.Plan;
}

function* nodesOf(node: PlanNode): Generator<PlanNode> {
  yield node;
  for (const child of node.Plans ?? []) yield* nodesOf(child);
}

/** Pages of 8 kB that the table of tasks has, as the planner knows it. */
export async function readTaskPages(lane: OwnLane): Promise<number> {
  const { rows } = await sql<{ pages: number }>`
    select c.relpages as pages from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = ${lane.schema} and c.relname = 'async_tasks'`.execute(lane.executor);
  return rows[0]?.pages ?? 0;
}
