import { describe, expect, test } from 'vitest';
import { DEADLINE_CHECK_MS, LEASE_MARGIN_MS } from '../../src/domain/limits.ts';
import { systemClock, systemTimers } from '../../src/domain/time.ts';
import {
  clockOffsetMs,
  handlerDeadline,
  type LeaseStamp,
  leaseEnd,
  leaseRemainingMs,
  readClocks,
  remainingMs,
  watchDeadline,
} from '../../src/processor/deadline.ts';
import { ManualClock } from '../support/clock.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const CEILING_MS = 5 * MINUTE_MS;

/** What a database whose clock is `skewMs` ahead stamps, when the claim reaches it now. */
function stampNow(clock: ManualClock, options: { ceilingMs?: number; skewMs?: number } = {}): LeaseStamp {
  const { ceilingMs = CEILING_MS, skewMs = 0 } = options;
  const dbMs = clock.wall() + skewMs;
  return { databaseNow: { dbMs }, leaseExpiresAt: { dbMs: dbMs + ceilingMs + LEASE_MARGIN_MS } };
}

/** A claim that took `toMs` to reach the database and `backMs` to come back. */
function claim(
  clock: ManualClock,
  options: { toMs?: number; backMs?: number; ceilingMs?: number; skewMs?: number } = {},
) {
  const sentAt = readClocks(clock);
  clock.advance(options.toMs ?? 0);
  const stamp = stampNow(clock, options);
  clock.advance(options.backMs ?? 0);
  return { stamp, sentAt, deadline: handlerDeadline(stamp, sentAt, LEASE_MARGIN_MS) };
}

function watch(
  clock: ManualClock,
  deadline = handlerDeadline(stampNow(clock), readClocks(clock), LEASE_MARGIN_MS),
) {
  const reachedAt: number[] = [];
  const watched = watchDeadline(deadline, clock, clock, () => reachedAt.push(clock.monotonic()));
  return { reachedAt, watched };
}

describe('the budget', () => {
  test('of an instant claim is the ceiling', () => {
    const clock = new ManualClock();
    const { deadline } = claim(clock);
    expect(remainingMs(deadline, clock)).toBe(CEILING_MS);
  });

  test('is shortened by a slow claim, on whichever way it was slow', () => {
    for (const slow of [{ toMs: 4_000 }, { backMs: 4_000 }, { toMs: 1_000, backMs: 3_000 }]) {
      const clock = new ManualClock();
      expect(remainingMs(claim(clock, slow).deadline, clock)).toBe(CEILING_MS - 4_000);
    }
  });

  test('has passed when the claim came back after the deadline', () => {
    const clock = new ManualClock();
    const { deadline, stamp, sentAt } = claim(clock, { backMs: CEILING_MS + 1 });
    expect(remainingMs(deadline, clock)).toBe(-1);
    expect(leaseRemainingMs(stamp, sentAt, clock)).toBe(LEASE_MARGIN_MS - 1);
  });

  test("never ends later than the margin before the lease's end on the database's clock", () => {
    for (const toMs of [0, 1, 900, 20_000]) {
      const clock = new ManualClock();
      const { stamp, deadline } = claim(clock, { toMs, backMs: 700 });
      clock.advance(remainingMs(deadline, clock));
      expect(stamp.leaseExpiresAt.dbMs - clock.wall()).toBe(LEASE_MARGIN_MS + toMs);
    }
  });

  test('does not change with a clock that is ten minutes, or ten years, off', () => {
    const budgets = [0, 10 * MINUTE_MS, -10 * MINUTE_MS, 3_650 * DAY_MS, -3_650 * DAY_MS].map((skewMs) => {
      const clock = new ManualClock();
      const { deadline, stamp, sentAt } = claim(clock, { skewMs, toMs: 300, backMs: 200 });
      return [remainingMs(deadline, clock), leaseRemainingMs(stamp, sentAt, clock)];
    });
    for (const budget of budgets)
      expect(budget).toEqual([CEILING_MS - 500, CEILING_MS + LEASE_MARGIN_MS - 500]);
  });

  test('is the smaller of what both clocks have left', () => {
    const clock = new ManualClock();
    const { deadline } = claim(clock);
    clock.shiftWall(2_000);
    expect(remainingMs(deadline, clock)).toBe(CEILING_MS - 2_000);
    clock.shiftWall(-60 * MINUTE_MS);
    expect(remainingMs(deadline, clock)).toBe(CEILING_MS);
    clock.advance(1_000);
    expect(remainingMs(deadline, clock)).toBe(CEILING_MS - 1_000);
  });

  test('of a settlement is the whole lease, margin included', () => {
    const clock = new ManualClock();
    const { stamp, sentAt } = claim(clock, { backMs: 1_000 });
    expect(leaseRemainingMs(stamp, sentAt, clock)).toBe(CEILING_MS + LEASE_MARGIN_MS - 1_000);
    expect(remainingMs(leaseEnd(stamp, sentAt), clock)).toBe(leaseRemainingMs(stamp, sentAt, clock));
    clock.shiftWall(CEILING_MS + LEASE_MARGIN_MS);
    expect(leaseRemainingMs(stamp, sentAt, clock)).toBe(-1_000);
  });
});

test('the offset is how far the database is ahead, and off by the way to it', () => {
  for (const skewMs of [0, 10 * MINUTE_MS, -10 * MINUTE_MS]) {
    const clock = new ManualClock();
    const { stamp, sentAt } = claim(clock, { skewMs, toMs: 40, backMs: 3_000 });
    expect(clockOffsetMs(stamp, sentAt)).toBe(skewMs + 40);
  }
});

describe('watching a deadline', () => {
  test('calls once, at the deadline', () => {
    const clock = new ManualClock();
    const start = clock.monotonic();
    const { reachedAt } = watch(clock);
    clock.advance(CEILING_MS - 1);
    expect(reachedAt).toEqual([]);
    clock.advance(1);
    expect(reachedAt).toEqual([start + CEILING_MS]);
    clock.advance(DAY_MS);
    expect(reachedAt).toHaveLength(1);
    expect(clock.pendingCount).toBe(0);
  });

  test('does not call at once for a ceiling of 30 days', () => {
    const clock = new ManualClock();
    const { deadline } = claim(clock, { ceilingMs: 30 * DAY_MS });
    const { reachedAt } = watch(clock, deadline);
    clock.advance(30 * DAY_MS - 1);
    expect(reachedAt).toEqual([]);
    clock.advance(1);
    expect(reachedAt).toHaveLength(1);
  });

  test('sets no timer longer than one check', () => {
    const clock = new ManualClock();
    watch(clock, claim(clock, { ceilingMs: 30 * DAY_MS }).deadline);
    for (let check = 0; check < 10; check++) {
      expect(clock.nextInMs).toBeLessThanOrEqual(DEADLINE_CHECK_MS);
      clock.advance(clock.nextInMs ?? 0);
    }
  });

  test('notices within one check that the machine was suspended', () => {
    const clock = new ManualClock();
    const { reachedAt } = watch(clock);
    clock.advance(7_000);
    const woken = clock.monotonic();
    clock.shiftWall(60 * MINUTE_MS);
    clock.advance(DEADLINE_CHECK_MS);
    expect(reachedAt).toHaveLength(1);
    expect(reachedAt[0]).toBeLessThanOrEqual(woken + DEADLINE_CHECK_MS);
  });

  test('goes on for the rest of the budget after a suspension shorter than it', () => {
    const clock = new ManualClock();
    const { reachedAt } = watch(clock);
    clock.advance(MINUTE_MS);
    clock.shiftWall(2 * MINUTE_MS);
    clock.advance(2 * MINUTE_MS - 1);
    expect(reachedAt).toEqual([]);
    clock.advance(1);
    expect(reachedAt).toHaveLength(1);
  });

  test('is not put off by a wall clock that is set back', () => {
    const clock = new ManualClock();
    const { reachedAt } = watch(clock);
    clock.shiftWall(-DAY_MS);
    clock.advance(CEILING_MS);
    expect(reachedAt).toHaveLength(1);
  });

  test('takes fractions of a millisecond, and never calls early for them', () => {
    const clock = new ManualClock({ monotonic: 1_000.25, wall: 1_700_000_000_000.5 });
    const sentAt = readClocks(clock);
    const stamp = {
      databaseNow: { dbMs: 1_700_000_000_000.001 },
      leaseExpiresAt: { dbMs: 1_700_000_031_500.502 },
    };
    const deadline = handlerDeadline(stamp, sentAt, LEASE_MARGIN_MS);
    const { reachedAt } = watch(clock, deadline);
    expect(Number.isInteger(clock.nextInMs)).toBe(true);
    clock.advance(1_500);
    expect(reachedAt).toEqual([]);
    clock.advance(1);
    expect(reachedAt).toHaveLength(1);
  });

  test('waits on when a timer fires early', () => {
    const clock = new ManualClock();
    const early: { ms: number; fire: () => void }[] = [];
    const reached: string[] = [];
    const timers = {
      after(ms: number, fire: () => void) {
        early.push({ ms, fire });
        return { cancel: () => {} };
      },
    };
    const deadline = handlerDeadline(
      stampNow(clock, { ceilingMs: 1_000 }),
      readClocks(clock),
      LEASE_MARGIN_MS,
    );
    watchDeadline(deadline, clock, timers, () => reached.push('reached'));
    clock.advance(999.5);
    early.shift()?.fire();
    expect(reached).toEqual([]);
    expect(early.map(({ ms }) => ms)).toEqual([1]);
    clock.advance(1);
    early.shift()?.fire();
    expect(reached).toEqual(['reached']);
  });

  test('calls for a deadline that has passed, but not before it has returned', () => {
    const clock = new ManualClock();
    const { deadline } = claim(clock, { backMs: CEILING_MS + 500.5 });
    const { reachedAt } = watch(clock, deadline);
    expect(reachedAt).toEqual([]);
    clock.advance(0);
    expect(reachedAt).toHaveLength(1);
  });

  test('calls for a stamp that is no number', () => {
    const clock = new ManualClock();
    const stamp = { databaseNow: { dbMs: Number.NaN }, leaseExpiresAt: { dbMs: 1 } };
    const { reachedAt } = watch(clock, handlerDeadline(stamp, readClocks(clock), LEASE_MARGIN_MS));
    clock.advance(0);
    expect(reachedAt).toHaveLength(1);
    expect(clock.pendingCount).toBe(0);
  });

  test('never calls after it was cancelled, and leaves no timer', () => {
    const clock = new ManualClock();
    const { reachedAt, watched } = watch(clock);
    clock.advance(DEADLINE_CHECK_MS * 2 + 1);
    watched.cancel();
    expect(clock.pendingCount).toBe(0);
    clock.advance(DAY_MS);
    expect(reachedAt).toEqual([]);
    watched.cancel();
  });

  test('calls no sooner than the deadline on the real clock and timers', async () => {
    const sentAt = readClocks(systemClock);
    const stamp = { databaseNow: { dbMs: 0 }, leaseExpiresAt: { dbMs: LEASE_MARGIN_MS + 20.4 } };
    const deadline = handlerDeadline(stamp, sentAt, LEASE_MARGIN_MS);
    await new Promise<void>((resolve) => {
      watchDeadline(deadline, systemClock, systemTimers, resolve);
    });
    expect(remainingMs(deadline, systemClock)).toBeLessThanOrEqual(0);
  });
});
