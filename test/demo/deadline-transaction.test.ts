import { deadlineTransaction } from '../../src/handlers/deadline-transaction.ts';
import { explorePurge } from '../../src/handlers/explore-purge.ts';
import {
  addOrganisation,
  addStack,
  contextOf,
  describe,
  expect,
  explorePaths,
  markDeleted,
  primaryOf,
  test,
  whileLocked,
} from './support/platform.ts';

const REMAINING_MS = 200;

describe("a handler's transaction", () => {
  test('stops waiting for a lock when its deadline comes', async ({ platform }) => {
    const stackId = await addStack(platform, await addOrganisation(platform), 'deleted');
    await markDeleted(platform, stackId);
    const purge = explorePurge({ primary: primaryOf(platform) });
    await whileLocked(
      platform,
      (holder) =>
        holder
          .selectFrom('explore_rows')
          .select('path')
          .where('stack_id', '=', stackId)
          .forUpdate()
          .execute(),
      async () => {
        const context = contextOf('explore_purge', { remainingMs: REMAINING_MS });
        await expect(purge({ stackId }, context)).rejects.toThrow('statement timeout');
      },
    );
    expect(await explorePaths(platform, stackId)).toEqual(['license', 'version']);
  });

  test('commits nothing once the signal has fired, and says why with its reason', async ({ platform }) => {
    const organisation = await addOrganisation(platform);
    const controller = new AbortController();
    const reason = new Error('the deadline');
    const run = deadlineTransaction(
      primaryOf(platform),
      contextOf('seat_cap_audit', { signal: controller.signal }),
      async (tx) => {
        await tx.deleteFrom('organisations').where('id', '=', organisation).execute();
        controller.abort(reason);
      },
    );
    await expect(run).rejects.toBe(reason);
    expect(await platform.selectFrom('organisations').select('id').execute()).toHaveLength(1);
  });

  test('starts nothing when the signal has fired before', async ({ platform }) => {
    const reason = new Error('the deadline');
    let started = false;
    const run = deadlineTransaction(
      primaryOf(platform),
      contextOf('seat_cap_audit', { signal: AbortSignal.abort(reason) }),
      async () => {
        started = true;
      },
    );
    await expect(run).rejects.toBe(reason);
    expect(started).toBe(false);
  });
});
