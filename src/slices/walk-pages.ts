import type { Duration } from '../domain/duration.ts';
import { TaskqError } from '../domain/errors.ts';
import type { HandlerResult, SlicedHandlerContext } from '../domain/handler.ts';
import { SLICE_BUDGET_MS_DEFAULT } from '../domain/limits.ts';
import { cursorRefused, type SliceBudget, type SliceProgress } from '../domain/slice.ts';

/** What one read answers. */
export interface Page<Position, Item> {
  readonly items: readonly Item[];
  /** Where the next page begins; undefined after the last one. */
  readonly next: Position | undefined;
  /** How many items the walk has in all, when the read knows it. */
  readonly total?: number | undefined;
}

interface WalkBase<Cursor, NextCursor, Position, Item> {
  /** Where this slice begins; `cursor` is undefined in the first. */
  from(cursor: Cursor | undefined): Position;
  /** The other way: what is saved, so that the next slice begins at `position`. */
  cursorOf(position: Position): NextCursor;
  /** The page that begins at `position`. */
  readPage(position: Position, signal: AbortSignal): Promise<Page<Position, Item>>;
  /** How long one slice goes on, counted from the start of the handler. Default 2 min. */
  readonly budget?: Duration;
  /** Ends the slice after so many pages, whatever is left of its budget. Default: any number. */
  readonly pagesPerSlice?: number;
  /** Further fields of the line that is logged when a slice stops early: `{ org_id: 'acme' }`. */
  readonly fields?: Readonly<Record<string, unknown>>;
}

interface WalkItems<Item, Position> {
  /** The work of one item; one after the other. */
  each(item: Item, signal: AbortSignal): Promise<unknown>;
  /**
   * The position right behind an item. With it a slice may end inside a page, and goes on behind the last item that
   * was done. Without it, only between pages: the items of an unfinished page are done again.
   */
  after?(item: Item): Position;
}

interface WalkWholePages<Item> {
  /** The work of one page. */
  eachPage(items: readonly Item[], signal: AbortSignal): Promise<unknown>;
}

export type WalkOptions<Cursor, NextCursor, Position, Item> = WalkBase<Cursor, NextCursor, Position, Item> &
  (WalkItems<Item, Position> | WalkWholePages<Item>);

/**
 * One slice of a walk through pages: reads them one after the other, does their work, and saves the cursor once, when
 * the budget is spent. Return what it answers: `return walkPages(context, { … })`.
 *
 * Whatever stops it after it has come further, it saves how far that was and answers `'continue'`: a page that cannot
 * be read, an item whose work throws (both reported as `slice_stopped_early`), the deadline, a shutdown. Before that
 * there is nothing to save, and the error is thrown on: an attempt is burnt, and the task backs off. So a passing
 * fault costs one slice, and an item that always fails meets its slices' first step until the task is a dead letter.
 * @throws what `readPage` and the work throw before the slice has come further; TaskqError `LEASE_LOST` when another
 *   worker holds the task
 */
export async function walkPages<Cursor, NextCursor, Position, Item>(
  context: SlicedHandlerContext<Cursor, NextCursor>,
  options: WalkOptions<Cursor, NextCursor, Position, Item>,
): Promise<HandlerResult> {
  const { pagesPerSlice = Number.POSITIVE_INFINITY } = options;
  if (!(pagesPerSlice >= 1)) {
    throw new TaskqError(
      'OPTION_INVALID',
      `walkPages of ${context.type}: pagesPerSlice must be at least 1, received ${String(pagesPerSlice)}`,
    );
  }
  const walk = new Walk(context, options);
  try {
    while (!walk.isOver(pagesPerSlice)) {
      const page = await walk.read();
      await walk.work(page);
    }
  } catch (error) {
    return walk.stopped(error);
  }
  if (walk.position === undefined) return 'done';
  await walk.save();
  return 'continue';
}

class Walk<Cursor, NextCursor, Position, Item> {
  readonly #context: SlicedHandlerContext<Cursor, NextCursor>;
  readonly #options: WalkOptions<Cursor, NextCursor, Position, Item>;
  readonly #budget: SliceBudget;
  /** Everything before it is done; undefined when all is. */
  position: Position | undefined;
  #moved = false;
  #pagesRead = 0;
  #isReading = false;
  #done: number;
  #total: number | undefined;

  constructor(
    context: SlicedHandlerContext<Cursor, NextCursor>,
    options: WalkOptions<Cursor, NextCursor, Position, Item>,
  ) {
    this.#context = context;
    this.#options = options;
    this.#budget = context.sliceBudget(options.budget ?? SLICE_BUDGET_MS_DEFAULT);
    this.position = options.from(context.cursor);
    this.#done = context.progress?.done ?? 0;
    this.#total = context.progress?.total;
  }

  /** A slice that has not moved goes on: one that ended there would repeat itself for ever. */
  isOver(pagesPerSlice: number): boolean {
    if (this.position === undefined) return true;
    return this.#moved && (this.#pagesRead >= pagesPerSlice || this.#budget.isSpent());
  }

  async read(): Promise<Page<Position, Item>> {
    const { signal } = this.#context;
    signal.throwIfAborted();
    this.#isReading = true;
    const page = await this.#options.readPage(this.position as Position, signal);
    this.#isReading = false;
    this.#pagesRead += 1;
    this.#total = page.total ?? this.#total;
    return page;
  }

  async work({ items, next }: Page<Position, Item>): Promise<void> {
    const { signal } = this.#context;
    const options = this.#options;
    if ('eachPage' in options) {
      signal.throwIfAborted();
      await options.eachPage(items, signal);
      this.#moveTo(next, items.length);
      return;
    }
    let uncounted = 0;
    for (const [index, item] of items.entries()) {
      signal.throwIfAborted();
      await options.each(item, signal);
      uncounted += 1;
      const isLast = index === items.length - 1;
      if (options.after === undefined || isLast) continue;
      this.#moveTo(options.after(item), uncounted);
      uncounted = 0;
      if (this.#budget.isSpent()) return;
    }
    this.#moveTo(next, uncounted);
  }

  async save(cause?: unknown): Promise<NextCursor> {
    const cursor = this.#options.cursorOf(this.position as Position);
    const progress: SliceProgress = { done: this.#done, total: this.#total };
    if (await this.#context.tryAdvanceCursor(cursor, progress)) return cursor;
    throw cursorRefused(this.#context.id, this.#context.type, cause);
  }

  /** After a read or some work that threw. */
  async stopped(error: unknown): Promise<HandlerResult> {
    if (!this.#moved) throw error;
    const cursor = await this.save(error);
    // An abort is no fault of the page, and the outcome tells of it.
    if (!this.#context.signal.aborted) {
      this.#context.stoppedEarly({
        on: this.#isReading ? 'page_read' : 'page_work',
        error,
        cursor,
        pagesRead: this.#pagesRead,
        fields: this.#options.fields,
      });
    }
    return 'continue';
  }

  #moveTo(position: Position | undefined, items: number): void {
    this.position = position;
    this.#moved = true;
    this.#done += items;
  }
}
