import type { Handlers } from '../../../generated/social/tasks.ts';
import type { RunLimits } from '../services/run-limits.ts';

/** What the clock starts, as each service does it. Answers are counts, kept with the finished task for a day. */
export interface CronServices {
  readonly messages: { deleteExpired: Sweep };
  readonly events: {
    updateStatus: Sweep;
    /** Undefined without Redis. */
    syncGeo: Sweep<number | undefined>;
    purge: Sweep;
  };
  readonly moments: { softDeleteExpired: Sweep; purgeSoftDeleted: Sweep };
  readonly credentials: { deleteExpired: Sweep<Readonly<Record<string, number>>> };
  readonly accounts: {
    suspendFlagged: Sweep;
    purgeDeactivated: Sweep;
    refreshStats: Sweep<{ total: number }>;
  };
  readonly challenges: { archiveEnded: Sweep };
  readonly notifications: { purge: Sweep };
  readonly links: { sweepUnused: Sweep };
  readonly locations: {
    enqueueNeverEnriched: Sweep<{ offered: number; enqueued: number }>;
    countEmbedded: Sweep;
  };
  readonly rankings: { pruneLabels: Sweep<{ selections: number; impressions: number }> };
}

type Sweep<Answer = number> = (limits: RunLimits) => Promise<Answer>;

type CronHandlers = Pick<Handlers, Extract<keyof Handlers, `cron:${string}`>>;

/** Handlers of the tasks in tasks/cron.ts. Each may run twice, or late: it looks at what is due when it runs. */
export function cronHandlers(services: CronServices): CronHandlers {
  const { accounts, challenges, credentials, events, links, locations } = services;
  const { messages, moments, notifications, rankings } = services;
  return {
    async 'cron:message_expiry'(_, context) {
      context.result({ deleted: await messages.deleteExpired(context) });
    },
    async 'cron:status_update'(_, context) {
      context.result({ changed: await events.updateStatus(context) });
    },
    async 'cron:redis_sync'(_, context) {
      const synced = await events.syncGeo(context);
      context.result(synced === undefined ? { skipped: 'there is no Redis' } : { synced });
    },
    async 'cron:moment_cleanup'(_, context) {
      context.result({ softDeleted: await moments.softDeleteExpired(context) });
    },
    async 'cron:token_cleanup'(_, context) {
      context.result({ deleted: await credentials.deleteExpired(context) });
    },
    async 'cron:account_suspension'(_, context) {
      context.result({ suspended: await accounts.suspendFlagged(context) });
    },
    async 'cron:purge'(_, context) {
      context.result({ deleted: await events.purge(context) });
    },
    async 'cron:deactivated_acct_purge'(_, context) {
      context.result({ deleted: await accounts.purgeDeactivated(context) });
    },
    async 'cron:moment_purge'(_, context) {
      context.result({ deleted: await moments.purgeSoftDeleted(context) });
    },
    async 'cron:challenge_archive'(_, context) {
      context.result({ archived: await challenges.archiveEnded(context) });
    },
    async 'cron:user_stats_refresh'(_, context) {
      context.result(await accounts.refreshStats(context));
    },
    async 'cron:notification_purge'(_, context) {
      context.result({ deleted: await notifications.purge(context) });
    },
    async 'cron:parsed_link_sweep'(_, context) {
      context.result({ deleted: await links.sweepUnused(context) });
    },
    async 'cron:location_enrich_sweep'(_, context) {
      context.result(await locations.enqueueNeverEnriched(context));
    },
    async 'cron:location_embedded_count'(_, context) {
      context.result({ embedded: await locations.countEmbedded(context) });
    },
    async 'cron:ranking_label_prune'(_, context) {
      context.result({ deleted: await rankings.pruneLabels(context) });
    },
  };
}
