import { describe, expect } from 'vitest';
import { z } from 'zod';
import type { ThreadHandler } from '../../src/index.ts';
import { test } from '../support/replica.ts';
import { insertRow, rowOf, wakeReplicas } from '../support/rows.ts';
import { threadedRegistry, threadHandler } from '../support/threaded.ts';

const CRASHES: Readonly<Record<string, { handler: ThreadHandler; payload?: z.ZodType; error: string }>> = {
  'calls process.exit': {
    handler: threadHandler('exit'),
    error: 'the thread of threaded ended with exit code 3 before its handler returned',
  },
  'has an uncaught error': {
    handler: threadHandler('crash'),
    error: 'the thread of threaded crashed; caused by: a loose end',
  },
  'has an unhandled rejection': {
    handler: threadHandler('rejectUnheard'),
    error: 'the thread of threaded crashed; caused by: nobody waited for this',
  },
  'runs out of its memory': {
    handler: threadHandler('eatMemory', { resourceLimits: { maxOldGenerationSizeMb: 64 } }),
    error: 'the thread of threaded crashed; caused by: Worker terminated due to reaching memory limit',
  },
  'has no handler': {
    handler: threadHandler('nowhere'),
    error: "exports no handler function under the name 'nowhere'",
  },
  'returns nonsense': {
    handler: threadHandler('returnNonsense'),
    error: "the handler of threaded returned neither nothing, 'done' nor 'continue'",
  },
  'cannot be given its payload': {
    handler: threadHandler('default'),
    payload: z.object({}).transform(() => ({ render: () => 'a report' })),
    error: 'the thread of threaded cannot be given its payload; caused by: () =>',
  },
};

describe('a thread that fails its handler is an ordinary failure, and never the end of the replica', () => {
  for (const [title, { handler, payload, error }] of Object.entries(CRASHES)) {
    test(`when it ${title}`, async ({ db, startReplica }) => {
      const registry = threadedRegistry(handler, payload === undefined ? {} : { payload });
      const { events } = await startReplica({ slots: 1, registry });
      const id = await insertRow(db, { type: 'threaded' });
      await wakeReplicas(db);

      expect(await events.first('settled')).toMatchObject({
        outcome: 'failure',
        dead: false,
        error: expect.stringContaining(error),
      });
      expect(await rowOf(db, id)).toMatchObject({
        attempt_count: 1,
        lease_token: null,
        last_error: expect.stringContaining(error),
      });
      await insertRow(db, { type: 'plain' });
      await wakeReplicas(db);
      expect((await events.atLeast(2, 'settled'))[1]).toMatchObject({ outcome: 'success' });
    });
  }
});
