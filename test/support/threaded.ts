import { z } from 'zod';
import {
  createRegistry,
  type Duration,
  defineTask,
  type HandlerRegistry,
  inThread,
  type ThreadHandler,
  type ThreadOptions,
} from '../../src/index.ts';

const MODULE = new URL('../guarantees/fixtures/thread-handlers.mjs', import.meta.url);

/** The sources are TypeScript here, which a thread of Node 20 loads only with a loader. */
const FROM_SOURCES = { execArgv: ['--import', 'jiti/register'] };

/** The handler that the fixture exports under `exportName`, in a thread of its own. */
export const threadHandler = (exportName: string, options: ThreadOptions = {}): ThreadHandler =>
  inThread(MODULE, { ...FROM_SOURCES, ...options, exportName });

/** Types whose handler runs in a thread, and `plain`, whose handler does not. */
export function threadedRegistry(
  handler: ThreadHandler,
  { ceiling = '5m', payload = z.object({}) }: { ceiling?: Duration; payload?: z.ZodType } = {},
): HandlerRegistry {
  const threaded = defineTask({ type: 'threaded', payload, ceiling });
  const paged = defineTask({
    type: 'paged',
    payload: z.object({ pages: z.number().int().default(3) }),
    cursor: z.object({ page: z.number().int() }),
    ceiling,
  });
  const plain = defineTask({ type: 'plain', payload: z.object({}), ceiling });
  const revision = 1;
  return createRegistry(
    {
      threaded: { definition: threaded, revision },
      paged: { definition: paged, revision },
      plain: { definition: plain, revision },
    },
    { threaded: handler, paged: handler, plain: async () => 'done' },
  );
}
