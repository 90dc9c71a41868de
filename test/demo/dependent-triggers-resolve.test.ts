import { randomUUID } from 'node:crypto';
import type { DemoDatabase } from '../../src/demo/schema.ts';
import { dependentTriggersResolve } from '../../src/handlers/dependent-triggers-resolve.ts';
import { TaskqError } from '../../src/index.ts';
import {
  addDeployment,
  addOrganisation,
  addStack,
  contextOf,
  describe,
  expect,
  markDeleted,
  test,
} from './support/platform.ts';

const context = () => contextOf('dependent_triggers_resolve');

async function requested(platform: DemoDatabase): Promise<string[]> {
  const rows = await platform
    .selectFrom('triggered_runs')
    .innerJoin('stacks', 'stacks.id', 'triggered_runs.stack_id')
    .select(['stacks.name', 'upstream_generation'])
    .orderBy('stacks.name')
    .orderBy('upstream_generation')
    .execute();
  return rows.map(({ name, upstream_generation }) => `${name} for ${upstream_generation}`);
}

/** Two live stacks and a deleted one depend on `base`, a third live one does not; `base` has two generations. */
const withDependents = test.extend<{ base: string }>({
  base: async ({ stores }, use) => {
    const organisation = await addOrganisation(stores.db);
    const base = await addStack(stores, organisation, 'base');
    await addDeployment(stores, base, { generation: 2, name: 'base' });
    for (const name of ['above', 'also above', 'deleted', 'beside']) {
      const { stackId } = await addStack(stores, organisation, name);
      const edge = { from_stack_id: stackId, to_stack_id: base.stackId, from_name: name, generation: 1 };
      if (name !== 'beside') await stores.db.insertInto('edges').values(edge).execute();
      if (name === 'deleted') await markDeleted(stores.db, stackId);
    }
    await use(base.stackId);
  },
});

describe('dependent_triggers_resolve', () => {
  withDependents('requests a run of each live stack above', async ({ base, platform, services }) => {
    const resolve = dependentTriggersResolve(services);
    expect(await resolve({ stackId: base, generation: 1 }, context())).toBe('done');
    expect(await requested(platform)).toEqual(['above for 1', 'also above for 1']);
  });

  withDependents(
    'run again, or several times at once, it requests each once',
    async ({ base, platform, services }) => {
      const resolve = dependentTriggersResolve(services);
      const runs = Array.from({ length: 4 }, () => resolve({ stackId: base, generation: 1 }, context()));
      await Promise.all(runs);
      await resolve({ stackId: base, generation: 1 }, context());
      expect(await requested(platform)).toEqual(['above for 1', 'also above for 1']);
    },
  );

  withDependents(
    'an older deployment that comes after a newer one requests nothing',
    async ({ base, platform, services }) => {
      const resolve = dependentTriggersResolve(services);
      await resolve({ stackId: base, generation: 2 }, context());
      expect(await resolve({ stackId: base, generation: 1 }, context())).toBe('done');
      expect(await requested(platform)).toEqual(['above for 2', 'also above for 2']);
    },
  );

  withDependents(
    'a worker that has lost its lease leaves no request',
    async ({ base, platform, services }) => {
      const lost = { ...context(), complete: () => Promise.reject(new TaskqError('LEASE_LOST')) };
      const run = dependentTriggersResolve(services)({ stackId: base, generation: 1 }, lost);
      await expect(run).rejects.toMatchObject({ code: 'LEASE_LOST' });
      expect(await requested(platform)).toEqual([]);
      await dependentTriggersResolve(services)({ stackId: base, generation: 1 }, context());
      expect(await requested(platform)).toHaveLength(2);
    },
  );

  test('is done for a stack that is gone', async ({ services }) => {
    const gone = { stackId: randomUUID(), generation: 1 };
    expect(await dependentTriggersResolve(services)(gone, context())).toBe('done');
  });
});
