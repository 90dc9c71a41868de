import { randomUUID } from 'node:crypto';
import {
  type Analysis,
  analysisKey,
  type ObjectStore,
  readAnalysis,
  stackPrefix,
  writeAnalysis,
} from '../handlers/index.ts';
import { PREFIX_DELETE_DELAY } from '../tasks/prefix-delete.ts';
import { type EnqueuedTask, notedTransaction } from './ledger.ts';
import type { DemoDatabase } from './schema.ts';
import { Refused } from './stack-changes.ts';
import type { ServiceStores } from './stores.ts';

// The run of a deployment, as far as the demo has one: it takes over what the run before has found, and leaves its
// analysis in the object store. It is over before the transaction that makes a deployment of it begins.

/** A run that is over. */
export interface FinishedRun {
  /** Of the stack's prefix. A new one when the stack was deleted: its old prefix is about to be cleaned up. */
  readonly storageKey: string;
  readonly analysisKey: string;
  readonly dependsOn: readonly string[];
  /** What was enqueued beside the run. */
  readonly tasks: readonly EnqueuedTask[];
}

/** Where the newest run's identity is found among a stack's resources. */
export const RUN_PATH = 'run';

/**
 * Runs a stack, with new dependencies or with those it has.
 * @throws Refused when there is no such stack
 */
export async function runStack(
  stores: ServiceStores,
  stackId: string,
  dependsOn: readonly string[] | undefined,
  signal: AbortSignal,
): Promise<FinishedRun> {
  const { db, objects } = stores;
  const stack = await readStack(db, stackId);
  const isNewLife = stack.deleted_at !== null;
  const storageKey = isNewLife ? randomUUID() : stack.storage_key;
  const tasks = isNewLife ? await enqueueCleanUp(stores, storageKey) : [];
  const runId = randomUUID();
  const key = analysisKey(storageKey, runId);
  const found = { dependsOn: [...(dependsOn ?? stack.depends_on)] };
  const resources = await resourcesBefore(objects, stack.analysis_key, signal);
  await writeAnalysis(objects, key, analysisOf(runId, { ...found, resources }), signal);
  return { storageKey, analysisKey: key, ...found, tasks };
}

/** What a run leaves: what was found, under its own name. */
export function analysisOf(runId: string, { dependsOn, resources }: Analysis): Analysis {
  const others = resources.filter(({ path }) => path !== RUN_PATH);
  return { dependsOn, resources: [...others, { path: RUN_PATH, value: runId }] };
}

// Before the first object is written below a prefix that no stack has yet: should the deployment come to nothing,
// by a rule or by a crash, the prefix is cleaned up; and if it comes to be, the clean-up finds a live stack.
async function enqueueCleanUp(
  { db, prefixDeleteDelay = PREFIX_DELETE_DELAY }: ServiceStores,
  storageKey: string,
): Promise<readonly EnqueuedTask[]> {
  const { tasks } = await notedTransaction(db, (_tx, noted) =>
    noted.enqueue('prefix_delete', { prefix: stackPrefix(storageKey) }, { delay: prefixDeleteDelay }),
  );
  return tasks;
}

async function readStack(db: DemoDatabase, stackId: string) {
  const stack = await db
    .selectFrom('stacks')
    .innerJoin('deployments', (join) =>
      join
        .onRef('deployments.stack_id', '=', 'stacks.id')
        .onRef('deployments.generation', '=', 'stacks.generation'),
    )
    .select(['stacks.storage_key', 'stacks.deleted_at', 'deployments.depends_on', 'deployments.analysis_key'])
    .where('stacks.id', '=', stackId)
    .executeTakeFirst();
  if (stack === undefined) throw new Refused(404, `there is no stack ${stackId}`);
  return stack;
}

/** A stack that was deleted, or deleted while this runs, begins with nothing. */
async function resourcesBefore(
  objects: ObjectStore,
  key: string | null,
  signal: AbortSignal,
): Promise<Analysis['resources']> {
  if (key === null) return [];
  return (await readAnalysis(objects, key, signal))?.resources ?? [];
}
