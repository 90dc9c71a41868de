import { prefixDelete } from '../../src/handlers/prefix-delete.ts';
import { stackPrefix } from '../../src/handlers/storage-paths.ts';
import {
  addDeployment,
  addOrganisation,
  addStack,
  contextOf,
  describe,
  expect,
  keysBelow,
  markDeleted,
  putObjects,
  test,
} from './support/platform.ts';

const context = () => contextOf('prefix_delete');

describe('prefix_delete', () => {
  test('is done without deleting when the prefix belongs to a live stack', async ({ stores, services }) => {
    const stack = await addStack(stores, await addOrganisation(stores.db), 'live');
    const prefix = stackPrefix(stack.storageKey);
    const before = await keysBelow(stores.objects, prefix);
    expect(await prefixDelete(services)({ prefix }, context())).toBe('done');
    expect(before).toHaveLength(1);
    expect(await keysBelow(stores.objects, prefix)).toEqual(before);
  });

  test("deletes what a deleted stack left behind, and no other stack's", async ({ stores, services }) => {
    const organisation = await addOrganisation(stores.db);
    const deleted = await addStack(stores, organisation, 'deleted');
    const other = await addStack(stores, organisation, 'other');
    await markDeleted(stores.db, deleted.stackId);
    const prefix = stackPrefix(deleted.storageKey);
    expect(await prefixDelete(services)({ prefix }, context())).toBe('done');
    expect(await keysBelow(stores.objects, prefix)).toEqual([]);
    expect(await keysBelow(stores.objects, stackPrefix(other.storageKey))).toHaveLength(1);
  });

  test('deletes the old prefix of a stack that came back under another key', async ({ stores, services }) => {
    const stack = await addStack(stores, await addOrganisation(stores.db), 'came back');
    const generation = (await markDeleted(stores.db, stack.stackId)) + 1;
    const storageKey = `${stack.storageKey}-again`;
    const comeBack = { deleted_at: null, storage_key: storageKey };
    await stores.db.updateTable('stacks').set(comeBack).where('id', '=', stack.stackId).execute();
    await addDeployment(stores, { ...stack, storageKey }, { generation });

    const prefixes = [stackPrefix(stack.storageKey), stackPrefix(storageKey)];
    for (const prefix of prefixes) await prefixDelete(services)({ prefix }, context());
    const left = await Promise.all(prefixes.map((prefix) => keysBelow(stores.objects, prefix)));
    expect(left.map((keys) => keys.length)).toEqual([0, 1]);
  });

  test('a prefix that never had a stack is cleaned up: its deployment came to nothing', async ({
    services,
  }) => {
    await putObjects(services.objects, ['stacks/nobody/runs/1/analysis.json']);
    await prefixDelete(services)({ prefix: 'stacks/nobody/' }, context());
    expect(await keysBelow(services.objects, 'stacks/nobody/')).toEqual([]);
  });

  test('run again, or twice at once, it is done and changes nothing more', async ({ services }) => {
    await putObjects(services.objects, ['stacks/gone/1', 'stacks/gone/2', 'stacks/gone-not/1']);
    const run = () => prefixDelete(services)({ prefix: 'stacks/gone/' }, context());
    expect(await Promise.all([run(), run()])).toEqual(['done', 'done']);
    expect(await run()).toBe('done');
    expect(await keysBelow(services.objects, 'stacks/')).toEqual(['stacks/gone-not/1']);
  });
});
