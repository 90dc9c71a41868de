import type { CompiledQuery, Kysely } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { Statement, Values } from '../../src/statements/statement.ts';
import { TEST_SCHEMA } from './schema.ts';

interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Index Name'?: string;
  readonly 'Relation Name'?: string;
  readonly 'Shared Hit Blocks': number;
  readonly 'Shared Read Blocks': number;
  readonly Plans?: readonly PlanNode[];
}

/** How PostgreSQL ran a statement. */
export interface Plan {
  /** Pages of 8 kB that were looked at, those in memory included. */
  readonly buffers: number;
  readonly nodeTypes: ReadonlySet<string>;
  readonly indexes: ReadonlySet<string>;
  /** The tables that were read whole. */
  readonly scanned: ReadonlySet<string>;
  readonly milliseconds: number;
}

/** Runs the statement under EXPLAIN (ANALYZE, BUFFERS). What it writes, it writes: give a transaction to undo. */
export async function explain(db: Kysely<DB>, statement: Statement<unknown>, values: Values): Promise<Plan> {
  const compiled = statement.compile(TEST_SCHEMA);
  const query = {
    ...compiled,
    sql: `explain (analyze, buffers, format json) ${compiled.sql}`,
    parameters: compiled.parameters.map((place) =>
      typeof place === 'object' && place !== null && 'name' in place ? values[String(place.name)] : place,
    ),
  } as CompiledQuery<{ 'QUERY PLAN': [{ Plan: PlanNode; 'Execution Time': number }] }>;
  const { rows } = await db.executeQuery(query);
  const [explained] = rows[0]?.['QUERY PLAN'] ?? [];
  if (explained === undefined) throw new Error('EXPLAIN answered nothing');
  const nodes = [...nodesOf(explained.Plan)];
  return {
    // A node's buffers include those of the nodes below it.
    buffers: explained.Plan['Shared Hit Blocks'] + explained.Plan['Shared Read Blocks'],
    nodeTypes: new Set(nodes.map((node) => node['Node Type'])),
    indexes: new Set(nodes.flatMap((node) => node['Index Name'] ?? [])),
    scanned: new Set(
      nodes.flatMap((node) => (node['Node Type'] === 'Seq Scan' ? (node['Relation Name'] ?? []) : [])),
    ),
    milliseconds: explained['Execution Time'],
  };
}

function* nodesOf(node: PlanNode): Generator<PlanNode> {
  yield node;
  for (const child of node.Plans ?? []) yield* nodesOf(child);
}
