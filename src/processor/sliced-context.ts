import type { ZodType } from 'zod';
import type { HandlerContext, SlicedHandlerContext } from '../domain/handler.ts';
import { type Observer, taskFacts } from '../domain/observer.ts';
import type { Write } from '../domain/outcome.ts';
import { checkPayload } from '../domain/payload-check.ts';
import { encodePayload } from '../domain/payload-codec.ts';
import { cursorRefused, encodeProgress, makeSliceBudget, type SliceProgress } from '../domain/slice.ts';
import type { ClaimedTask } from '../domain/task.ts';
import { toError } from '../domain/thrown.ts';

/** A cursor to commit, encoded. */
export interface Advance {
  readonly cursorText: string;
  /** Undefined: the slice did not say how far it is, and what an earlier one said is no longer true. */
  readonly progressText: string | undefined;
}

export interface SliceDeps {
  readonly task: ClaimedTask;
  readonly cursorSchema: ZodType;
  readonly cursor: unknown;
  readonly observe: Observer;
  /** Milliseconds since the handler was started. */
  ranMs(): number;
  advance(advance: Advance): Promise<Write | 'unreachable'>;
}

/** The context of a type with a cursor, around what every handler has. */
export function slicedContext(
  context: HandlerContext,
  { task, cursorSchema, cursor, observe, ranMs, advance }: SliceDeps,
): SlicedHandlerContext<unknown, unknown> {
  const { id, type } = task;
  const { signal, remainingMs } = context;
  const tryAdvanceCursor = async (next: unknown, progress?: SliceProgress): Promise<boolean> => {
    await checkPayload(cursorSchema, next, type, 'cursor');
    const progressText = encodeProgress(progress, type);
    const cursorText = encodePayload(next, `cursor of ${type}`);
    return (await advance({ cursorText, progressText })) === 'written';
  };
  return {
    ...context,
    cursor,
    progress: task.progress,
    tryAdvanceCursor,
    async advanceCursor(next, progress) {
      if (!(await tryAdvanceCursor(next, progress))) throw cursorRefused(id, type);
    },
    sliceBudget: (duration) => makeSliceBudget(duration, type, { signal, ranMs, remainingMs }),
    stoppedEarly({ on, error, cursor: saved, pagesRead, fields }) {
      observe({
        kind: 'slice_stopped_early',
        task: taskFacts(task),
        on,
        error: toError(error),
        fields: { ...fields, cursor: saved, pages_read: pagesRead },
      });
    },
  };
}
