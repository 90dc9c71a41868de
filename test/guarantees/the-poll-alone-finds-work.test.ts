import { expect } from 'vitest';
import { POLL_INTERVAL_MS, POLL_JITTER } from '../../src/domain/limits.ts';
import { ManualClock } from '../support/clock.ts';
import { test, whenIdle } from '../support/replica.ts';
import { insertRow } from '../support/rows.ts';

test('the poll alone finds work that nobody announced, with one slot for each tick', async ({
  db,
  startReplica,
}) => {
  const clock = new ManualClock({ wall: Date.now() });
  const replica = await startReplica({
    clock,
    timers: clock,
    slots: 4,
    pollInterval: POLL_INTERVAL_MS,
  });
  await whenIdle(replica);
  const { events } = replica;
  const looks = events.of('discovered').length;
  const id = await insertRow(db);

  clock.advance(POLL_INTERVAL_MS * (1 - POLL_JITTER) - 1);
  expect(events.of('wake_received')).toEqual([]);
  expect(events.of('discovered')).toHaveLength(looks);
  clock.advance(POLL_INTERVAL_MS * 2 * POLL_JITTER + 1);

  expect(await events.first('settled')).toMatchObject({ outcome: 'success', task: { id, attempt: 1 } });
});

test('an idle tick is one look of one slot, however many wait', async ({ startReplica }) => {
  const clock = new ManualClock({ wall: Date.now() });
  const replica = await startReplica({
    clock,
    timers: clock,
    slots: 4,
    pollInterval: POLL_INTERVAL_MS,
  });
  await whenIdle(replica);
  const looks = replica.events.of('discovered').length;

  for (let tick = 1; tick <= 3; tick += 1) {
    const next = replica.events.next('discovered');
    clock.advance(POLL_INTERVAL_MS * (1 + POLL_JITTER));
    await next;
    expect(replica.events.of('discovered')).toHaveLength(looks + tick);
  }
});
