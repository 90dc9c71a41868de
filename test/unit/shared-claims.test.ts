import { expect, test } from 'vitest';
import type { TaskId } from '../../src/domain/ids.ts';
import type { MonotonicMs, WallMs } from '../../src/domain/time.ts';
import type { SentAt } from '../../src/processor/deadline.ts';
import { SharedClaims } from '../../src/processor/shared-claims.ts';

const clock = { monotonic: () => 0 as MonotonicMs, wall: () => 0 as WallMs };

function claims(dequeueUnderWay: () => Promise<void> | undefined) {
  const widths: number[] = [];
  const shared = new SharedClaims(
    {
      discover: async () => ['1' as TaskId],
      async claim(_ids, slots) {
        widths.push(slots);
        return { tasks: [], sentAt: {} as SentAt };
      },
      dequeueUnderWay,
    },
    clock,
    () => undefined,
    new AbortController().signal,
  );
  return { shared, widths };
}

test('slots that ask in the same turn share one claim', async () => {
  const { shared, widths } = claims(() => undefined);
  await Promise.all(Array.from({ length: 10 }, () => shared.next()));
  expect(widths).toEqual([10]);
});

test('a slot that asks while tasks are deleted shares its claim with the slots those tasks leave free', async () => {
  let answered: () => void = () => undefined;
  const dequeue = new Promise<void>((resolve) => {
    answered = resolve;
  });
  const { shared, widths } = claims(() => dequeue);
  const early = shared.next();
  // Nothing else is under way, so what has not been sent after a turn of the loop is held back.
  await new Promise((resolve) => setImmediate(resolve));
  expect(widths).toEqual([]);

  answered();
  await Promise.all([early, shared.next(), shared.next()]);
  expect(widths).toEqual([3]);
});
