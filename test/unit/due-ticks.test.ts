import fc from 'fast-check';
import { expect, test } from 'vitest';
import { CRON_LATE_MS_MAX, CRON_MISSED_COUNT_MAX } from '../../src/domain/limits.ts';
import { dueTicks } from '../../src/scheduler/due-ticks.ts';
import type { MissedPolicy } from '../../src/scheduler/entries.ts';
import { parseSchedule } from '../../src/scheduler/schedule.ts';

const MINUTE_MS = 60_000;
const every = (minutes: number) => parseSchedule(`@every ${minutes}m`, undefined, 'test');

test('nothing is due between a tick that is decided and the next, nor when the clock was set back', () => {
  const nothing = { take: [], missed: undefined };
  for (const nowMs of [5, 5.5, 9.99, 4, -1_000].map((minutes) => minutes * MINUTE_MS)) {
    expect(dueTicks(every(5), 'once', 5 * MINUTE_MS, nowMs)).toEqual(nothing);
  }
});

test('a tick is on time up to a minute, and missed after it', () => {
  const at = (lateMs: number) => dueTicks(every(5), 'skip', 5 * MINUTE_MS, 10 * MINUTE_MS + lateMs);
  expect(at(0)).toEqual({ take: [10 * MINUTE_MS], missed: undefined });
  expect(at(CRON_LATE_MS_MAX)).toEqual({ take: [10 * MINUTE_MS], missed: undefined });
  expect(at(CRON_LATE_MS_MAX + 1)).toEqual({
    take: [],
    missed: { count: 1, firstMs: 10 * MINUTE_MS, lastMs: 10 * MINUTE_MS },
  });
});

test('a schedule that has no tick yet, or none any more, has none due', () => {
  const ended = { text: 'ended', next: () => undefined, latest: () => undefined };
  expect(dueTicks(ended, { all: 5 }, 0, 1_000_000)).toEqual({ take: [], missed: undefined });
});

test('every tick is decided once: taken or missed, in one piece each, the taken ones last and in order', () => {
  const policies = fc.oneof(
    fc.constant<MissedPolicy>('skip'),
    fc.constant<MissedPolicy>('once'),
    fc.record({ all: fc.integer({ min: 1, max: 1_000 }) }),
  );
  const minutes = fc.integer({ min: 1, max: 90 });
  const ms = fc.integer({ min: 0, max: 30 * 24 * 60 * MINUTE_MS });
  fc.assert(
    fc.property(minutes, policies, ms, ms, (interval, policy, decidedMs, sinceMs) => {
      const schedule = every(interval);
      const nowMs = decidedMs + sinceMs;
      const all: number[] = [];
      for (let tick = schedule.next(decidedMs) as number; tick <= nowMs; tick += interval * MINUTE_MS)
        all.push(tick);

      const { take, missed } = dueTicks(schedule, policy, decidedMs, nowMs);

      expect(take).toEqual(take.length === 0 ? [] : all.slice(-take.length));
      const passedOver = all.slice(0, all.length - take.length);
      expect(missed).toEqual(
        passedOver.length === 0
          ? undefined
          : {
              count: Math.min(passedOver.length, CRON_MISSED_COUNT_MAX),
              firstMs: passedOver[0],
              lastMs: passedOver.at(-1),
            },
      );
      const most = typeof policy === 'object' ? policy.all : 1;
      expect(take.length).toBeLessThanOrEqual(most);
      if (policy !== 'skip') expect(take).toHaveLength(Math.min(most, all.length));
    }),
  );
});
