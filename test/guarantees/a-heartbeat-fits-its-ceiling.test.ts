import { expect, test } from 'vitest';
import { HEARTBEAT_MS_MIN, HEARTBEATS_OF_A_LEASE } from '../../src/domain/limits.ts';
import { definePulsed } from '../support/pulsed.ts';

test('a heartbeat below a second or above a third of the ceiling is refused, naming the task type', () => {
  for (const [heartbeat, ceiling, problem] of [
    ['999ms', '5m', /heartbeat of task type 'pulsed': must be between 1s and 1m 40s, received '999ms'/],
    ['101s', '5m', /heartbeat of task type 'pulsed': must be between 1s and 1m 40s, received '101s'/],
    [0, '5m', /heartbeat of task type 'pulsed'/],
    ['1s', '2.9s', /heartbeat of task type 'pulsed': a ceiling below 3s leaves no room for one/],
  ] as const) {
    expect(() => definePulsed(heartbeat, ceiling), `${heartbeat} of ${ceiling}`).toThrow(problem);
  }
  expect(definePulsed('1s', '3s').heartbeatMs).toBe(HEARTBEAT_MS_MIN);
  expect(definePulsed('100s', '5m').heartbeatMs).toBe(300_000 / HEARTBEATS_OF_A_LEASE);
});
