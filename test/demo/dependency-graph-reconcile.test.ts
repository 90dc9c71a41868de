import { randomUUID } from 'node:crypto';
import type { DemoDatabase } from '../../src/demo/schema.ts';
import { dependencyGraphReconcile } from '../../src/handlers/dependency-graph-reconcile.ts';
import {
  addDeployment,
  addOrganisation,
  addStack,
  contextOf,
  describe,
  expect,
  primaryOf,
  test,
  untilWaiting,
  whileLocked,
} from './support/platform.ts';

const context = () => contextOf('dependency_graph_reconcile');

function edgesFrom(platform: DemoDatabase, stackId: string) {
  return platform
    .selectFrom('edges')
    .select(['to_stack_id', 'from_name', 'generation'])
    .where('from_stack_id', '=', stackId)
    .orderBy('to_stack_id')
    .execute();
}

/** Generation 2 depends on `first` and `both`, generation 3 on `second` and `both`. */
async function addGenerations(platform: DemoDatabase) {
  const organisation = await addOrganisation(platform);
  const stackId = await addStack(platform, organisation, 'stack');
  const first = await addStack(platform, organisation, 'first');
  const second = await addStack(platform, organisation, 'second');
  const both = await addStack(platform, organisation, 'both');
  const sorted = (...ids: string[]) => ids.sort();
  const older = { stackId, generation: 2, name: 'older name', dependsOn: sorted(first, both) };
  const newer = { stackId, generation: 3, name: 'newer name', dependsOn: sorted(second, both) };
  await addDeployment(platform, older);
  await addDeployment(platform, newer);
  const edgesOf = ({ dependsOn, name, generation }: typeof older) =>
    dependsOn.map((to) => ({ to_stack_id: to, from_name: name, generation }));
  return {
    stackId,
    both,
    older: { ...older, edges: edgesOf(older) },
    newer: { ...newer, edges: edgesOf(newer) },
  };
}

const taskFor = ({ stackId, generation }: { stackId: string; generation: number }) => ({
  stackId,
  generation,
});

describe('dependency_graph_reconcile', () => {
  test('publishes the edges that the deployment of its generation declared', async ({ platform }) => {
    const { stackId, older } = await addGenerations(platform);
    const reconcile = dependencyGraphReconcile({ primary: primaryOf(platform) });
    expect(await reconcile(taskFor(older), context())).toBe('done');
    expect(await edgesFrom(platform, stackId)).toEqual(older.edges);
  });

  test('a newer generation replaces every edge of the older one', async ({ platform }) => {
    const { stackId, older, newer } = await addGenerations(platform);
    const reconcile = dependencyGraphReconcile({ primary: primaryOf(platform) });
    await reconcile(taskFor(older), context());
    await reconcile(taskFor(newer), context());
    expect(await edgesFrom(platform, stackId)).toEqual(newer.edges);
  });

  test('an older generation that runs after a newer one drops itself', async ({ platform }) => {
    const { stackId, older, newer } = await addGenerations(platform);
    const reconcile = dependencyGraphReconcile({ primary: primaryOf(platform) });
    await reconcile(taskFor(newer), context());
    expect(await reconcile(taskFor(older), context())).toBe('done');
    expect(await edgesFrom(platform, stackId)).toEqual(newer.edges);
  });

  test('the same generation run again, or twice at once, leaves the same edges', async ({ platform }) => {
    const { stackId, newer } = await addGenerations(platform);
    const reconcile = dependencyGraphReconcile({ primary: primaryOf(platform) });
    await Promise.all([reconcile(taskFor(newer), context()), reconcile(taskFor(newer), context())]);
    await reconcile(taskFor(newer), context());
    expect(await edgesFrom(platform, stackId)).toEqual(newer.edges);
  });

  test('a newer generation that waited for the older one replaces what that one has just published', async ({
    platform,
  }) => {
    const { stackId, both, older, newer } = await addGenerations(platform);
    const reconcile = dependencyGraphReconcile({ primary: primaryOf(platform) });
    const runs = await startBehind(platform, both, [
      () => reconcile(taskFor(older), context()),
      () => reconcile(taskFor(newer), context()),
    ]);
    expect(await Promise.all(runs)).toEqual(['done', 'done']);
    expect(await edgesFrom(platform, stackId)).toEqual(newer.edges);
  });

  test('an older generation that waited for the newer one drops itself', async ({ platform }) => {
    const { stackId, both, older, newer } = await addGenerations(platform);
    const reconcile = dependencyGraphReconcile({ primary: primaryOf(platform) });
    const runs = await startBehind(platform, both, [
      () => reconcile(taskFor(newer), context()),
      () => reconcile(taskFor(older), context()),
    ]);
    expect(await Promise.all(runs)).toEqual(['done', 'done']);
    expect(await edgesFrom(platform, stackId)).toEqual(newer.edges);
  });

  test('of many generations at once, in any order, the newest one stands', async ({ platform }) => {
    const { stackId, both, newer } = await addGenerations(platform);
    const reconcile = dependencyGraphReconcile({ primary: primaryOf(platform) });
    const generations = [4, 5, 6, 7, 8, 9, 10, 11];
    for (const generation of generations) {
      const dependsOn = generation % 2 === 0 ? [both] : newer.dependsOn;
      await addDeployment(platform, { stackId, generation, name: `name ${generation}`, dependsOn });
    }
    const order = [7, 11, 4, 9, 5, 10, 6, 8, 11, 4];
    await Promise.all(order.map((generation) => reconcile({ stackId, generation }, context())));
    const edges = await edgesFrom(platform, stackId);
    expect(edges.map(({ from_name }) => from_name)).toEqual(['name 11', 'name 11']);
  });

  test('is done for a stack that is gone', async ({ platform }) => {
    const reconcile = dependencyGraphReconcile({ primary: primaryOf(platform) });
    expect(await reconcile({ stackId: randomUUID(), generation: 1 }, context())).toBe('done');
  });
});

/**
 * Starts the runs one after the other, the first stopped between its guard and its commit (its new edge needs the
 * row of `target`, which is locked), the others behind it. They go on when this resolves.
 */
async function startBehind<Answer>(
  platform: DemoDatabase,
  target: string,
  starts: readonly (() => Promise<Answer> | Answer)[],
): Promise<(Promise<Answer> | Answer)[]> {
  return whileLocked(
    platform,
    (holder) => holder.selectFrom('stacks').select('id').where('id', '=', target).forUpdate().execute(),
    async () => {
      const runs: (Promise<Answer> | Answer)[] = [];
      for (const start of starts) {
        runs.push(start());
        await untilWaiting(platform, runs.length);
      }
      return runs;
    },
  );
}
