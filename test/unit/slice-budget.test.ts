import { describe, expect, test } from 'vitest';
import { SLICE_RESERVE_MS } from '../../src/domain/limits.ts';
import { makeSliceBudget } from '../../src/domain/slice.ts';
import { ManualClock } from '../support/clock.ts';

/** A slice that began at the clock's now, with so long until its deadline. */
function begin(ceilingMs: number) {
  const clock = new ManualClock();
  const startedAt = clock.monotonic();
  const controller = new AbortController();
  const ranMs = () => clock.monotonic() - startedAt;
  const clocks = { signal: controller.signal, ranMs, remainingMs: () => Math.max(0, ceilingMs - ranMs()) };
  return {
    clock,
    controller,
    budget: (duration: Parameters<typeof makeSliceBudget>[0]) => makeSliceBudget(duration, 'walking', clocks),
  };
}

test('a slice budget counts from the start of the handler, whenever it is asked for', () => {
  const { clock, budget } = begin(600_000);
  clock.advance(30_000);
  const minutes = budget('2m');

  expect(minutes.remainingMs()).toBe(90_000);
  clock.advance(89_999);
  expect(minutes.isSpent()).toBe(false);
  clock.advance(1);
  expect(minutes.isSpent()).toBe(true);
  clock.advance(60_000);
  expect(minutes.remainingMs()).toBe(0);
});

describe('a slice budget never reaches up to the deadline', () => {
  test('it leaves five seconds for the cursor', () => {
    expect(begin(300_000).budget('1h').remainingMs()).toBe(300_000 - SLICE_RESERVE_MS);
  });

  test('it leaves a tenth of a ceiling that is shorter', () => {
    expect(begin(10_000).budget('1h').remainingMs()).toBe(9_000);
  });

  test('it leaves the same however late it is asked for', () => {
    const { clock, budget } = begin(10_000);
    clock.advance(8_000);
    expect(budget('1h').remainingMs()).toBe(1_000);
  });
});

test('a slice budget is spent once the signal has aborted', () => {
  const { controller, budget } = begin(300_000);
  const minute = budget('1m');
  controller.abort();
  expect([minute.isSpent(), minute.remainingMs()]).toEqual([true, 0]);
});

test.each([0, -1, Number.NaN, 'soon' as never])('a slice budget of %s is refused', (duration) => {
  expect(() => begin(300_000).budget(duration)).toThrow(
    expect.objectContaining({ code: 'DURATION_INVALID', message: expect.stringContaining('walking') }),
  );
});
