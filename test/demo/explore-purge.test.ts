import { explorePurge } from '../../src/handlers/explore-purge.ts';
import { resourceIndexReindex } from '../../src/handlers/resource-index-reindex.ts';
import {
  addDeployment,
  addOrganisation,
  addStack,
  contextOf,
  describe,
  expect,
  indexedOf,
  markDeleted,
  putInIndex,
  test,
  untilWaiting,
  whileLocked,
} from './support/platform.ts';

const context = () => contextOf('explore_purge');
const PUT_THERE = ['license=put there', 'version=put there'];

describe('explore_purge', () => {
  test("removes a deleted stack's rows from Explore and no other stack's", async ({ stores, services }) => {
    const organisation = await addOrganisation(stores.db);
    const deleted = await addStack(stores, organisation, 'deleted');
    const other = await addStack(stores, organisation, 'other');
    for (const stack of [deleted, other]) {
      await putInIndex(stores.explore, stack);
      const finding = { organisation_id: organisation, stack_id: stack.stackId, rule: 'a rule', detail: '' };
      await stores.explore.insertInto('findings').values(finding).execute();
    }
    await markDeleted(stores.db, deleted.stackId);

    expect(await explorePurge(services)({ stackId: deleted.stackId }, context())).toBe('done');
    expect(await indexedOf(stores.explore, deleted.stackId)).toEqual([]);
    expect(await indexedOf(stores.explore, other.stackId)).toEqual(PUT_THERE);
    const findings = await stores.explore.selectFrom('findings').select('stack_id').execute();
    expect(findings).toEqual([{ stack_id: other.stackId }]);
  });

  test('is done without removing any when the stack is live again', async ({ stores, services }) => {
    const stack = await addStack(stores, await addOrganisation(stores.db), 'live again');
    await putInIndex(stores.explore, stack);
    expect(await explorePurge(services)({ stackId: stack.stackId }, context())).toBe('done');
    expect(await indexedOf(stores.explore, stack.stackId)).toEqual(PUT_THERE);
  });

  test('removes the rows of a stack whose own row is gone', async ({ stores, services }) => {
    const stack = await addStack(stores, await addOrganisation(stores.db), 'gone');
    await putInIndex(stores.explore, stack);
    await stores.db.deleteFrom('stacks').where('id', '=', stack.stackId).execute();
    await explorePurge(services)({ stackId: stack.stackId }, context());
    expect(await indexedOf(stores.explore, stack.stackId)).toEqual([]);
  });

  test('run again or twice at once, it is done and changes nothing more', async ({ stores, services }) => {
    const stack = await addStack(stores, await addOrganisation(stores.db), 'deleted');
    await putInIndex(stores.explore, stack);
    await markDeleted(stores.db, stack.stackId);
    const run = () => explorePurge(services)({ stackId: stack.stackId }, context());
    expect(await Promise.all([run(), run()])).toEqual(['done', 'done']);
    expect(await run()).toBe('done');
    expect(await indexedOf(stores.explore, stack.stackId)).toEqual([]);
  });

  test('an older reindex that comes after it brings nothing back', async ({ stores, services }) => {
    const stack = await addStack(stores, await addOrganisation(stores.db), 'deleted');
    await markDeleted(stores.db, stack.stackId);
    await explorePurge(services)({ stackId: stack.stackId }, context());
    const stale = { stackId: stack.stackId, generation: 1 };
    expect(await resourceIndexReindex(services)(stale, contextOf('resource_index_reindex'))).toBe('done');
    expect(await indexedOf(stores.explore, stack.stackId)).toEqual([]);
  });

  test('a stack that comes back after it has looked at the owner keeps its new rows', async ({
    stores,
    services,
  }) => {
    const stack = await addStack(stores, await addOrganisation(stores.db), 'coming back');
    const { stackId } = stack;
    await putInIndex(stores.explore, stack);
    const generation = (await markDeleted(stores.db, stackId)) + 1;
    const { purged } = await whileLocked(
      stores.explore,
      (reindex) =>
        reindex.updateTable('projections').set({ generation }).where('stack_id', '=', stackId).execute(),
      async () => {
        // The purge has found the stack deleted, and waits for the projection that the reindex is publishing.
        const purged = explorePurge(services)({ stackId }, context());
        await untilWaiting(stores.explore, 1);
        await addDeployment(stores, stack, { generation });
        // Not the promise itself: the reindex's commit would wait for it.
        return { purged };
      },
    );
    expect(await purged).toBe('done');
    expect(await indexedOf(stores.explore, stackId)).toEqual(PUT_THERE);
  });
});
