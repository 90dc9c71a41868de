import type { Logger } from '../domain/logger.ts';
import type { Observer, QueueEvent } from '../domain/observer.ts';

type Level = keyof Logger;
type Settled = QueueEvent & { kind: 'settled' };

// A rollout must not log an error, and a single failure is no incident: it is retried. What needs somebody is
// a dead letter, a lost run, and a slot that a bug has thrown out.
export const LEVELS: Readonly<Record<Exclude<QueueEvent['kind'], 'settled'>, Level>> = {
  claimed: 'debug',
  slice_advanced_nothing: 'warn',
  slice_stopped_early: 'warn',
  result_dropped: 'warn',
  handler_overrun: 'warn',
  handler_abandoned: 'warn',
  settlement_retried: 'warn',
  heartbeat_failed: 'warn',
  lease_lost: 'warn',
  middleware_failed: 'warn',
  database_failed: 'warn',
  database_recovered: 'info',
  discovered: 'debug',
  claim_answered: 'debug',
  claim_empty: 'debug',
  wake_received: 'debug',
  listener_connected: 'info',
  listener_lost: 'warn',
  clock_offset: 'warn',
  loop_delayed: 'warn',
  pruned: 'info',
  cron_looked: 'debug',
  cron_enqueued: 'info',
  cron_skipped: 'info',
  cron_missed: 'warn',
  cron_failed: 'warn',
  slot_failed: 'error',
  started: 'info',
  stopping: 'info',
  stopped: 'info',
};

export const MESSAGES: Readonly<Record<QueueEvent['kind'], string>> = {
  claimed: 'task claimed',
  settled: 'task settled',
  slice_advanced_nothing: 'slice advanced nothing',
  slice_stopped_early: 'slice stopped early on a page read',
  result_dropped: 'result came after complete and is not in the record',
  handler_overrun: 'handler is past its deadline and holds its slot',
  handler_abandoned: 'handler did not return at shutdown, its lease is left to lapse',
  settlement_retried: 'settlement could not be written, trying again',
  heartbeat_failed: 'heartbeat could not be written, trying again',
  lease_lost: 'lease was lost, the handler was told to stop',
  middleware_failed: 'middleware threw, the run went on without it',
  database_failed: 'database did not answer, trying again',
  database_recovered: 'database answers again',
  discovered: 'tasks discovered',
  claim_answered: 'claim answered',
  claim_empty: 'claim found no row',
  wake_received: 'wake received',
  listener_connected: 'listening for wakes',
  listener_lost: 'LISTEN connection lost, connecting again',
  clock_offset: 'application and database clocks differ',
  loop_delayed: 'event loop was blocked',
  pruned: 'dead letters and completed records pruned',
  cron_looked: 'scheduler looked at the cron list',
  cron_enqueued: 'cron tick taken, task enqueued',
  cron_skipped: 'cron tick skipped, a task is in its way',
  cron_missed: 'cron ticks missed',
  cron_failed: 'cron tick could not be taken, trying again',
  slot_failed: 'slot failed, this is a bug in taskq',
  started: 'replica started',
  stopping: 'replica stopping',
  stopped: 'replica stopped',
};

/** Writes every event as one structured line: `event` is the stable name, the rest are its fields. */
export function logObserver(logger: Logger): Observer {
  return (event) => {
    const { kind, ...fields } = event;
    const level = event.kind === 'settled' ? settledLevel(event) : LEVELS[event.kind];
    logger[level]({ ...added(event), event: kind, ...flat(fields) }, messageOf(event));
  };
}

function settledLevel({ outcome, dead }: Settled): Level {
  if (dead) return 'error';
  return outcome === 'failure' || outcome === 'timeout' || outcome === 'lost' ? 'warn' : 'info';
}

function messageOf(event: QueueEvent): string {
  const isWork = event.kind === 'slice_stopped_early' && event.on === 'page_work';
  return isWork ? 'slice stopped early on the work of a page' : MESSAGES[event.kind];
}

/** What a handler has put on the line; none of it takes the place of a field of ours. */
function added(event: QueueEvent): object {
  return event.kind === 'slice_stopped_early' ? event.fields : {};
}

/** Task facts on the line itself, and an error as its text: pino knows an Error only under one name. */
function flat(fields: object): object {
  const flattened: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (name === 'fields') continue;
    if (name === 'task') {
      const { id, type, queue, attempt, maxAttempts } = value;
      Object.assign(flattened, { taskId: id, taskType: type, queue, attempt, maxAttempts });
    } else {
      flattened[name] = value instanceof Error ? value.message : value;
    }
  }
  return flattened;
}
