import { randomUUID } from 'node:crypto';
import { resourceIndexReindex } from '../../src/handlers/resource-index-reindex.ts';
import {
  addDeployment,
  addOrganisation,
  addStack,
  contextOf,
  describe,
  expect,
  indexedOf,
  noSignal,
  test,
  untilWaiting,
  whileLocked,
} from './support/platform.ts';

const context = () => contextOf('resource_index_reindex');
const resources = (value: string) => [{ path: 'bucket', value }];

describe('resource_index_reindex', () => {
  test('publishes what the run of its generation has found', async ({ stores, services }) => {
    const stack = await addStack(stores, await addOrganisation(stores.db), 'stack', {
      resources: resources('first'),
    });
    const reindex = resourceIndexReindex(services);
    expect(await reindex({ stackId: stack.stackId, generation: 1 }, context())).toBe('done');
    expect(await indexedOf(stores.explore, stack.stackId)).toEqual(['bucket=first']);
  });

  test('an older generation that runs after a newer one drops itself', async ({ stores, services }) => {
    const stack = await addStack(stores, await addOrganisation(stores.db), 'stack');
    await addDeployment(stores, stack, { generation: 2, resources: resources('newer') });
    const reindex = resourceIndexReindex(services);
    for (const generation of [2, 1, 2, 1]) await reindex({ stackId: stack.stackId, generation }, context());
    expect(await indexedOf(stores.explore, stack.stackId)).toEqual(['bucket=newer']);
  });

  test('an older generation that waited for a newer one on another replica drops itself', async ({
    stores,
    services,
  }) => {
    const stack = await addStack(stores, await addOrganisation(stores.db), 'stack');
    await addDeployment(stores, stack, { generation: 2, resources: resources('newer') });
    const { stackId } = stack;
    const reindex = resourceIndexReindex(services);
    await reindex({ stackId, generation: 1 }, context());
    const { stale } = await whileLocked(
      stores.explore,
      async (newer) => {
        await newer
          .updateTable('projections')
          .set({ generation: 2 })
          .where('stack_id', '=', stackId)
          .execute();
        await newer.deleteFrom('resources').where('stack_id', '=', stackId).execute();
        await newer
          .insertInto('resources')
          .values({ stack_id: stackId, path: 'bucket', value: 'newer' })
          .execute();
      },
      async () => {
        const stale = reindex({ stackId, generation: 1 }, context());
        await untilWaiting(stores.explore, 1);
        return { stale };
      },
    );
    expect(await stale).toBe('done');
    expect(await indexedOf(stores.explore, stackId)).toEqual(['bucket=newer']);
  });

  test('of many generations at once, in any order, the newest one stands', async ({ stores, services }) => {
    const stack = await addStack(stores, await addOrganisation(stores.db), 'stack');
    for (const generation of [2, 3, 4, 5, 6]) {
      await addDeployment(stores, stack, { generation, resources: resources(`of ${generation}`) });
    }
    const reindex = resourceIndexReindex(services);
    const order = [4, 6, 2, 5, 3, 6, 1, 2];
    await Promise.all(order.map((generation) => reindex({ stackId: stack.stackId, generation }, context())));
    expect(await indexedOf(stores.explore, stack.stackId)).toEqual(['bucket=of 6']);
  });

  test('publishes more resources than a statement has parameters, and each path once', async ({
    stores,
    services,
  }) => {
    const many = Array.from({ length: 70_000 }, (_, at) => ({ path: `resource/${at}`, value: 'x' }));
    const stack = await addStack(stores, await addOrganisation(stores.db), 'pathological', {
      resources: [...many, { path: 'resource/0', value: 'again' }],
    });
    await resourceIndexReindex(services)({ stackId: stack.stackId, generation: 1 }, context());
    expect(await indexedOf(stores.explore, stack.stackId)).toHaveLength(70_000);
  });

  test('is done for a stack that is gone', async ({ services }) => {
    const gone = { stackId: randomUUID(), generation: 1 };
    expect(await resourceIndexReindex(services)(gone, context())).toBe('done');
  });

  test('is done when a newer generation has taken the analysis away, and fails when none has', async ({
    stores,
    services,
  }) => {
    const stack = await addStack(stores, await addOrganisation(stores.db), 'stack');
    const key = await addDeployment(stores, stack, { generation: 2 });
    await stores.objects.deleteKeys([key], noSignal);
    const reindex = () =>
      resourceIndexReindex(services)({ stackId: stack.stackId, generation: 2 }, context());
    await expect(reindex()).rejects.toThrow('analysis of stack');
    await addDeployment(stores, stack, { generation: 3 });
    expect(await reindex()).toBe('done');
  });

  test('an object that is no analysis is no matter of trying again', async ({ stores, services }) => {
    const stack = await addStack(stores, await addOrganisation(stores.db), 'stack');
    for (const [at, text] of ['', '{"resources": 1}', 'null', '<html>'].entries()) {
      const generation = at + 2;
      const key = await addDeployment(stores, stack, { generation });
      await stores.objects.write(key, text, noSignal);
      const run = resourceIndexReindex(services)({ stackId: stack.stackId, generation }, context());
      await expect(run).rejects.toMatchObject({ name: 'SkipRetry' });
    }
  });
});
