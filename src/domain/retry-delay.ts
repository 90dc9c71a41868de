import { RETRY_FIRST_MS, RETRY_MAX_MS } from './limits.ts';

/**
 * How long to wait before a statement is tried again: doubling from 100 ms to 5 s, spread by up to a half
 * so that the replicas do not come back to a restarted server in step.
 * @param failures failures in a row so far, 1 for the first
 * @param random from 0 to 1
 */
export function retryDelayMs(failures: number, random: () => number = Math.random): number {
  const full = Math.min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** Math.min(failures - 1, 20));
  return full * (0.5 + random() / 2);
}
