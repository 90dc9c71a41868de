import type { HandlerContext } from '../index.ts';
import { type Analysis, readAnalysis } from './analysis.ts';
import { deadlineTransaction } from './deadline-transaction.ts';
import type { HandlerServices } from './services.ts';

/** A stack at one generation, and where the run that made it left its analysis. */
export interface StackAtGeneration {
  readonly stackId: string;
  readonly organisationId: string;
  readonly generation: number;
  readonly name: string;
  /** Null for a deletion. */
  readonly analysisKey: string | null;
}

/** What a stack was found to be at one generation; of a deleted one there is nothing. */
export interface FinishedRun extends StackAtGeneration, Analysis {}

/** A task's snapshot: the stack, and the generation that the task was enqueued for. */
export interface Snapshot {
  readonly stackId: string;
  readonly generation: number;
}

/** The newest run of a stack has left no analysis that can be found. */
export class AnalysisMissing extends Error {
  constructor({ stackId, generation }: Snapshot) {
    super(`the analysis of stack ${stackId} at generation ${generation} is missing`);
    this.name = 'AnalysisMissing';
  }
}

type RunServices = Pick<HandlerServices, 'primary' | 'objects'>;
type RunContext = Pick<HandlerContext, 'signal' | 'remainingMs'>;

/** The run that a task names; undefined when nothing is left to be done about it. */
export async function readFinishedRun(
  services: RunServices,
  snapshot: Snapshot,
  context: RunContext,
): Promise<FinishedRun | undefined> {
  const stack = await stackAt(services, snapshot, context);
  return stack === undefined ? undefined : analysed(services, stack, context);
}

/**
 * The stack with what its run has found; undefined when a newer generation has taken the analysis away.
 * @throws AnalysisMissing when it is not there although nothing newer is: the store may be behind
 * @throws SkipRetry when the object is no analysis
 */
export async function analysed(
  services: RunServices,
  stack: StackAtGeneration,
  context: RunContext,
): Promise<FinishedRun | undefined> {
  if (stack.analysisKey === null) return { ...stack, dependsOn: [], resources: [] };
  const analysis = await readAnalysis(services.objects, stack.analysisKey, context.signal);
  if (analysis !== undefined) return { ...stack, ...analysis };
  if (await isSuperseded(services, stack, context)) return undefined;
  throw new AnalysisMissing(stack);
}

function stackAt(
  { primary }: RunServices,
  { stackId, generation }: Snapshot,
  context: RunContext,
): Promise<StackAtGeneration | undefined> {
  return deadlineTransaction(primary, context, (tx) =>
    tx
      .selectFrom('deployments')
      .innerJoin('stacks', 'stacks.id', 'deployments.stack_id')
      .select([
        'deployments.stack_id as stackId',
        'stacks.organisation_id as organisationId',
        'deployments.generation',
        'deployments.name',
        'deployments.analysis_key as analysisKey',
      ])
      .where('deployments.stack_id', '=', stackId)
      .where('deployments.generation', '=', generation)
      .executeTakeFirst(),
  );
}

/** Whether the stack has changed since: the change has enqueued tasks of its own. */
async function isSuperseded(
  { primary }: RunServices,
  { stackId, generation }: Snapshot,
  context: RunContext,
): Promise<boolean> {
  const current = await deadlineTransaction(primary, context, (tx) =>
    tx.selectFrom('stacks').select('generation').where('id', '=', stackId).executeTakeFirst(),
  );
  return current === undefined || current.generation > generation;
}
