import { expect, test } from 'vitest';
import { backoffMs } from '../../src/processor/backoff.ts';

test('the wait is 15 s after the first failure and doubles to 10 minutes: the exact sequence of 20', () => {
  const seconds = Array.from({ length: 20 }, (_, index) => backoffMs(index + 1) / 1_000);
  expect(seconds).toEqual([
    15, 30, 60, 120, 240, 480, 600, 600, 600, 600, 600, 600, 600, 600, 600, 600, 600, 600, 600, 600,
  ]);
});

test('a type of its own policy doubles from its first wait to its longest', () => {
  const policy = { firstMs: 100, maxMs: 1_000 };
  expect([1, 2, 3, 4, 5, 6].map((attempt) => backoffMs(attempt, policy))).toEqual([
    100, 200, 400, 800, 1_000, 1_000,
  ]);
});

test('the same attempt always waits the same time', () => {
  expect(new Set(Array.from({ length: 100 }, () => backoffMs(4)))).toEqual(new Set([120_000]));
});

test('no number of attempts overflows', () => {
  for (const attempt of [54, 1_000, 5_000, Number.MAX_SAFE_INTEGER]) {
    expect(backoffMs(attempt)).toBe(600_000);
    expect(backoffMs(attempt, { firstMs: 0, maxMs: 600_000 })).toBe(0);
  }
});

test('a first wait longer than the longest is cut to it', () => {
  expect(backoffMs(1, { firstMs: 90_000, maxMs: 60_000 })).toBe(60_000);
});

test('a row that was never attempted waits like one that failed once', () => {
  expect(backoffMs(0)).toBe(15_000);
});
