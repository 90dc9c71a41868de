import { BACKOFF_FIRST_MS, BACKOFF_MAX_MS } from '../domain/limits.ts';
import type { BackoffPolicy } from '../domain/task-definition.ts';

export const BACKOFF_POLICY_DEFAULT: BackoffPolicy = { firstMs: BACKOFF_FIRST_MS, maxMs: BACKOFF_MAX_MS };

/** A double holds every power of two up to here exactly, and every product ends at `maxMs` long before. */
const DOUBLINGS_MAX = 52;

/**
 * Milliseconds until a task may run again after attempt `attemptCount` (1 for the first) has failed:
 * `firstMs`, doubled after each further failure, up to `maxMs`. Exact: rows are spread by when they failed
 * and by how many slots there are, and a wait that can be computed by hand is worth more to an operator.
 */
export function backoffMs(attemptCount: number, policy: BackoffPolicy = BACKOFF_POLICY_DEFAULT): number {
  const doublings = Math.min(Math.max(attemptCount - 1, 0), DOUBLINGS_MAX);
  return Math.min(policy.maxMs, policy.firstMs * 2 ** doublings);
}
