import { afterAll, beforeAll } from 'vitest';
import { openDatabase } from '../../src/demo/pool.ts';
import { createPlatformTables, type DemoDatabase } from '../../src/demo/schema.ts';
import { explorePurge } from '../../src/handlers/explore-purge.ts';

import { prefixDelete } from '../../src/handlers/prefix-delete.ts';
import { stackPrefix } from '../../src/handlers/storage-paths.ts';
import { type ReplicaPair, startReplicaPair } from '../support/replica-pair.ts';
import {
  addOrganisation,
  addStack,
  contextOf,
  describe,
  expect,
  indexedOf,
  keysBelow,
  markDeleted,
  primaryOf,
  putInIndex,
  test,
} from './support/platform.ts';

// On which lane a handler asks for the owner, shown by a real replica that has stopped replaying.

let pair: ReplicaPair;
let primary: DemoDatabase;
let replica: DemoDatabase;

beforeAll(async () => {
  pair = await startReplicaPair();
  primary = openDatabase(pair.primary.connection(), 4, 'primary');
  replica = openDatabase(pair.replica.connection(), 4, 'replica');
  await createPlatformTables(primary);
});

afterAll(async () => {
  await primary?.destroy();
  await replica?.destroy();
  await pair?.stop();
});

describe('with a replica that has not replayed the deletion of a stack', () => {
  test('explore_purge asks the primary and purges; prefix_delete asks the replica and deletes nothing yet', async ({
    services,
  }) => {
    const lanes = { ...services, primary: primaryOf(primary), replica: primaryOf(replica) };
    const stores = { db: primary, objects: services.objects };
    const stack = await addStack(stores, await addOrganisation(primary), 'deleted');
    const { stackId, storageKey } = stack;
    await putInIndex(services.explore, stack);
    await pair.caughtUp();
    await pair.pauseReplay();
    await markDeleted(primary, stackId);
    const shownByReplica = await replica
      .selectFrom('stacks')
      .select('deleted_at')
      .where('id', '=', stackId)
      .executeTakeFirst();
    expect(shownByReplica).toEqual({ deleted_at: null });

    expect(await explorePurge(lanes)({ stackId }, contextOf('explore_purge'))).toBe('done');
    expect(await indexedOf(services.explore, stackId)).toEqual([]);

    const prefix = stackPrefix(storageKey);
    const deletePrefix = () => prefixDelete(lanes)({ prefix }, contextOf('prefix_delete'));
    expect(await deletePrefix()).toBe('done');
    expect(await keysBelow(services.objects, prefix)).toHaveLength(1);

    await pair.resumeReplay();
    await pair.caughtUp();
    expect(await deletePrefix()).toBe('done');
    expect(await keysBelow(services.objects, prefix)).toEqual([]);
  });
});
