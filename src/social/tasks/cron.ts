// Tasks that the clock starts; src/social/cron.ts says when. None has a payload.
import { z } from 'zod';
import { type Duration, defineTask } from '../../index.ts';

interface CronTask<Type extends string> {
  readonly type: Type;
  readonly queue: 'critical' | 'default' | 'low';
  readonly ceiling: Duration;
}

/** Asynq's `MaxRetry(3)` allows three retries behind the first run. The finished task can be looked at for a day. */
const SHARED = { payload: z.strictObject({}), maxAttempts: 4, retention: '24h' } as const;

function cronTask<const Type extends string>(task: CronTask<Type>) {
  return defineTask({ ...SHARED, ...task });
}

export const messageExpiry = cronTask({ type: 'cron:message_expiry', queue: 'critical', ceiling: '2m' });
export const statusUpdate = cronTask({ type: 'cron:status_update', queue: 'critical', ceiling: '5m' });
export const redisSync = cronTask({ type: 'cron:redis_sync', queue: 'default', ceiling: '5m' });
export const momentCleanup = cronTask({ type: 'cron:moment_cleanup', queue: 'default', ceiling: '5m' });
export const tokenCleanup = cronTask({ type: 'cron:token_cleanup', queue: 'low', ceiling: '30m' });
export const accountSuspension = cronTask({
  type: 'cron:account_suspension',
  queue: 'default',
  ceiling: '30m',
});
export const purge = cronTask({ type: 'cron:purge', queue: 'low', ceiling: '1h' });
export const deactivatedAcctPurge = cronTask({
  type: 'cron:deactivated_acct_purge',
  queue: 'low',
  ceiling: '1h',
});
export const momentPurge = cronTask({ type: 'cron:moment_purge', queue: 'low', ceiling: '1h' });
export const challengeArchive = cronTask({
  type: 'cron:challenge_archive',
  queue: 'default',
  ceiling: '30m',
});
export const userStatsRefresh = cronTask({ type: 'cron:user_stats_refresh', queue: 'low', ceiling: '5m' });
export const notificationPurge = cronTask({ type: 'cron:notification_purge', queue: 'low', ceiling: '1h' });
export const parsedLinkSweep = cronTask({ type: 'cron:parsed_link_sweep', queue: 'low', ceiling: '1h' });
export const locationEnrichSweep = cronTask({
  type: 'cron:location_enrich_sweep',
  queue: 'low',
  ceiling: '5m',
});
export const locationEmbeddedCount = cronTask({
  type: 'cron:location_embedded_count',
  queue: 'low',
  ceiling: '5m',
});
export const rankingLabelPrune = cronTask({ type: 'cron:ranking_label_prune', queue: 'low', ceiling: '1h' });
