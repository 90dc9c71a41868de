import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 10;

/**
 * The first truthy answer of `condition`, for what announces itself by no event (a lock in `pg_stat_activity`).
 * @throws Error naming `what` after `timeoutMs`
 */
export async function waitFor<Answer>(
  condition: () => Answer | Promise<Answer>,
  options: { readonly timeoutMs?: number; readonly what?: string } = {},
): Promise<Exclude<Awaited<Answer>, false | null | undefined | 0 | ''>> {
  const { timeoutMs = 20_000, what = condition.toString() } = options;
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const answer = await condition();
    if (answer) return answer as Exclude<Awaited<Answer>, false | null | undefined | 0 | ''>;
    if (performance.now() > deadline) throw new Error(`waited ${timeoutMs} ms in vain for: ${what}`);
    await delay(POLL_MS);
  }
}
