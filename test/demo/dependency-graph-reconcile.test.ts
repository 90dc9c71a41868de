import { randomUUID } from 'node:crypto';
import type { DemoDatabase } from '../../src/demo/schema.ts';
import type { Stores } from '../../src/demo/stores.ts';
import { dependencyGraphReconcile } from '../../src/handlers/dependency-graph-reconcile.ts';
import {
  addDeployment,
  addOrganisation,
  addStack,
  contextOf,
  describe,
  edgesFrom,
  expect,
  markDeleted,
  test,
  untilWaiting,
  whileLocked,
} from './support/platform.ts';

const context = () => contextOf('dependency_graph_reconcile');

/** Generation 2 depends on `first` and `both`, generation 3 on `second` and `both`. */
async function addGenerations(stores: Stores) {
  const organisation = await addOrganisation(stores.db);
  const added = (name: string) => addStack(stores, organisation, name);
  const stack = await added('stack');
  const [first, second, both] = [await added('first'), await added('second'), await added('both')];
  const { stackId } = stack;
  const sorted = (...targets: (typeof stack)[]) => targets.map((target) => target.stackId).sort();
  const older = { stackId, generation: 2, name: 'older name', dependsOn: sorted(first, both) };
  const newer = { stackId, generation: 3, name: 'newer name', dependsOn: sorted(second, both) };
  await addDeployment(stores, stack, older);
  await addDeployment(stores, stack, newer);
  const edgesOf = ({ dependsOn, name, generation }: typeof older) =>
    dependsOn.map((to) => ({ to_stack_id: to, from_name: name, generation }));
  return {
    stack,
    stackId,
    both: both.stackId,
    older: { ...older, edges: edgesOf(older) },
    newer: { ...newer, edges: edgesOf(newer) },
  };
}

const taskFor = ({ stackId, generation }: { stackId: string; generation: number }) => ({
  stackId,
  generation,
});

describe('dependency_graph_reconcile', () => {
  test('publishes the edges that the deployment of its generation declared', async ({
    platform,
    stores,
    services,
  }) => {
    const { stackId, older } = await addGenerations(stores);
    const reconcile = dependencyGraphReconcile(services);
    expect(await reconcile(taskFor(older), context())).toBe('done');
    expect(await edgesFrom(platform, stackId)).toEqual(older.edges);
  });

  test('a newer generation replaces every edge of the older one', async ({ platform, stores, services }) => {
    const { stackId, older, newer } = await addGenerations(stores);
    const reconcile = dependencyGraphReconcile(services);
    await reconcile(taskFor(older), context());
    await reconcile(taskFor(newer), context());
    expect(await edgesFrom(platform, stackId)).toEqual(newer.edges);
  });

  test('an older generation that runs after a newer one drops itself', async ({
    platform,
    stores,
    services,
  }) => {
    const { stackId, older, newer } = await addGenerations(stores);
    const reconcile = dependencyGraphReconcile(services);
    await reconcile(taskFor(newer), context());
    expect(await reconcile(taskFor(older), context())).toBe('done');
    expect(await edgesFrom(platform, stackId)).toEqual(newer.edges);
  });

  test('the same generation run again, or twice at once, leaves the same edges', async ({
    platform,
    stores,
    services,
  }) => {
    const { stackId, newer } = await addGenerations(stores);
    const reconcile = dependencyGraphReconcile(services);
    await Promise.all([reconcile(taskFor(newer), context()), reconcile(taskFor(newer), context())]);
    await reconcile(taskFor(newer), context());
    expect(await edgesFrom(platform, stackId)).toEqual(newer.edges);
  });

  test('a newer generation that waited for the older one replaces what that one has just published', async ({
    platform,
    stores,
    services,
  }) => {
    const { stackId, both, older, newer } = await addGenerations(stores);
    const reconcile = dependencyGraphReconcile(services);
    const runs = await startBehind(platform, both, [
      () => reconcile(taskFor(older), context()),
      () => reconcile(taskFor(newer), context()),
    ]);
    expect(await Promise.all(runs)).toEqual(['done', 'done']);
    expect(await edgesFrom(platform, stackId)).toEqual(newer.edges);
  });

  test('an older generation that waited for the newer one drops itself', async ({
    platform,
    stores,
    services,
  }) => {
    const { stackId, both, older, newer } = await addGenerations(stores);
    const reconcile = dependencyGraphReconcile(services);
    const runs = await startBehind(platform, both, [
      () => reconcile(taskFor(newer), context()),
      () => reconcile(taskFor(older), context()),
    ]);
    expect(await Promise.all(runs)).toEqual(['done', 'done']);
    expect(await edgesFrom(platform, stackId)).toEqual(newer.edges);
  });

  test('of many generations at once, in any order, the newest one stands', async ({
    platform,
    stores,
    services,
  }) => {
    const { stack, stackId, both, newer } = await addGenerations(stores);
    const reconcile = dependencyGraphReconcile(services);
    const generations = [4, 5, 6, 7, 8, 9, 10, 11];
    for (const generation of generations) {
      const dependsOn = generation % 2 === 0 ? [both] : newer.dependsOn;
      await addDeployment(stores, stack, { generation, name: `name ${generation}`, dependsOn });
    }
    const order = [7, 11, 4, 9, 5, 10, 6, 8, 11, 4];
    await Promise.all(order.map((generation) => reconcile({ stackId, generation }, context())));
    const edges = await edgesFrom(platform, stackId);
    expect(edges.map(({ from_name }) => from_name)).toEqual(['name 11', 'name 11']);
  });

  test('an edge leads to a live stack', async ({ platform, stores, services }) => {
    const { stackId, both, older } = await addGenerations(stores);
    await markDeleted(platform, both);
    await dependencyGraphReconcile(services)(taskFor(older), context());
    const expected = older.edges.filter(({ to_stack_id }) => to_stack_id !== both);
    expect(await edgesFrom(platform, stackId)).toEqual(expected);
  });

  test('a deletion leaves no edge that starts from the stack', async ({ platform, stores, services }) => {
    const { stackId, newer } = await addGenerations(stores);
    const reconcile = dependencyGraphReconcile(services);
    await reconcile(taskFor(newer), context());
    const generation = await markDeleted(platform, stackId);
    await reconcile({ stackId, generation }, context());
    await reconcile(taskFor(newer), context());
    expect(await edgesFrom(platform, stackId)).toEqual([]);
  });

  test('is done for a stack that is gone', async ({ services }) => {
    const reconcile = dependencyGraphReconcile(services);
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
