import { sweepFleet } from '../../src/demo/sweep.ts';
import { createHandlers } from '../../src/handlers/index.ts';
import { drain } from '../../src/testing/index.ts';
import { countTasks } from './support/evidence.ts';
import { addOrganisation, addStack, describe, expect, test } from './support/platform.ts';

const PER_ORGANISATION = ['dependency_graph_rebuild', 'explore_diagnostics', 'resource_index_rebuild'];

function eachFor(organisations: number): Record<string, number> {
  return Object.fromEntries(PER_ORGANISATION.map((type) => [type, organisations]));
}

describe('a sweep over the fleet', () => {
  test('enqueues one rebuild of each kind for every organisation, all due at once', async ({ platform }) => {
    for (let at = 0; at < 5; at += 1) await addOrganisation(platform);
    const sweep = await sweepFleet(platform);
    expect(sweep).toMatchObject({ organisations: 5, underWay: 0 });
    expect(sweep.tasks).toHaveLength(15);
    expect(await countTasks(platform)).toEqual(eachFor(5));
    const due = await platform
      .withSchema('taskq')
      .selectFrom('async_tasks' as never)
      .select('run_at' as never)
      .distinct()
      .execute();
    expect(due).toHaveLength(1);
  });

  test('adds no rebuild while one of the sweep before is live, however many sweep at once', async ({
    platform,
  }) => {
    for (let at = 0; at < 3; at += 1) await addOrganisation(platform);
    const sweeps = await Promise.all([sweepFleet(platform), sweepFleet(platform), sweepFleet(platform)]);
    expect(sweeps.reduce((sum, { tasks }) => sum + tasks.length, 0)).toBe(9);
    expect(sweeps.map(({ underWay }) => underWay).sort()).toEqual([0, 6, 6]);
    expect(await countTasks(platform)).toEqual(eachFor(3));
  });

  test('enqueues them again when those of the sweep before are done', async ({ stores, services }) => {
    await addStack(stores, await addOrganisation(stores.db), 'stack');
    for (let at = 0; at < 2; at += 1) {
      expect(await sweepFleet(stores.db)).toMatchObject({ organisations: 1, underWay: 0 });
      const runs = await drain({ db: stores.db, handlers: createHandlers(services) });
      expect(runs.map(({ outcome }) => outcome)).toEqual(['success', 'success', 'success']);
    }
  });

  test('a scan that waits takes over the newest generation', async ({ stores, services }) => {
    const { db, explore } = stores;
    await addOrganisation(db);
    for (let at = 0; at < 3; at += 1) await sweepFleet(db);
    await drain({ db, handlers: createHandlers(services) });
    expect(await explore.selectFrom('diagnostics').select('generation').execute()).toEqual([
      { generation: 3 },
    ]);
  });
});
