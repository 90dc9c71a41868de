import { expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import {
  defineTask,
  type Handler,
  type HandlerContext,
  type SliceProgress,
  walkPages,
} from '../../src/index.ts';

const reindexStacks = defineTask({
  type: 'reindex_stacks',
  payload: z.object({ orgId: z.string() }),
  cursor: z.object({ after: z.string() }),
  ceiling: '10m',
});
const plain = defineTask({ type: 'plain', payload: z.object({}), ceiling: '10m' });

interface Stack {
  readonly id: string;
}
declare function stacksOf(orgId: string, after: string, signal: AbortSignal): Promise<Stack[]>;
declare function reindex(stack: Stack): Promise<void>;

const pages = {
  from: (cursor: { after: string } | undefined) => cursor?.after ?? '',
  cursorOf: (after: string) => ({ after }),
  readPage: async (after: string, signal: AbortSignal) => {
    const items = await stacksOf('acme', after, signal);
    return { items, next: items.at(-1)?.id };
  },
};

test('a walk takes its types from the handler, its page and its positions', () => {
  const handler: Handler<typeof reindexStacks> = ({ orgId }, context) =>
    walkPages(context, {
      from: (cursor) => cursor?.after ?? '',
      cursorOf: (after) => ({ after }),
      async readPage(after, signal) {
        const stacks = await stacksOf(orgId, after, signal);
        return { items: stacks, next: stacks.length < 500 ? undefined : stacks.at(-1)?.id };
      },
      each: (stack) => reindex(stack),
      after: (stack) => stack.id,
      budget: '2m',
      fields: { org_id: orgId },
    });
  expectTypeOf(handler).toBeFunction();
});

test('a walk whose work, cursor or budget does not fit is a compile error', () => {
  const handlers: Handler<typeof reindexStacks>[] = [
    (_payload, context) =>
      // @ts-expect-error -- the work takes an item of the page
      walkPages(context, { ...pages, each: async (stack: number) => stack }),
    (_payload, context) =>
      // @ts-expect-error -- nothing to do
      walkPages(context, { ...pages }),
    (_payload, context) =>
      // @ts-expect-error -- not a cursor of the type
      walkPages(context, { ...pages, cursorOf: (after: string) => ({ before: after }), each: reindex }),
    (_payload, context) =>
      // @ts-expect-error -- not a duration
      walkPages(context, { ...pages, each: reindex, budget: '2 minutes' }),
  ];
  const unsliced: Handler<typeof plain> = (_payload, context) =>
    // @ts-expect-error -- a type without a cursor has no slices
    walkPages(context, { ...pages, each: reindex });
  expectTypeOf([handlers, unsliced]).not.toBeAny();
});

test('only a type with a cursor has the context of a slice', () => {
  const sliced: Handler<typeof reindexStacks> = async (_payload, context) => {
    expectTypeOf(context.cursor).toEqualTypeOf<{ after: string } | undefined>();
    expectTypeOf(context.progress).toEqualTypeOf<SliceProgress | undefined>();
    expectTypeOf(context.tryAdvanceCursor).toEqualTypeOf<
      (next: { after: string }, progress?: SliceProgress) => Promise<boolean>
    >();
  };
  expectTypeOf(sliced).toBeFunction();
  expectTypeOf<HandlerContext>().not.toHaveProperty('advanceCursor');
  expectTypeOf<HandlerContext>().not.toHaveProperty('sliceBudget');
});
