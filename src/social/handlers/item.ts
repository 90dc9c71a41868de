import type { Handlers } from '../../../generated/social/tasks.ts';
import type { ParseOutcome } from '../services/items.ts';
import type { EnrichmentRun, EnrichOutcome } from '../services/links.ts';
import type { RunLimits } from '../services/run-limits.ts';

export interface ItemServices {
  readonly itemParser: ItemParser;
  readonly linkEnricher: LinkEnricher;
}

interface ItemParser {
  parse(itemId: string, limits: RunLimits): Promise<ParseOutcome>;
}

interface LinkEnricher {
  enrich(itemId: string, force: boolean, run: EnrichmentRun): Promise<EnrichOutcome>;
}

type ItemHandlers = Pick<Handlers, 'item:parse' | 'link:enrich'>;

/** Handlers of the tasks in tasks/item.ts. */
export function itemHandlers({ itemParser, linkEnricher }: ItemServices): ItemHandlers {
  return {
    async 'item:parse'({ itemId }, context) {
      await itemParser.parse(itemId, context);
    },

    async 'link:enrich'({ itemId, force }, context) {
      const run = { taskId: context.id, signal: context.signal, remainingMs: () => context.remainingMs() };
      context.result(await linkEnricher.enrich(itemId, force, run));
    },
  };
}
