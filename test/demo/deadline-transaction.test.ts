import { deadlineTransaction } from '../../src/handlers/deadline-transaction.ts';
import { explorePurge } from '../../src/handlers/explore-purge.ts';
import {
  addOrganisation,
  addStack,
  contextOf,
  describe,
  expect,
  indexedOf,
  markDeleted,
  primaryOf,
  putInIndex,
  test,
  untilWaiting,
  whileLocked,
} from './support/platform.ts';

const REMAINING_MS = 200;

describe("a handler's transaction", () => {
  test('stops waiting for a lock when its deadline comes', async ({ stores, services }) => {
    const stack = await addStack(stores, await addOrganisation(stores.db), 'deleted');
    const { stackId } = stack;
    await putInIndex(stores.explore, stack);
    await markDeleted(stores.db, stackId);
    await whileLocked(
      stores.explore,
      (holder) =>
        holder.selectFrom('resources').select('path').where('stack_id', '=', stackId).forUpdate().execute(),
      async () => {
        const context = contextOf('explore_purge', { remainingMs: REMAINING_MS });
        await expect(explorePurge(services)({ stackId }, context)).rejects.toThrow('statement timeout');
      },
    );
    expect(await indexedOf(stores.explore, stackId)).toHaveLength(2);
  });

  test('stops waiting for a lock when its signal fires, long before the deadline', async ({ platform }) => {
    const organisation = await addOrganisation(platform);
    const controller = new AbortController();
    const reason = new Error('the replica is stopping');
    await whileLocked(
      platform,
      (holder) => holder.selectFrom('organisations').select('id').forUpdate().execute(),
      async () => {
        const run = deadlineTransaction(
          primaryOf(platform),
          contextOf('seat_cap_audit', { signal: controller.signal }),
          (tx) => tx.deleteFrom('organisations').where('id', '=', organisation).execute(),
        );
        const ended = expect(run).rejects.toBe(reason);
        await untilWaiting(platform, 1);
        controller.abort(reason);
        await ended;
      },
    );
    expect(await platform.selectFrom('organisations').select('id').execute()).toHaveLength(1);
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
