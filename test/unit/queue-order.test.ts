import { describe, expect, test } from 'vitest';
import type { TaskId } from '../../src/domain/ids.ts';
import { type QueueHints, QueueOrder } from '../../src/processor/queue-order.ts';

const WEIGHTS = new Map([
  ['critical', 6],
  ['default', 3],
  ['low', 1],
]);

function hints(
  queue: string,
  count: number,
  { weight = WEIGHTS.get(queue) ?? 1, isCut = false } = {},
): QueueHints {
  const candidates = Array.from({ length: count }, (_value, index) => ({
    id: `${queue}${index}` as TaskId,
    queue,
    runAt: { dbMs: index },
    weight: undefined,
  }));
  return { queue, weight, candidates, isCut };
}

const full = () => [...WEIGHTS.keys()].map((queue) => hints(queue, 100));
const weighted = () => new QueueOrder({ weights: WEIGHTS, strict: false });
const strict = () => new QueueOrder({ weights: WEIGHTS, strict: true });

/** Claims one task after the other out of queues that stay full; answers whose they were. */
function drawn(order: QueueOrder, claims: number, queues = full()): string[] {
  return Array.from({ length: claims }, () => {
    const [first] = order.sequence(queues, 1).candidates;
    if (first === undefined) throw new Error('nothing was drawn');
    order.charge(first.queue, queues);
    return first.queue;
  });
}

const share = (queues: readonly string[], queue: string) => queues.filter((each) => each === queue).length;

describe('by weight', () => {
  test('any ten claims in a row go to the queues as 6:3:1', () => {
    const queues = drawn(weighted(), 1_000);
    for (let start = 0; start <= 990; start += 1) {
      const ten = queues.slice(start, start + 10);
      expect([share(ten, 'critical'), share(ten, 'default'), share(ten, 'low')]).toEqual([6, 3, 1]);
    }
  });

  test('what a claim may take is in the same order as one claim after the other', () => {
    const { candidates } = weighted().sequence(full(), 50);
    expect(candidates.map(({ queue }) => queue)).toEqual(drawn(weighted(), 50));
  });

  test('inside a queue the oldest comes first', () => {
    const { candidates } = weighted().sequence(full(), 60);
    const places = candidates.filter(({ queue }) => queue === 'critical').map(({ runAt }) => runAt.dbMs);
    expect(places).toEqual(places.map((_place, index) => index));
  });

  test('the share of a queue without due tasks is the others', () => {
    const queues = drawn(weighted(), 100, [hints('default', 100), hints('low', 100)]);
    expect([share(queues, 'default'), share(queues, 'low')]).toEqual([75, 25]);
  });

  test('a queue that was empty for a while brings back no savings', () => {
    const order = weighted();
    drawn(order, 1_000, [hints('low', 100)]);
    const ten = drawn(order, 10);
    expect([share(ten, 'critical'), share(ten, 'default'), share(ten, 'low')]).toEqual([6, 3, 1]);
  });

  test('a queue whose tasks are always taken by others saves up one round at the most', () => {
    const order = weighted();
    const queues = full();
    for (let claims = 0; claims < 1_000; claims += 1) order.charge('critical', queues);
    const thirty = drawn(order, 30);
    expect(share(thirty, 'critical')).toBeGreaterThanOrEqual(9);
  });

  test('the sequence ends where a queue that was not read to its end runs out', () => {
    const { candidates, isCut } = weighted().sequence(
      [hints('critical', 6, { isCut: true }), hints('low', 50)],
      50,
    );
    expect(isCut).toBe(true);
    expect(candidates.filter(({ queue }) => queue === 'critical')).toHaveLength(6);
    expect(candidates.length).toBeLessThanOrEqual(8);
  });

  test('a queue that was read to its end leaves the rest of the sequence to the others', () => {
    const { candidates, isCut } = weighted().sequence([hints('critical', 6), hints('low', 50)], 50);
    expect(isCut).toBe(false);
    expect(candidates).toHaveLength(50);
  });

  test('a weight given at run time goes before the configured one, and an unknown queue has the least', () => {
    expect(weighted().weightOf('low', 9)).toBe(9);
    expect(weighted().weightOf('low', undefined)).toBe(1);
    expect(weighted().weightOf('critical', undefined)).toBe(6);
    expect(weighted().weightOf('nobody said', undefined)).toBe(1);
  });
});

describe('strict', () => {
  test('a queue is served only when those above it have nothing', () => {
    const { candidates } = strict().sequence(
      [hints('low', 2), hints('critical', 2), hints('default', 2)],
      10,
    );
    expect(candidates.map(({ queue }) => queue)).toEqual([
      'critical',
      'critical',
      'default',
      'default',
      'low',
      'low',
    ]);
  });

  test('queues of one weight take turns', () => {
    const queues = drawn(strict(), 10, [
      hints('a', 9, { weight: 2 }),
      hints('b', 9, { weight: 2 }),
      hints('low', 9),
    ]);
    expect([share(queues, 'a'), share(queues, 'b'), share(queues, 'low')]).toEqual([5, 5, 0]);
  });
});
