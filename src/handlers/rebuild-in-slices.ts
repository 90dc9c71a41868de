import {
  type Duration,
  type HandlerResult,
  type Page,
  SkipRetry,
  type SlicedHandlerContext,
  walkPages,
} from '../index.ts';
import { deadlineTransaction } from './deadline-transaction.ts';
import { AnalysisMissing, type StackAtGeneration } from './finished-run.ts';
import type { HandlerServices } from './services.ts';

// The walk of both rebuilds: every live stack of an organisation in the order of the ids, in slices. One run for all
// of it would have a size beyond which it meets its ceiling again and again and ends as a dead letter; slices have
// none, they only become more. Between two of them the slot is free for others.

/** Where the next slice begins: behind this stack. */
export interface StackCursor {
  readonly afterStackId: string;
}

export type RebuildContext = SlicedHandlerContext<StackCursor, StackCursor>;

/** What is rebuilt. */
export interface Rebuild {
  readonly organisationId: string;
  /** Publishes one stack. Called again for the same stack when a slice is repeated. */
  readonly visit: (stack: StackAtGeneration) => Promise<void>;
  /**
   * Removes what belongs to no live stack, after the last one. Not sliced: one look and one or two deletes. When it
   * fails, the slice that came to it is repeated, and counts as an attempt.
   */
  readonly reap: () => Promise<void>;
}

type RebuildServices = Pick<HandlerServices, 'primary' | 'logger' | 'slice'>;

/** Long enough to be worth a claim, short enough that a slot is never away for long. */
const SLICE: Duration = '2m';
/** Stacks that one page holds: some hundred kilobytes. */
const STACKS_PER_PAGE = 500;
/** Before every other uuid. */
const BEFORE_ALL = '00000000-0000-0000-0000-000000000000';

/** Runs one slice of a rebuild; the last one ends with the reap. */
export async function rebuildInSlices(
  services: RebuildServices,
  rebuild: Rebuild,
  context: RebuildContext,
): Promise<HandlerResult> {
  const result = await walkPages(context, {
    budget: services.slice ?? SLICE,
    fields: { org_id: rebuild.organisationId },
    from: (cursor) => cursor?.afterStackId ?? BEFORE_ALL,
    cursorOf: (afterStackId) => ({ afterStackId }),
    readPage: (afterStackId) => readPage(services, rebuild, afterStackId, context),
    each: (stack) => visitUsable(services, rebuild, stack),
    // A slice may end behind any stack: a pathological one overruns it alone, not with the rest of its page.
    after: ({ stackId }) => stackId,
  });
  if (result === 'done') await rebuild.reap();
  return result;
}

/** One stack without a usable analysis must not keep all those behind it from being rebuilt. */
async function visitUsable(
  { logger }: RebuildServices,
  { organisationId, visit }: Rebuild,
  stack: StackAtGeneration,
): Promise<void> {
  try {
    await visit(stack);
  } catch (error) {
    if (!(error instanceof SkipRetry || error instanceof AnalysisMissing)) throw error;
    const fields = { org_id: organisationId, stack_id: stack.stackId, error };
    logger.warn(fields, 'stack left out of a rebuild');
  }
}

function readPage(
  { primary }: RebuildServices,
  { organisationId }: Rebuild,
  afterStackId: string,
  context: RebuildContext,
): Promise<Page<string, StackAtGeneration>> {
  return deadlineTransaction(primary, context, async (tx) => {
    const items = await tx
      .selectFrom('stacks')
      .innerJoin('deployments', (join) =>
        join
          .onRef('deployments.stack_id', '=', 'stacks.id')
          .onRef('deployments.generation', '=', 'stacks.generation'),
      )
      .select([
        'stacks.id as stackId',
        'stacks.organisation_id as organisationId',
        'stacks.generation',
        'deployments.name',
        'deployments.analysis_key as analysisKey',
      ])
      .where('stacks.organisation_id', '=', organisationId)
      .where('stacks.deleted_at', 'is', null)
      .where('stacks.id', '>', afterStackId)
      .orderBy('stacks.id')
      .limit(STACKS_PER_PAGE)
      .execute();
    const next = items.length < STACKS_PER_PAGE ? undefined : items.at(-1)?.stackId;
    if (afterStackId !== BEFORE_ALL) return { items, next };
    // For those who watch; counted once, however many come and go meanwhile.
    const { total } = await tx
      .selectFrom('stacks')
      .select(({ fn }) => fn.countAll<string>().as('total'))
      .where('organisation_id', '=', organisationId)
      .where('deleted_at', 'is', null)
      .executeTakeFirstOrThrow();
    return { items, next, total: Number(total) };
  });
}
