import { defineCron } from '../../generated/social/tasks.ts';

// What the clock starts. Any number of replicas may have this list: each tick of an entry is one task, whoever takes
// it. A task that still runs when the next tick comes is not overtaken: that tick is skipped.
const overlap = 'skip';

export default defineCron([
  { schedule: '@every 30s', task: 'cron:message_expiry', overlap },
  { schedule: '@every 5m', task: 'cron:status_update', overlap },
  { schedule: '@every 5m', task: 'cron:redis_sync', overlap },
  { schedule: '@every 5m', task: 'cron:moment_cleanup', overlap },
  { schedule: '@every 1h', task: 'cron:token_cleanup', overlap },
  { schedule: '@every 12h', task: 'cron:account_suspension', overlap },
  { schedule: '@every 24h', task: 'cron:purge', overlap },
  { schedule: '@every 24h', task: 'cron:deactivated_acct_purge', overlap },
  { schedule: '@every 24h', task: 'cron:moment_purge', overlap },
  { schedule: '@every 24h', task: 'cron:challenge_archive', overlap },
  { schedule: '@every 1m', task: 'cron:user_stats_refresh', overlap },
  { schedule: '@every 24h', task: 'cron:notification_purge', overlap },
  { schedule: '@every 24h', task: 'cron:parsed_link_sweep', overlap },
  { schedule: '@every 1m', task: 'cron:location_enrich_sweep', overlap },
  { schedule: '@every 5m', task: 'cron:location_embedded_count', overlap },
  { schedule: '@every 24h', task: 'cron:ranking_label_prune', overlap },
]);
