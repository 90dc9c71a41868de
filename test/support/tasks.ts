import { z } from 'zod';
import {
  createEnqueuer,
  createRegistry,
  defineTask,
  type HandlerRegistry,
  type HandlersFor,
  type RegisteredTask,
} from '../../src/index.ts';
import type { KnownRevisions } from '../../src/statements/predicates.ts';

/** An ordinary task: its ceiling is so long that no test meets it by accident. */
const plain = defineTask({
  type: 'plain',
  payload: z.object({ n: z.number().int().default(0) }),
  ceiling: '5m',
});

/** The shortest ceiling there is, for tests in which the deadline really comes. */
const brief = defineTask({ type: 'brief', payload: z.object({}), ceiling: '1s' });

/** Sliced work: each run does one page. */
const sliced = defineTask({
  type: 'sliced',
  payload: z.object({ pages: z.number().int() }),
  cursor: z.object({ page: z.number().int() }),
  ceiling: '5m',
});

/** Limits of its own, in a queue of its own. */
const fragile = defineTask({
  type: 'fragile',
  queue: 'fragile',
  payload: z.object({}),
  ceiling: '5m',
  maxAttempts: 3,
  backoff: { first: '2s', max: '5s' },
});

const revision = 1;

export type TestTasks = {
  readonly plain: RegisteredTask<typeof plain>;
  readonly brief: RegisteredTask<typeof brief>;
  readonly sliced: RegisteredTask<typeof sliced>;
  readonly fragile: RegisteredTask<typeof fragile>;
};

/** The task types of the tests, as `generated/tasks.ts` would list them. */
export const testTasks: TestTasks = {
  plain: { definition: plain, revision },
  brief: { definition: brief, revision },
  sliced: { definition: sliced, revision },
  fragile: { definition: fragile, revision },
};

export const { enqueue, enqueueMany } = createEnqueuer(testTasks);

/** Every type known at revision 1, as discover and claim take it. */
export const knownRevisions: KnownRevisions = { plain: 1, brief: 1, sliced: 1, fragile: 1 };

/** A registry in which every type has a handler: the given one, or one that is done at once. */
export function handlersFor(handlers: Partial<HandlersFor<TestTasks>> = {}): HandlerRegistry<TestTasks> {
  const done = async () => 'done' as const;
  return createRegistry(testTasks, { plain: done, brief: done, sliced: done, fragile: done, ...handlers });
}

/** The ceiling of `plain`, `sliced` and `fragile`, and the margin behind it. */
export const LEASE_MS = { plain: 330_000, brief: 31_000, sliced: 330_000, fragile: 330_000 };
