import { enqueue } from '../../generated/tasks.ts';
import type { Stores } from '../../src/demo/stores.ts';
import { createHandlers, type HandlerServices, type ObjectStore } from '../../src/handlers/index.ts';
import { drain, runTask } from '../../src/testing/index.ts';
import {
  type AddedStack,
  addDeployment,
  addOrganisation,
  addStack,
  describe,
  expect,
  indexedOf,
  markDeleted,
  noSignal,
  putInIndex,
  test,
} from './support/platform.ts';

const REBUILDS = ['resource_index_rebuild', 'dependency_graph_rebuild'] as const;
/** So short that each slice ends behind its first stack. */
const ONE_STACK = '1ms';

/** So many stacks, each of which depends on the first; in the order of their ids. */
async function addStacks(stores: Stores, organisationId: string, count: number): Promise<AddedStack[]> {
  const base = await addStack(stores, organisationId, 'base');
  const added = [base];
  for (let at = 1; at < count; at += 1) {
    added.push(await addStack(stores, organisationId, `stack ${at}`, { dependsOn: [base.stackId] }));
  }
  return added.sort((a, b) => (a.stackId < b.stackId ? -1 : 1));
}

/** The ids of all stacks that the index or the graph knows. */
async function published({ db, explore }: Stores, type: (typeof REBUILDS)[number]): Promise<string[]> {
  const rows =
    type === 'resource_index_rebuild'
      ? await explore.selectFrom('resources').select('stack_id as id').distinct().execute()
      : await db.selectFrom('edges').select('from_stack_id as id').distinct().execute();
  return rows.map(({ id }) => id).sort();
}

/** The same store, with some reads that fail or take long. */
function readingThrough(objects: ObjectStore, read: ObjectStore['read']): ObjectStore {
  return {
    read,
    write: objects.write.bind(objects),
    listPage: objects.listPage.bind(objects),
    deleteKeys: objects.deleteKeys.bind(objects),
  };
}

function failingFor(services: HandlerServices, { storageKey }: AddedStack): HandlerServices {
  const read: ObjectStore['read'] = (key, signal) =>
    key.includes(storageKey)
      ? Promise.reject(new Error('the store does not answer'))
      : services.objects.read(key, signal);
  return { ...services, objects: readingThrough(services.objects, read) };
}

describe.for(REBUILDS)('%s', (type) => {
  test('publishes every live stack of one organisation, and no other', async ({ stores, services }) => {
    const organisationId = await addOrganisation(stores.db);
    const stacks = await addStacks(stores, organisationId, 6);
    await addStacks(stores, await addOrganisation(stores.db), 2);
    const run = await runTask(createHandlers(services), type, { organisationId });
    expect(run).toMatchObject({ result: 'done', outcome: 'success', cursor: undefined });
    const [deleted] = stacks;
    const withEdges = await stores.db.selectFrom('edges').select('to_stack_id').distinct().execute();
    const expected = stacks.map(({ stackId }) => stackId);
    const isBase = (id: string) => withEdges.some(({ to_stack_id }) => to_stack_id === id);
    expect(deleted).toBeDefined();
    expect(await published(stores, type)).toEqual(
      type === 'resource_index_rebuild' ? expected : expected.filter((id) => !isBase(id)),
    );
  });

  test('goes on from its cursor, slice after slice, until all are done', async ({ stores, services }) => {
    const organisationId = await addOrganisation(stores.db);
    const stacks = await addStacks(stores, organisationId, 4);
    const handlers = createHandlers({ ...services, slice: ONE_STACK });
    const cursors: unknown[] = [];
    let run = await runTask(handlers, type, { organisationId });
    while (run.result === 'continue') {
      expect(run).toMatchObject({ outcome: 'continued' });
      cursors.push(run.cursor);
      run = await runTask(handlers, type, { organisationId }, { cursor: run.cursor as never });
    }
    expect(cursors).toEqual(stacks.slice(0, 3).map(({ stackId }) => ({ afterStackId: stackId })));
    expect(run).toMatchObject({ result: 'done' });
    expect(await published(stores, type)).toHaveLength(type === 'resource_index_rebuild' ? 4 : 3);
  });

  test('drains in the queue as one task of many claims, none of them a second attempt', async ({
    stores,
    services,
  }) => {
    const organisationId = await addOrganisation(stores.db);
    await addStacks(stores, organisationId, 4);
    await enqueue(stores.db, type, { organisationId });
    const handlers = createHandlers({ ...services, slice: ONE_STACK });
    const runs = await drain({ db: stores.db, handlers });
    expect(runs.map(({ outcome }) => outcome)).toEqual(['continued', 'continued', 'continued', 'success']);
    expect(new Set(runs.map(({ id, attempt }) => `${id} ${attempt}`)).size).toBe(1);
  });

  test('run again, twice at once, or beside single publications, it leaves the same', async ({
    stores,
    services,
  }) => {
    const organisationId = await addOrganisation(stores.db);
    const stacks = await addStacks(stores, organisationId, 8);
    const handlers = createHandlers(services);
    await runTask(handlers, type, { organisationId });
    const before = await published(stores, type);
    const singles = stacks.flatMap(({ stackId }) => [
      runTask(handlers, 'resource_index_reindex', { stackId, generation: 1 }),
      runTask(handlers, 'dependency_graph_reconcile', { stackId, generation: 1 }),
    ]);
    const both = [runTask(handlers, type, { organisationId }), runTask(handlers, type, { organisationId })];
    const runs = await Promise.all([...singles, ...both]);
    expect(runs.every(({ result }) => result === 'done')).toBe(true);
    expect(await published(stores, type)).toEqual(before);
  });

  test('a failure on the first stack is an ordinary error', async ({ stores, services }) => {
    const organisationId = await addOrganisation(stores.db);
    const [first] = await addStacks(stores, organisationId, 6);
    const handlers = createHandlers(failingFor(services, first as AddedStack));
    const run = await runTask(handlers, type, { organisationId });
    expect(run).toMatchObject({ result: 'error', outcome: 'failure', cursor: undefined });
    expect(String(run.error)).toContain('the store does not answer');
  });

  test('a failure after progress saves the cursor and continues', async ({ stores, services }) => {
    const organisationId = await addOrganisation(stores.db);
    const stacks = await addStacks(stores, organisationId, 6);
    const handlers = createHandlers(failingFor(services, stacks[5] as AddedStack));
    const run = await runTask(handlers, type, { organisationId });
    const cursor = { afterStackId: stacks[4]?.stackId };
    expect(run).toMatchObject({ result: 'continue', outcome: 'continued', cursor });
    // The next slice makes no progress, so that the attempts count up until the task is a dead letter.
    const next = await runTask(handlers, type, { organisationId }, { cursor: run.cursor as never });
    expect(next).toMatchObject({ result: 'error', outcome: 'failure', cursor: undefined });
  });

  test('a stack without a usable analysis is left out, and the others are published', async ({
    stores,
    services,
    logged,
  }) => {
    const organisationId = await addOrganisation(stores.db);
    const stacks = await addStacks(stores, organisationId, 5);
    const [unreadable, missing] = stacks as [AddedStack, AddedStack];
    const key = await addDeployment(stores, unreadable, { generation: 2 });
    await stores.objects.write(key, 'no analysis', noSignal);
    await stores.objects.deleteKeys([await addDeployment(stores, missing, { generation: 2 })], noSignal);
    const run = await runTask(createHandlers(services), type, { organisationId });
    expect(run).toMatchObject({ result: 'done' });
    expect(logged.map(({ message }) => message)).toEqual([
      'stack left out of a rebuild',
      'stack left out of a rebuild',
    ]);
    expect(logged.map(({ fields }) => fields['stack_id'])).toEqual([unreadable.stackId, missing.stackId]);
    const left = new Set([unreadable.stackId, missing.stackId]);
    expect((await published(stores, type)).some((id) => left.has(id))).toBe(false);
  });

  test('stopped in the middle it saves what it has done', async ({ stores, services }) => {
    const organisationId = await addOrganisation(stores.db);
    const stacks = await addStacks(stores, organisationId, 6);
    const stop = new AbortController();
    const last = stacks[5] as AddedStack;
    const read: ObjectStore['read'] = (key, signal) => {
      if (key.includes(last.storageKey)) stop.abort();
      return services.objects.read(key, signal);
    };
    const handlers = createHandlers({ ...services, objects: readingThrough(services.objects, read) });
    const run = await runTask(handlers, type, { organisationId }, { signal: stop.signal });
    const cursor = { afterStackId: stacks[4]?.stackId };
    expect(run).toMatchObject({ result: 'continue', outcome: 'continued', cursor });
  });

  test('a lost lease is an error, and never a continue', async ({ stores, services }) => {
    const organisationId = await addOrganisation(stores.db);
    await addStacks(stores, organisationId, 6);
    const handlers = createHandlers({ ...services, slice: ONE_STACK });
    const run = await runTask(handlers, type, { organisationId }, { leaseLost: true });
    expect(run).toMatchObject({ result: 'error', outcome: 'lost', error: { code: 'LEASE_LOST' } });
  });
});

describe('a page read that fails', () => {
  test('after progress it saves the cursor, continues, and a line says where', async ({
    stores,
    services,
    startReplica,
  }) => {
    const organisationId = await addOrganisation(stores.db);
    // One page and a little more: the second page is read when the database has gone away.
    const rows = Array.from({ length: 501 }, (_, at) => ({
      organisation_id: organisationId,
      name: `stack ${at}`,
      storage_key: `key-${at}`,
      generation: 1,
    }));
    const inserted = await stores.db.insertInto('stacks').values(rows).returning(['id', 'name']).execute();
    const key = 'stacks/shared/runs/1/analysis.json';
    await stores.objects.write(key, '{"dependsOn":[],"resources":[]}', noSignal);
    const deployments = inserted.map(({ id, name }) => ({
      stack_id: id,
      generation: 1,
      change: 'deploy' as const,
      name,
      depends_on: [],
      analysis_key: key,
    }));
    await stores.db.insertInto('deployments').values(deployments).execute();
    let reads = 0;
    const primary = new Proxy(services.primary, {
      get(target, name, receiver) {
        // The index rebuild asks the primary for pages only.
        if (name === 'transaction') reads += 1;
        if (name === 'transaction' && reads === 2) throw new Error('the primary has gone away');
        const value = Reflect.get(target, name, receiver);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
    const read: ObjectStore['read'] = async () => '{"dependsOn":[],"resources":[]}';
    const objects = readingThrough(services.objects, read);
    const handlers = createHandlers({ ...services, primary, objects });
    const { id } = await enqueue(stores.db, 'resource_index_rebuild', { organisationId });
    const { events } = await startReplica({ registry: handlers });
    const stopped = await events.first('slice_stopped_early');
    const cursor = { afterStackId: inserted.map((stack) => stack.id).sort()[499] };
    expect(stopped).toMatchObject({
      task: { id },
      on: 'page_read',
      fields: { org_id: organisationId, cursor, pages_read: 1 },
    });
    // The next slice finds the primary again and comes to the end.
    const settled = await events.first('settled', ({ outcome }) => outcome === 'success');
    expect(settled).toMatchObject({ task: { id, attempt: 1 } });
  });
});

describe('the reverse reap', () => {
  test('removes from the index what belongs to no live stack of the organisation', async ({
    stores,
    services,
  }) => {
    const organisationId = await addOrganisation(stores.db);
    const live = await addStack(stores, organisationId, 'live');
    const deleted = await addStack(stores, organisationId, 'deleted');
    const gone = await addStack(stores, organisationId, 'gone');
    const other = await addStack(stores, await addOrganisation(stores.db), "another organisation's");
    for (const stack of [live, deleted, gone, other]) await putInIndex(stores.explore, stack);
    await markDeleted(stores.db, deleted.stackId);
    await markDeleted(stores.db, other.stackId);
    await stores.db.deleteFrom('stacks').where('id', '=', gone.stackId).execute();

    await runTask(createHandlers(services), 'resource_index_rebuild', { organisationId });
    const expected = [live.stackId, other.stackId].sort();
    expect(await published(stores, 'resource_index_rebuild')).toEqual(expected);
    // A reindex of before the deletion, late: the projection has stayed behind and refuses it.
    const stale = { stackId: deleted.stackId, generation: 1 };
    await stores.explore.updateTable('projections').set({ generation: 2 }).execute();
    await runTask(createHandlers(services), 'resource_index_reindex', stale);
    expect(await indexedOf(stores.explore, deleted.stackId)).toEqual([]);
  });

  test('removes edges of deleted stacks at both ends, and restores those to a stack that came back', async ({
    stores,
    services,
  }) => {
    const { db } = stores;
    const organisationId = await addOrganisation(db);
    const below = await addStack(stores, organisationId, 'below');
    const above = await addStack(stores, organisationId, 'above', { dependsOn: [below.stackId] });
    const middle = await addStack(stores, organisationId, 'middle', { dependsOn: [below.stackId] });
    const top = await addStack(stores, organisationId, 'top', { dependsOn: [middle.stackId] });
    const rebuild = () => runTask(createHandlers(services), 'dependency_graph_rebuild', { organisationId });
    await rebuild();
    expect(await published(stores, 'dependency_graph_rebuild')).toEqual(
      [above, middle, top].map(({ stackId }) => stackId).sort(),
    );
    const generation = await markDeleted(db, middle.stackId);
    await rebuild();
    expect(await published(stores, 'dependency_graph_rebuild')).toEqual([above.stackId]);

    await db.updateTable('stacks').set({ deleted_at: null }).where('id', '=', middle.stackId).execute();
    await addDeployment(stores, middle, { generation: generation + 1, dependsOn: [below.stackId] });
    await rebuild();
    expect(await published(stores, 'dependency_graph_rebuild')).toHaveLength(3);
  });
});
