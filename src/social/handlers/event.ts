import type { Handlers } from '../../../generated/social/tasks.ts';
import { SkipRetry } from '../../index.ts';
import type { Evaluation, ReplaySlice } from '../services/game-engine.ts';
import type { RunLimits } from '../services/run-limits.ts';

// What the handlers here need of the services, and no more of them. services/wiring.ts binds it.

export interface EventServices {
  readonly locationEnricher: LocationEnricher;
  readonly engineEvaluator: EngineEvaluator;
  readonly engineExpirer: EngineExpirer;
  readonly engineReplayer: EngineReplayer;
}

interface LocationEnricher {
  enrich(locationId: string, limits: RunLimits): Promise<'enriched' | 'gone'>;
}

interface EngineEvaluator {
  evaluateTravelLog(travelLogId: string, limits: RunLimits): Promise<Evaluation | undefined>;
  evaluateAccount(accountId: string, limits: RunLimits): Promise<Evaluation | undefined>;
}

interface EngineExpirer {
  expireChallenge(challengeId: string, limits: RunLimits): Promise<boolean>;
}

interface EngineReplayer {
  replayChallenge(
    challengeId: string,
    afterAccountId: string | undefined,
    limits: RunLimits,
  ): Promise<ReplaySlice | undefined>;
  replayStamp(curioId: string, limits: RunLimits): Promise<number>;
}

type EventType = 'location:enrich' | `engine:${string}`;
type EventHandlers = Pick<Handlers, Extract<keyof Handlers, EventType>>;

/** Handlers of the tasks in tasks/event.ts. What a task is about may be gone by its turn: then there is nothing to do. */
export function eventHandlers(services: EventServices): EventHandlers {
  const { locationEnricher, engineEvaluator, engineExpirer, engineReplayer } = services;
  return {
    async 'location:enrich'({ locationId }, context) {
      await locationEnricher.enrich(locationId, context);
    },

    async 'engine:eval_travel_log'({ travelLogId }, context) {
      refuseUnreadable(await engineEvaluator.evaluateTravelLog(travelLogId, context));
    },

    async 'engine:eval_user_activated'({ accountId }, context) {
      refuseUnreadable(await engineEvaluator.evaluateAccount(accountId, context));
    },

    async 'engine:expire_challenge'({ challengeId }, context) {
      await engineExpirer.expireChallenge(challengeId, context);
    },

    async 'engine:replay_challenge'({ challengeId }, context) {
      const { cursor } = context;
      const slice = await engineReplayer.replayChallenge(challengeId, cursor?.afterAccountId, context);
      if (slice?.afterAccountId === undefined) return 'done';
      await context.advanceCursor({
        afterAccountId: slice.afterAccountId,
        accounts: (cursor?.accounts ?? 0) + slice.accounts,
        granted: (cursor?.granted ?? 0) + slice.granted,
      });
      return 'continue';
    },

    async 'engine:replay_stamp'({ curioId }, context) {
      await engineReplayer.replayStamp(curioId, context);
    },
  };
}

/**
 * What could be evaluated is granted by now. A tree that cannot be read is no better at the next attempt: as a dead
 * letter the task waits for somebody to mend the challenge and replay it.
 */
function refuseUnreadable(evaluation: Evaluation | undefined): void {
  const { unreadable = [] } = evaluation ?? {};
  if (unreadable.length > 0) throw new SkipRetry(`the rules of ${unreadable.join(', ')} cannot be read`);
}
