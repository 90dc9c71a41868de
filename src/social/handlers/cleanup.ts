import type { Handlers } from '../../../generated/social/tasks.ts';
import { SkipRetry } from '../../index.ts';
import { isCurated, ownerOf } from '../services/asset-prefixes.ts';
import type { SweepPosition, SweepSlice } from '../services/assets.ts';
import type { RunLimits } from '../services/run-limits.ts';

export interface CleanupServices {
  readonly assets: AssetCleaner;
}

interface AssetCleaner {
  readonly isSwept: boolean;
  delete(key: string, signal: AbortSignal): Promise<void>;
  sweepSlice(prefix: string, from: SweepPosition | undefined, limits: RunLimits): Promise<SweepSlice>;
}

type CleanupHandlers = Pick<Handlers, 'cleanup:s3_delete' | 'cleanup:s3_orphan_sweep'>;

/** Handlers of the tasks in tasks/cleanup.ts. */
export function cleanupHandlers({ assets }: CleanupServices): CleanupHandlers {
  return {
    async 'cleanup:s3_delete'({ key }, { signal }) {
      if (key === '') throw new SkipRetry('the key is empty');
      // Nobody enqueues one of these. Should somebody, then what the staff has made must not be what pays for it.
      if (isCurated(key)) throw new SkipRetry(`${key} is curated: no task deletes it`);
      // What the store throws goes through: the queue tries again, and after the last attempt keeps a dead letter.
      await assets.delete(key, signal);
    },

    async 'cleanup:s3_orphan_sweep'({ prefix = '' }, context) {
      if (!assets.isSwept) {
        context.result({ skipped: 'the storage is not S3' });
        return 'done';
      }
      if (ownerOf(prefix) === undefined)
        throw new SkipRetry(`the prefix '${prefix}' is not one that is swept`);
      const { isEnd, ...position } = await assets.sweepSlice(prefix, context.cursor, context);
      if (isEnd) {
        context.result({ listed: position.listed, orphans: position.orphans });
        return 'done';
      }
      await context.advanceCursor(position);
      return 'continue';
    },
  };
}
