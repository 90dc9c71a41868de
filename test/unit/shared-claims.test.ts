import { expect, test } from 'vitest';
import type { TaskId } from '../../src/domain/ids.ts';
import type { ClaimedTask } from '../../src/domain/task.ts';
import type { MonotonicMs, WallMs } from '../../src/domain/time.ts';
import type { SentAt } from '../../src/processor/deadline.ts';
import { QueueOrder } from '../../src/processor/queue-order.ts';
import { SharedClaims } from '../../src/processor/shared-claims.ts';
import type { Candidate, Horizon } from '../../src/statements/discover.ts';

const clock = { monotonic: () => 0 as MonotonicMs, wall: () => 0 as WallMs };

const candidate = (n: number): Candidate => ({
  id: String(n) as TaskId,
  queue: 'default',
  runAt: { dbMs: n },
  weight: undefined,
});

const surroundings = {
  order: new QueueOrder({ weights: new Map(), strict: false }),
  queues: undefined,
  observe: () => undefined,
  stopping: new AbortController().signal,
};

function claims(dequeueUnderWay: () => Promise<void> | undefined) {
  const widths: number[] = [];
  const shared = new SharedClaims({
    ...surroundings,
    statements: {
      discover: async () => [candidate(1)],
      async claim(_ids, slots) {
        widths.push(slots);
        return { tasks: [], sentAt: {} as SentAt };
      },
      dequeueUnderWay,
    },
    clock,
  });
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

/** A queue of `depth` tasks, each gone once it was claimed; answers where each look began. */
function busyQueue(depth: number) {
  let now = 0;
  let tasks = Array.from({ length: depth }, (_value, index) => candidate(index + 1));
  const looks: (number | 'whole')[] = [];
  const shared = new SharedClaims({
    ...surroundings,
    statements: {
      async discover(limit, from: Horizon | undefined) {
        const beginMs = from?.get('default')?.dbMs;
        looks.push(beginMs ?? 'whole');
        return tasks.filter(({ runAt }) => runAt.dbMs >= (beginMs ?? 0)).slice(0, limit);
      },
      async claim(ids, slots) {
        const taken = tasks.filter(({ id }) => ids.includes(id)).slice(0, slots);
        tasks = tasks.filter((task) => !taken.includes(task));
        const stamps = { leaseExpiresAt: { dbMs: 0 }, claimedAt: { dbMs: 0 } };
        const sentAt = { monotonic: 0 as MonotonicMs, wall: 0 as WallMs };
        return { tasks: taken.map(({ id }) => ({ id, ...stamps }) as ClaimedTask), sentAt };
      },
      dequeueUnderWay: () => undefined,
    },
    clock: { monotonic: () => now as MonotonicMs, wall: () => now as WallMs },
  });
  const claimAll = (slots: number) => Promise.all(Array.from({ length: slots }, () => shared.next()));
  return {
    looks,
    claimAll,
    advance: (ms: number) => (now += ms),
    add: (n: number) => tasks.unshift(candidate(n)),
  };
}

test('while there is plenty, a look begins where the one before it began', async () => {
  const { looks, claimAll } = busyQueue(100);
  for (let round = 0; round < 4; round += 1) await claimAll(20);
  expect(looks).toEqual(['whole', 1, 21, 41]);
});

test('a look is a whole one again after a second, so that an older task waits no longer', async () => {
  const { looks, claimAll, advance } = busyQueue(100);
  await claimAll(20);
  await claimAll(20);
  advance(1_001);
  await claimAll(20);
  expect(looks).toEqual(['whole', 1, 'whole']);
});

test('a look that finds too little is followed by a whole one at once', async () => {
  const { looks, claimAll, add } = busyQueue(21);
  await claimAll(20);
  add(0);
  const served = await claimAll(2);
  expect(looks).toEqual(['whole', 1, 'whole']);
  expect(served.map((held) => held?.task.id)).toEqual(['21', '0']);
});

test('with less work than a look takes, each look is a whole one', async () => {
  const { looks, claimAll } = busyQueue(3);
  for (let round = 0; round < 3; round += 1) await claimAll(1);
  // The hints of the first look serve the next two.
  expect(looks).toEqual(['whole']);
  await claimAll(1);
  expect(looks).toEqual(['whole', 'whole']);
});

test('a look from the horizon on reaches the queues that had nothing, for what is new in them', async () => {
  const looks: (string[] | 'whole')[] = [];
  let critical = [{ ...candidate(0), queue: 'critical' }];
  const backlog = Array.from({ length: 100 }, (_value, index) => candidate(index + 1));
  const claimed = new Set<TaskId>();
  const shared = new SharedClaims({
    ...surroundings,
    statements: {
      async discover(limit, from) {
        looks.push(
          from === undefined ? 'whole' : [...from].map(([queue, at]) => `${queue} ${at?.dbMs}`).sort(),
        );
        return [...critical, ...backlog.filter(({ id }) => !claimed.has(id)).slice(0, limit)];
      },
      async claim(ids, slots) {
        const taken = ids.filter((id) => !claimed.has(id)).slice(0, slots);
        for (const id of taken) claimed.add(id);
        critical = [];
        const stamps = { leaseExpiresAt: { dbMs: 0 }, claimedAt: { dbMs: 0 } };
        const sentAt = { monotonic: 0 as MonotonicMs, wall: 0 as WallMs };
        return { tasks: taken.map((id) => ({ id, ...stamps }) as ClaimedTask), sentAt };
      },
      dequeueUnderWay: () => undefined,
    },
    clock,
  });
  const claimTwenty = () => Promise.all(Array.from({ length: 20 }, () => shared.next()));
  await claimTwenty();
  await claimTwenty();
  await claimTwenty();
  expect(looks.slice(0, 3)).toEqual([
    'whole',
    ['critical 0', 'default 1'],
    ['critical undefined', 'default 20'],
  ]);
});
