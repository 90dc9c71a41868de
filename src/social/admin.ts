import { z } from 'zod';
import { tasks } from '../../generated/social/tasks.ts';
import { AdminProblem, adminAction } from '../admin/index.ts';
import { ownerOf } from './services/asset-prefixes.ts';

// The routes that the app has beside those of taskq's admin API: createAdmin({ …, actions: socialActions }).

const sweepOrphans = adminAction({
  method: 'POST',
  path: '/s3-orphan-sweep',
  name: 'sweepOrphans',
  summary: 'Looks for objects of a prefix that no row owns, and enqueues the delete of each',
  query: z.strictObject({ prefix: z.string() }),
  answer: z.object({ taskId: z.string(), status: z.enum(['enqueued', 'existing', 'replaced']) }),
  async run({ operator }, { query: { prefix } }) {
    if (ownerOf(prefix) === undefined)
      throw new AdminProblem('NOT_FOUND', 'no such prefix is swept: it is curated, unknown, or not whole');
    const payload = { prefix, triggered: new Date() };
    const { id, status } = await operator.enqueue(tasks, { type: 'cleanup:s3_orphan_sweep', payload });
    return { taskId: id, status };
  },
});

export const socialActions = [sweepOrphans];
