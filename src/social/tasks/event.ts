// Tasks that follow from something that happened: a location was written, somebody travelled, a challenge ended.
import { z } from 'zod';
import { defineTask } from '../../index.ts';

/** Enriches one location. Back-to-back enqueues for the same location collapse into one execution. */
export const locationEnrich = defineTask({
  type: 'location:enrich',
  payload: z.strictObject({ locationId: z.uuid() }),
  queue: 'low',
  ceiling: '5m',
  // Not 'live': an edit that comes while the handler runs must get a run of its own.
  unique: { by: ['locationId'], while: 'waiting' },
});

/** Evaluates the challenges of the account that wrote a travel log, and grants what it has earned. */
export const engineEvalTravelLog = defineTask({
  type: 'engine:eval_travel_log',
  payload: z.strictObject({ travelLogId: z.uuid() }),
  queue: 'critical',
  ceiling: '5m',
});

/** The same for an account that was just activated. */
export const engineEvalUserActivated = defineTask({
  type: 'engine:eval_user_activated',
  payload: z.strictObject({ accountId: z.uuid() }),
  queue: 'critical',
  ceiling: '5m',
});

/**
 * Cleans up behind a challenge whose window has ended; enqueued for that moment when the challenge is published.
 * A window that is moved moves the task that waits: it is replaced, due time and all.
 */
export const engineExpireChallenge = defineTask({
  type: 'engine:expire_challenge',
  payload: z.strictObject({ challengeId: z.uuid() }),
  ceiling: '5m',
  unique: { by: ['challengeId'], while: 'waiting', onConflict: 'replace' },
});

/** Evaluates one challenge for every account, a page of accounts in each slice. */
export const engineReplayChallenge = defineTask({
  type: 'engine:replay_challenge',
  payload: z.strictObject({ challengeId: z.uuid() }),
  queue: 'low',
  ceiling: '5m',
  cursor: z.strictObject({ afterAccountId: z.uuid(), accounts: z.int(), granted: z.int() }),
  unique: { by: ['challengeId'], while: 'waiting' },
});

/** Replays every challenge that rewards one stamp. */
export const engineReplayStamp = defineTask({
  type: 'engine:replay_stamp',
  payload: z.strictObject({ curioId: z.uuid() }),
  queue: 'low',
  ceiling: '5m',
});
