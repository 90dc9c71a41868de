import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import {
  createRegistry,
  defineTask,
  type HandlerResult,
  type SlicedHandlerContext,
  type StoppedEarly,
  type WalkOptions,
  walkPages,
} from '../../src/index.ts';
import { type RunTaskOptions, runTask } from '../../src/testing/index.ts';

// A walk over the numbers 1 to `COUNT`, in pages of `PAGE`: a position is the last number that is done.

const COUNT = 10;
const PAGE = 4;

interface Place {
  readonly after: number;
}
type Context = SlicedHandlerContext<Place, Place>;
type Options = WalkOptions<Place, Place, number, number>;

const walking = defineTask({
  type: 'walking',
  payload: z.object({}),
  cursor: z.object({ after: z.number().int() }),
  ceiling: '10m',
});

async function readPage(after: number) {
  const items = Array.from({ length: Math.min(PAGE, COUNT - after) }, (_, index) => after + index + 1);
  const last = after + items.length;
  return { items, next: last < COUNT ? last : undefined, total: COUNT };
}

const pages = {
  from: (cursor: Place | undefined) => cursor?.after ?? 0,
  cursorOf: (after: number) => ({ after }),
  readPage,
};

/** One slice; `reports` is what it said about stopping early. */
async function slice(options: (context: Context) => Options, given: RunTaskOptions<Place> = {}) {
  const reports: StoppedEarly[] = [];
  const handler = async (_payload: unknown, context: Context): Promise<HandlerResult> => {
    const listening = { ...context, stoppedEarly: (why: StoppedEarly) => void reports.push(why) };
    return walkPages(listening, options(listening));
  };
  const registry = createRegistry({ walking: { definition: walking, revision: 1 } }, { walking: handler });
  const run = await runTask(registry, 'walking', {}, given);
  return { ...run, reports };
}

/** Work that remembers, and fails at `failing`. */
function work(failing?: number) {
  const seen: number[] = [];
  const each = async (item: number) => {
    if (item === failing) throw new Error(`item ${item} is poison`);
    seen.push(item);
  };
  return { seen, each };
}

const after = (item: number) => item;

test('a walk meets every item once and in order, and is done without having saved anything', async () => {
  const { seen, each } = work();
  expect(await slice(() => ({ ...pages, each, after }))).toMatchObject({
    result: 'done',
    cursor: undefined,
    outcome: 'success',
    reports: [],
  });
  expect(seen).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
});

test('a walk may take each page whole', async () => {
  const seen: (readonly number[])[] = [];
  const eachPage = async (items: readonly number[]) => seen.push(items);
  expect(await slice(() => ({ ...pages, eachPage }))).toMatchObject({ result: 'done' });
  expect(seen).toEqual([
    [1, 2, 3, 4],
    [5, 6, 7, 8],
    [9, 10],
  ]);
});

test('a walk begins where the cursor says and counts on from the progress beside it', async () => {
  const { seen, each } = work();
  const run = await slice(() => ({ ...pages, each, after, pagesPerSlice: 1 }), {
    cursor: { after: 3 },
    progress: { done: 3 },
  });

  expect(run).toMatchObject({ result: 'continue', cursor: { after: 7 }, progress: { done: 7, total: 10 } });
  expect(seen).toEqual([4, 5, 6, 7]);
});

describe('a slice whose budget is spent', () => {
  /** Longer than the budget of 1 ms. */
  const slow = async () => void (await delay(5));

  test('ends behind the item it was at, and saves that place', async () => {
    expect(await slice(() => ({ ...pages, each: slow, after, budget: 1 }))).toMatchObject({
      result: 'continue',
      cursor: { after: 1 },
      progress: { done: 1, total: 10 },
      outcome: 'continued',
      reports: [],
    });
  });

  test('ends behind the page when items have no place of their own', async () => {
    expect(await slice(() => ({ ...pages, each: slow, budget: 1 }))).toMatchObject({
      result: 'continue',
      cursor: { after: 4 },
      progress: { done: 4, total: 10 },
    });
  });

  test('before it began still does one step, so that the walk comes to its end', async () => {
    const cursors: unknown[] = [];
    let cursor: Place | undefined;
    for (let done = false; !done; ) {
      const run = await slice(
        (context) => {
          // A budget that was spent long ago.
          const spent = { isSpent: () => true, remainingMs: () => 0 };
          Object.assign(context, { sliceBudget: () => spent });
          return { ...pages, each: work().each, after };
        },
        cursor === undefined ? {} : { cursor },
      );
      done = run.result === 'done';
      cursor = run.cursor;
      if (!done) cursors.push(cursor?.after);
    }
    expect(cursors).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });
});

describe('a page that cannot be read', () => {
  const failingAt =
    (place: number): Options['readPage'] =>
    async (position) => {
      if (position === place) throw new Error('the store is away');
      return readPage(position);
    };

  test('after the slice has come further, ends it: saved, continued, and said', async () => {
    const run = await slice(() => ({
      ...pages,
      readPage: failingAt(8),
      each: work().each,
      fields: { org_id: 'acme' },
    }));

    expect(run).toMatchObject({ result: 'continue', outcome: 'continued', cursor: { after: 8 } });
    expect(run.reports).toEqual([
      {
        on: 'page_read',
        error: new Error('the store is away'),
        cursor: { after: 8 },
        pagesRead: 2,
        fields: { org_id: 'acme' },
      },
    ]);
  });

  test('as the first one, is an ordinary failure that keeps its attempt', async () => {
    const run = await slice(() => ({ ...pages, readPage: failingAt(0), each: work().each }), { attempt: 3 });

    expect(run).toMatchObject({
      result: 'error',
      error: { message: 'the store is away' },
      outcome: 'failure',
      cursor: undefined,
      settlement: { kind: 'record_failure', failure: { attempt: 3 } },
      reports: [],
    });
  });
});

describe('an item whose work throws', () => {
  test('after others, ends the slice right before it, and said', async () => {
    const run = await slice(() => ({ ...pages, each: work(7).each, after }));

    expect(run).toMatchObject({ result: 'continue', cursor: { after: 6 }, progress: { done: 6, total: 10 } });
    expect(run.reports).toMatchObject([{ on: 'page_work', error: { message: 'item 7 is poison' } }]);
  });

  test('as the first of a slice, is an ordinary failure', async () => {
    const run = await slice(() => ({ ...pages, each: work(7).each, after }), { cursor: { after: 6 } });
    expect(run).toMatchObject({ result: 'error', outcome: 'failure', cursor: undefined, reports: [] });
  });

  test('ends the slice before its page, when items have no place of their own', async () => {
    const first = await slice(() => ({ ...pages, each: work(7).each }));
    expect(first).toMatchObject({ result: 'continue', cursor: { after: 4 }, progress: { done: 4 } });

    const second = await slice(() => ({ ...pages, each: work(7).each }), { cursor: { after: 4 } });
    expect(second).toMatchObject({ result: 'error', cursor: undefined });
  });
});

describe('a slice that is interrupted', () => {
  const interrupted = (at: number, interruptedBy: 'shutdown' | 'deadline') => {
    const controller = new AbortController();
    const each = async (item: number) => {
      if (item !== at) return;
      controller.abort();
      throw new Error('the client gave up');
    };
    return slice(() => ({ ...pages, each, after }), { signal: controller.signal, interruptedBy });
  };

  test.each([
    ['shutdown', 'continued'],
    ['deadline', 'timeout'],
  ] as const)('by a %s saves what is done and is recorded %s', async (interruptedBy, outcome) => {
    expect(await interrupted(3, interruptedBy)).toMatchObject({
      outcome,
      cursor: { after: 2 },
      reports: [],
    });
  });

  test('before anything was done has nothing to save', async () => {
    expect(await interrupted(1, 'shutdown')).toMatchObject({
      result: 'error',
      outcome: 'cancelled',
      cursor: undefined,
    });
  });

  test('while it walks on ends at the next item', async () => {
    const controller = new AbortController();
    const seen: number[] = [];
    const each = async (item: number) => {
      seen.push(item);
      if (item === 6) controller.abort();
    };
    const run = await slice(() => ({ ...pages, each, after }), { signal: controller.signal });

    expect(run).toMatchObject({ outcome: 'continued', cursor: { after: 6 } });
    expect(seen).toEqual([1, 2, 3, 4, 5, 6]);
  });
});

test('a slice whose lease was lost throws, and says neither continue nor that it stopped early', async () => {
  const run = await slice(() => ({ ...pages, each: work(3).each, after }), { leaseLost: true });

  expect(run).toMatchObject({
    result: 'error',
    error: { code: 'LEASE_LOST', cause: { message: 'item 3 is poison' } },
    outcome: 'lost',
    cursor: undefined,
    reports: [],
  });
});

test.each([
  [{ pagesPerSlice: 0 }, 'OPTION_INVALID'],
  [{ budget: 'soon' as never }, 'DURATION_INVALID'],
])('a walk with %o is refused before anything is read', async (wrong, code) => {
  const { seen, each } = work();
  expect(await slice(() => ({ ...pages, each, ...wrong }))).toMatchObject({
    result: 'error',
    error: { code },
  });
  expect(seen).toEqual([]);
});
