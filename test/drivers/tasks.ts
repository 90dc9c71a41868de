import { z } from 'zod';
import { createEnqueuer, createRegistry, defineTask, type HandlerRegistry } from '../../src/index.ts';

const orderPlaced = defineTask({
  type: 'order_placed',
  payload: z.object({ orderId: z.int() }),
  ceiling: '5m',
});

/** Carries whatever a payload can hold. */
const anything = defineTask({ type: 'anything', payload: z.unknown(), ceiling: '5m' });

export const tasks = {
  order_placed: { definition: orderPlaced, revision: 1 },
  anything: { definition: anything, revision: 1 },
};

/** What the examples of the page import from `./generated/tasks.ts`. */
export const { enqueue, enqueueMany } = createEnqueuer(tasks);

/** In which a task of the type `anything` tells its payload. */
export const tellingHandlers = (tell: (payload: unknown) => void): HandlerRegistry =>
  createRegistry(tasks, { order_placed: async () => {}, anything: async (payload) => tell(payload) });
