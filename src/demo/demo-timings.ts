import type { Duration, HandlerRegistry } from '../index.ts';

// The definitions keep their ceilings of minutes, which is what production wants. The demo's workers run them under
// ceilings and backoffs of seconds, so that the wait for a killed worker's task can be watched:
// ceiling + margin + at most one poll.

export const DEMO_CEILING_MS = 5_000;
export const DEMO_MARGIN_MS = 3_000;
export const DEMO_POLL_INTERVAL: Duration = '1s';
export const WORKER_SLOTS = 4;
/** Several slices for an organisation of some hundred stacks. */
export const DEMO_SLICE: Duration = '500ms';
/** Longer than any request of the demo takes, from its first object to its commit. */
export const DEMO_PREFIX_DELETE_DELAY: Duration = '4s';

const DEMO_BACKOFF = { firstMs: 1_000, maxMs: 5_000 };

/** The same handlers under the demo's timings. */
export function withDemoTimings(registry: HandlerRegistry): HandlerRegistry {
  return new Map(
    [...registry].map(([type, registered]) => [
      type,
      {
        ...registered,
        definition: { ...registered.definition, ceilingMs: DEMO_CEILING_MS, backoff: DEMO_BACKOFF },
      },
    ]),
  );
}
