import type { Logger } from '../domain/logger.ts';
import type { Observer, QueueEvent } from '../domain/observer.ts';

type Level = keyof Logger;
type Settled = QueueEvent & { kind: 'settled' };

// A rollout must not log an error, and a single failure is no incident: it is retried. What needs somebody is
// a dead letter, a lost run, and a slot that a bug has thrown out.
const LEVELS: Readonly<Record<Exclude<QueueEvent['kind'], 'settled'>, Level>> = {
  claimed: 'debug',
  slice_advanced_nothing: 'warn',
  handler_overrun: 'warn',
  handler_abandoned: 'warn',
  settlement_retried: 'warn',
  heartbeat_failed: 'warn',
  lease_lost: 'warn',
  database_failed: 'warn',
  database_recovered: 'info',
  discovered: 'debug',
  claim_empty: 'debug',
  wake_received: 'debug',
  listener_connected: 'info',
  listener_lost: 'warn',
  clock_offset: 'warn',
  loop_delayed: 'warn',
  pruned: 'info',
  slot_failed: 'error',
  started: 'info',
  stopping: 'info',
  stopped: 'info',
};

const MESSAGES: Readonly<Record<QueueEvent['kind'], string>> = {
  claimed: 'task claimed',
  settled: 'task settled',
  slice_advanced_nothing: 'slice advanced nothing',
  handler_overrun: 'handler is past its deadline and holds its slot',
  handler_abandoned: 'handler did not return at shutdown, its lease is left to lapse',
  settlement_retried: 'settlement could not be written, trying again',
  heartbeat_failed: 'heartbeat could not be written, trying again',
  lease_lost: 'lease was lost, the handler was told to stop',
  database_failed: 'database did not answer, trying again',
  database_recovered: 'database answers again',
  discovered: 'tasks discovered',
  claim_empty: 'claim found no row',
  wake_received: 'wake received',
  listener_connected: 'listening for wakes',
  listener_lost: 'LISTEN connection lost, connecting again',
  clock_offset: 'application and database clocks differ',
  loop_delayed: 'event loop was blocked',
  pruned: 'dead letters pruned',
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
    logger[level]({ event: kind, ...flat(fields) }, MESSAGES[kind]);
  };
}

function settledLevel({ outcome, dead }: Settled): Level {
  if (dead) return 'error';
  return outcome === 'failure' || outcome === 'timeout' || outcome === 'lost' ? 'warn' : 'info';
}

/** Task facts on the line itself, and an error as its text: pino knows an Error only under one name. */
function flat(fields: object): object {
  const flattened: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (name === 'task') {
      const { id, type, queue, attempt, maxAttempts } = value;
      Object.assign(flattened, { taskId: id, taskType: type, queue, attempt, maxAttempts });
    } else {
      flattened[name] = value instanceof Error ? value.message : value;
    }
  }
  return flattened;
}
