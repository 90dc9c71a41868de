import { sql, type Transaction } from 'kysely';
import { stackPrefix } from '../handlers/index.ts';
import type { Duration } from '../index.ts';
import type { NotedEnqueues } from './ledger.ts';
import type { FinishedRun } from './run-stack.ts';
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
  readonly prefixDeleteDelay: Duration;
}

/** Makes a deployment of a finished run. A deleted stack is live again after it. */
export async function deployStack(change: StackChange, run: FinishedRun): Promise<ChangedStack> {
  const { tx, tasks } = change;
  const stack = await lockStack(change);
  const next = { ...stack, generation: stack.generation + 1, live: true, storageKey: run.storageKey };
  const snapshot = { stackId: stack.id, generation: next.generation };
  await tasks.enqueue('dependency_graph_reconcile', snapshot);
  await tasks.enqueue('resource_index_reindex', snapshot);
  await tasks.enqueue('dependent_triggers_resolve', snapshot);
  if (!stack.live) await tasks.enqueue('seat_cap_audit', { organisationId: stack.organisationId });

  refuseForeignPrefix(stack, run);
  await writeStack(tx, next, { change: 'deploy', dependsOn: run.dependsOn, analysisKey: run.analysisKey });
  await refuseUnusableDependencies(tx, stack, run.dependsOn);
  return answer(next);
}

/** Renames a live stack. Its edges carry the name, so the graph follows. */
export async function renameStack(change: StackChange, name: string): Promise<ChangedStack> {
  const { tx, tasks } = change;
  const stack = await lockStack(change);
  const next = { ...stack, name, generation: stack.generation + 1 };
  await tasks.enqueue('dependency_graph_reconcile', { stackId: stack.id, generation: next.generation });

  refuseDeleted(stack);
  await writeStack(tx, next, { change: 'rename', ...(await currentDeployment(tx, stack)) });
  return answer(next);
}

/** Deletes a live stack. One that others depend on stays, unless `force` says otherwise. */
export async function deleteStack(change: StackChange, force: boolean): Promise<ChangedStack> {
  const { tx, tasks } = change;
  const stack = await lockStack(change);
  const next = { ...stack, generation: stack.generation + 1, live: false };
  const prefix = stackPrefix(stack.storageKey);
  await tasks.enqueue('explore_purge', { stackId: stack.id });
  await tasks.enqueue('prefix_delete', { prefix }, { delay: change.prefixDeleteDelay });
  await tasks.enqueue('seat_cap_audit', { organisationId: stack.organisationId });
  await tasks.enqueue('dependency_graph_reconcile', { stackId: stack.id, generation: next.generation });

  refuseDeleted(stack);
  await writeStack(tx, next, { change: 'delete', dependsOn: [], analysisKey: null });
  if (!force) await refuseWithDependents(tx, stack);
  return answer(next);
}

interface Stack extends ChangedStack {
  readonly organisationId: string;
  readonly storageKey: string;
}

/** What a deployment's row says beside the stack's own. */
interface Deployment {
  readonly change: 'deploy' | 'rename' | 'delete';
  readonly dependsOn: readonly string[];
  readonly analysisKey: string | null;
}

/** Locks the stack's row until the end of the transaction: its changes take turns, each with its own generation. */
async function lockStack({ tx, stackId }: StackChange): Promise<Stack> {
  const row = await tx
    .selectFrom('stacks')
    .select(['id', 'organisation_id', 'name', 'storage_key', 'generation', 'deleted_at'])
    .where('id', '=', stackId)
    .forNoKeyUpdate()
    .executeTakeFirst();
  if (row === undefined) throw new Refused(404, `there is no stack ${stackId}`);
  const { id, organisation_id: organisationId, name, storage_key: storageKey, generation } = row;
  return { id, organisationId, name, storageKey, generation, live: row.deleted_at === null };
}

async function writeStack(
  tx: Transaction<DemoTables>,
  stack: Stack,
  { change, dependsOn, analysisKey }: Deployment,
): Promise<void> {
  const { id, name, storageKey, generation, live } = stack;
  try {
    await tx
      .updateTable('stacks')
      .set({ name, storage_key: storageKey, generation, deleted_at: live ? null : sql<Date>`now()` })
      .where('id', '=', id)
      .execute();
  } catch (error) {
    if (violates(error, 'stacks_live_name')) throw new Refused(409, `the name '${name}' is taken`);
    throw error;
  }
  await tx
    .insertInto('deployments')
    .values({ stack_id: id, generation, change, name, depends_on: [...dependsOn], analysis_key: analysisKey })
    .execute();
}

/** What a rename takes over: it runs nothing. */
async function currentDeployment(tx: Transaction<DemoTables>, { id, generation }: Stack) {
  const { depends_on: dependsOn, analysis_key: analysisKey } = await tx
    .selectFrom('deployments')
    .select(['depends_on', 'analysis_key'])
    .where('stack_id', '=', id)
    .where('generation', '=', generation)
    .executeTakeFirstOrThrow();
  return { dependsOn, analysisKey };
}

/** A live stack keeps its prefix, a deleted one never gets its old one back: what lies there is being cleaned up. */
function refuseForeignPrefix(stack: Stack, run: FinishedRun): void {
  if (stack.live === (stack.storageKey === run.storageKey)) return;
  throw new Refused(409, `the stack '${stack.name}' has changed since its run began`);
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
