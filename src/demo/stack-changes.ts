import { sql, type Transaction } from 'kysely';
import type { NotedEnqueues } from './ledger.ts';
import type { DemoTables } from './schema.ts';

// What the service does to a stack, each in the caller's transaction. The tasks are enqueued first and the rules
// that may refuse the change come after, on purpose: where in the transaction an enqueue stands does not matter,
// and what a refused change enqueued is gone with it.

/** A rule that the change breaks: the caller's mistake, and the end of the transaction. */
export class Refused extends Error {
  readonly status: 404 | 409 | 422;

  constructor(status: 404 | 409 | 422, reason: string) {
    super(reason);
    this.name = 'Refused';
    this.status = status;
  }
}

export interface ChangedStack {
  readonly id: string;
  readonly name: string;
  readonly generation: number;
  readonly live: boolean;
}

/** What every change has to work with. */
export interface StackChange {
  readonly tx: Transaction<DemoTables>;
  readonly tasks: NotedEnqueues;
  readonly stackId: string;
}

/** Deploys a stack, with new dependencies or with those it has. A deleted stack is live again after it. */
export async function deployStack(
  change: StackChange,
  dependsOn: readonly string[] | undefined,
): Promise<ChangedStack> {
  const { tx, tasks } = change;
  const stack = await lockStack(change);
  const next = { ...stack, generation: stack.generation + 1, live: true };
  await tasks.enqueue('dependency_graph_reconcile', { stackId: stack.id, generation: next.generation });
  if (!stack.live) await tasks.enqueue('seat_cap_audit', { organisationId: stack.organisationId });

  const declared = dependsOn ?? (await dependenciesOf(tx, stack));
  await writeStack(tx, next, 'deploy', declared);
  await indexForExplore(tx, next);
  await refuseUnusableDependencies(tx, stack, declared);
  return answer(next);
}

/** Renames a live stack. Its edges carry the name, so the graph follows. */
export async function renameStack(change: StackChange, name: string): Promise<ChangedStack> {
  const { tx, tasks } = change;
  const stack = await lockStack(change);
  const next = { ...stack, name, generation: stack.generation + 1 };
  await tasks.enqueue('dependency_graph_reconcile', { stackId: stack.id, generation: next.generation });

  refuseDeleted(stack);
  await writeStack(tx, next, 'rename', await dependenciesOf(tx, stack));
  await indexForExplore(tx, next);
  return answer(next);
}

/** Deletes a live stack. One that others depend on stays, unless `force` says otherwise. */
export async function deleteStack(change: StackChange, force: boolean): Promise<ChangedStack> {
  const { tx, tasks } = change;
  const stack = await lockStack(change);
  const next = { ...stack, generation: stack.generation + 1, live: false };
  await tasks.enqueue('explore_purge', { stackId: stack.id });
  await tasks.enqueue('seat_cap_audit', { organisationId: stack.organisationId });
  await tasks.enqueue('dependency_graph_reconcile', { stackId: stack.id, generation: next.generation });

  refuseDeleted(stack);
  await writeStack(tx, next, 'delete', []);
  if (!force) await refuseWithDependents(tx, stack);
  return answer(next);
}

interface Stack extends ChangedStack {
  readonly organisationId: string;
}

/** Locks the stack's row until the end of the transaction: its changes take turns, each with its own generation. */
async function lockStack({ tx, stackId }: StackChange): Promise<Stack> {
  const row = await tx
    .selectFrom('stacks')
    .select(['id', 'organisation_id', 'name', 'generation', 'deleted_at'])
    .where('id', '=', stackId)
    .forNoKeyUpdate()
    .executeTakeFirst();
  if (row === undefined) throw new Refused(404, `there is no stack ${stackId}`);
  const { id, organisation_id: organisationId, name, generation, deleted_at } = row;
  return { id, organisationId, name, generation, live: deleted_at === null };
}

async function writeStack(
  tx: Transaction<DemoTables>,
  stack: Stack,
  change: 'deploy' | 'rename' | 'delete',
  dependsOn: readonly string[],
): Promise<void> {
  const { id, name, generation, live } = stack;
  try {
    await tx
      .updateTable('stacks')
      .set({ name, generation, deleted_at: live ? null : sql<Date>`now()` })
      .where('id', '=', id)
      .execute();
  } catch (error) {
    if (violates(error, 'stacks_live_name')) throw new Refused(409, `the name '${name}' is taken`);
    throw error;
  }
  const deployment = { stack_id: id, generation, change, name, depends_on: [...dependsOn] };
  await tx.insertInto('deployments').values(deployment).execute();
}

async function indexForExplore(tx: Transaction<DemoTables>, { id, name, generation }: Stack): Promise<void> {
  const rows = [
    { stack_id: id, path: 'name', value: name },
    { stack_id: id, path: 'generation', value: String(generation) },
  ];
  await tx
    .insertInto('explore_rows')
    .values(rows)
    .onConflict((conflict) =>
      conflict.columns(['stack_id', 'path']).doUpdateSet(({ ref }) => ({ value: ref('excluded.value') })),
    )
    .execute();
}

async function dependenciesOf(tx: Transaction<DemoTables>, { id, generation }: Stack): Promise<string[]> {
  const { depends_on } = await tx
    .selectFrom('deployments')
    .select('depends_on')
    .where('stack_id', '=', id)
    .where('generation', '=', generation)
    .executeTakeFirstOrThrow();
  return depends_on;
}

function refuseDeleted({ live, name }: Stack): void {
  if (!live) throw new Refused(409, `the stack '${name}' is deleted`);
}

async function refuseUnusableDependencies(
  tx: Transaction<DemoTables>,
  { id, organisationId }: Stack,
  dependsOn: readonly string[],
): Promise<void> {
  if (dependsOn.includes(id)) throw new Refused(422, 'a stack cannot depend on itself');
  if (dependsOn.length === 0) return;
  const live = await tx
    .selectFrom('stacks')
    .select('id')
    .where('organisation_id', '=', organisationId)
    .where('id', 'in', dependsOn)
    .where('deleted_at', 'is', null)
    .execute();
  const missing = dependsOn.filter((wanted) => !live.some((found) => found.id === wanted));
  if (missing.length > 0) throw new Refused(422, `not live in this organisation: ${missing.join(', ')}`);
}

async function refuseWithDependents(tx: Transaction<DemoTables>, { id, name }: Stack): Promise<void> {
  const dependents = await tx
    .selectFrom('edges')
    .select('from_name')
    .where('to_stack_id', '=', id)
    .orderBy('from_name')
    .execute();
  if (dependents.length === 0) return;
  const named = dependents.map(({ from_name }) => from_name).slice(0, 3);
  throw new Refused(409, `${dependents.length} stacks depend on '${name}': ${named.join(', ')}`);
}

function violates(error: unknown, constraint: string): boolean {
  return error instanceof Error && 'constraint' in error && error.constraint === constraint;
}

function answer({ id, name, generation, live }: Stack): ChangedStack {
  return { id, name, generation, live };
}
