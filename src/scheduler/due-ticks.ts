import { CRON_LATE_MS_MAX, CRON_MISSED_COUNT_MAX } from '../domain/limits.ts';
import type { MissedPolicy } from './entries.ts';
import type { Schedule } from './schedule.ts';

/** What is to be done about the ticks of an entry up to now. Milliseconds since the epoch. */
export interface DueTicks {
  /** To be taken now, oldest first. */
  readonly take: readonly number[];
  /** Too late, and not made up for; all of them before the first of `take`. */
  readonly missed: MissedTicks | undefined;
}

export interface MissedTicks {
  /** At `CRON_MISSED_COUNT_MAX` the counting ends. */
  readonly count: number;
  readonly firstMs: number;
  readonly lastMs: number;
}

const NOTHING: DueTicks = { take: [], missed: undefined };

/**
 * The ticks after `decidedMs` up to `nowMs`, sorted by the entry's policy. The newest one is on time within a minute;
 * every older one, and the newest after that, was missed.
 */
export function dueTicks(
  schedule: Schedule,
  policy: MissedPolicy,
  decidedMs: number,
  nowMs: number,
): DueTicks {
  const latestMs = schedule.latest(nowMs);
  if (latestMs === undefined || latestMs <= decidedMs) return NOTHING;
  const take = ticksToTake(schedule, policy, { latestMs, decidedMs, nowMs });
  const lastMissedMs = take[0] === undefined ? latestMs : schedule.latest(take[0] - 1);
  return { take, missed: missedTicks(schedule, decidedMs, lastMissedMs) };
}

function ticksToTake(
  schedule: Schedule,
  policy: MissedPolicy,
  { latestMs, decidedMs, nowMs }: { latestMs: number; decidedMs: number; nowMs: number },
): readonly number[] {
  if (policy === 'once') return [latestMs];
  if (policy === 'skip') return nowMs - latestMs <= CRON_LATE_MS_MAX ? [latestMs] : [];
  const take: number[] = [];
  let tickMs: number | undefined = latestMs;
  while (tickMs !== undefined && tickMs > decidedMs && take.length < policy.all) {
    take.push(tickMs);
    tickMs = schedule.latest(tickMs - 1);
  }
  return take.reverse();
}

function missedTicks(
  schedule: Schedule,
  decidedMs: number,
  lastMs: number | undefined,
): MissedTicks | undefined {
  const firstMs = schedule.next(decidedMs);
  if (lastMs === undefined || firstMs === undefined || firstMs > lastMs) return undefined;
  let count = 0;
  let tickMs: number | undefined = firstMs;
  while (tickMs !== undefined && tickMs <= lastMs && count < CRON_MISSED_COUNT_MAX) {
    count += 1;
    tickMs = schedule.next(tickMs);
  }
  return { count, firstMs, lastMs };
}
