import { sql } from 'kysely';
import { readLedger, readRemaining } from '../../src/demo/evidence.ts';
import type { DemoDatabase } from '../../src/demo/schema.ts';
import { type ChangeAnswer, startService } from '../../src/demo/service.ts';
import { stackPrefix } from '../../src/handlers/index.ts';
import { countTasks } from './support/evidence.ts';
import {
  addDeployment,
  addOrganisation,
  addStack,
  describe,
  expect,
  indexedOf,
  keysBelow,
  markDeleted,
  test as platformTest,
  putInIndex,
  whileLocked,
} from './support/platform.ts';

type Send = (
  method: string,
  path: string,
  body?: object | string,
) => Promise<{ status: number } & ChangeAnswer>;

const test = platformTest.extend<{ send: Send }>({
  send: async ({ stores }, use) => {
    const service = await startService(stores);
    await use(async (method, path, body) => {
      const init = body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) };
      const response = await fetch(service.url + path, { method, ...init });
      return { status: response.status, ...((await response.json()) as ChangeAnswer) };
    });
    await service.close();
  },
});

/** Ids of the ledger's entries that committed or did not, and of the rows in the queue's table. */
async function evidence(platform: DemoDatabase) {
  const ledger = await readLedger(platform);
  const ids = (committed: boolean) =>
    ledger.filter((entry) => entry.committed === committed).map(({ id }) => id);
  const rows = (await readRemaining(platform)).map(({ id }) => id);
  return { committed: ids(true), rolledBack: ids(false), rows };
}

const types = ({ tasks }: ChangeAnswer) => tasks.map(({ type }) => type);

const OF_A_DEPLOYMENT = [
  'dependency_graph_reconcile',
  'resource_index_reindex',
  'dependent_triggers_resolve',
];

describe('a change that commits', () => {
  test('a deletion leaves its four tasks, and the ledger says so', async ({ platform, stores, send }) => {
    const { stackId } = await addStack(stores, await addOrganisation(platform), 'stack');
    const answer = await send('DELETE', `/stacks/${stackId}`);
    expect(answer).toMatchObject({ status: 200, committed: true, stack: { live: false, generation: 2 } });
    expect(types(answer)).toEqual([
      'explore_purge',
      'prefix_delete',
      'seat_cap_audit',
      'dependency_graph_reconcile',
    ]);
    const ids = answer.tasks.map(({ id }) => id);
    expect(await evidence(platform)).toEqual({ committed: ids, rolledBack: [], rows: ids });
  });

  test('a deployment makes a deleted stack live again and has its seats counted', async ({
    platform,
    stores,
    send,
  }) => {
    const { stackId } = await addStack(stores, await addOrganisation(platform), 'stack');
    await markDeleted(platform, stackId);
    const answer = await send('POST', `/stacks/${stackId}/deploy`);
    expect(answer).toMatchObject({ status: 200, stack: { live: true } });
    expect(types(answer)).toEqual(['prefix_delete', ...OF_A_DEPLOYMENT, 'seat_cap_audit']);
  });

  test('a deletion that purges inline leaves no purge and no row in Explore', async ({
    platform,
    stores,
    send,
  }) => {
    const stack = await addStack(stores, await addOrganisation(platform), 'stack');
    await putInIndex(stores.explore, stack);
    const answer = await send('DELETE', `/stacks/${stack.stackId}?purge=inline`);
    expect(types(answer)).toContain('explore_purge');
    expect(await indexedOf(stores.explore, stack.stackId)).toEqual([]);
    expect(await countTasks(platform)).toEqual({
      dependency_graph_reconcile: 1,
      prefix_delete: 1,
      seat_cap_audit: 1,
    });
  });

  test('a purge that cannot be done inline is left to a worker', async ({ platform, stores, send }) => {
    const organisation = await addOrganisation(platform);
    const held = await addStack(stores, organisation, 'held');
    await putInIndex(stores.explore, held);
    await whileLocked(
      stores.explore,
      (reader) => reader.selectFrom('resources').select('path').forUpdate().execute(),
      () => send('DELETE', `/stacks/${held.stackId}?purge=inline`),
    );
    expect(await countTasks(platform)).toMatchObject({ explore_purge: 1 });
    expect(await indexedOf(stores.explore, held.stackId)).toHaveLength(2);
  });

  test('a prefix delete is enqueued half an hour ahead', async ({ platform, stores, send }) => {
    const { stackId, storageKey } = await addStack(stores, await addOrganisation(platform), 'stack');
    await send('DELETE', `/stacks/${stackId}`);
    const { rows } = await sql<{ prefix: string; ahead: string }>`
      SELECT payload ->> 'prefix' AS prefix, date_trunc('minute', run_at - created_at)::text AS ahead
      FROM taskq.async_tasks WHERE task_type = 'prefix_delete'`.execute(platform);
    expect(rows).toEqual([{ prefix: stackPrefix(storageKey), ahead: '00:30:00' }]);
  });

  test('a deployment leaves the analysis of its run under the prefix of its stack', async ({
    platform,
    stores,
    send,
  }) => {
    const { stackId, storageKey } = await addStack(stores, await addOrganisation(platform), 'stack');
    await send('POST', `/stacks/${stackId}/deploy`);
    const analyses = await platform.selectFrom('deployments').select('analysis_key').execute();
    const keys = await keysBelow(stores.objects, stackPrefix(storageKey));
    expect(keys).toEqual(analyses.map(({ analysis_key }) => analysis_key).sort());
  });

  test('a deleted stack that is deployed again gets a prefix of its own', async ({
    platform,
    stores,
    send,
  }) => {
    const { stackId, storageKey } = await addStack(stores, await addOrganisation(platform), 'stack');
    await send('DELETE', `/stacks/${stackId}`);
    await send('POST', `/stacks/${stackId}/deploy`);
    const { storage_key: again } = await platform
      .selectFrom('stacks')
      .select('storage_key')
      .executeTakeFirstOrThrow();
    expect(again).not.toBe(storageKey);
    expect(await keysBelow(stores.objects, stackPrefix(again))).toHaveLength(1);
  });

  test('changes of one stack at once each get a generation of their own', async ({
    platform,
    stores,
    send,
  }) => {
    const { stackId } = await addStack(stores, await addOrganisation(platform), 'stack');
    const answers = await Promise.all(
      Array.from({ length: 6 }, (_, at) => send('POST', `/stacks/${stackId}/rename`, { name: `name ${at}` })),
    );
    const generations = answers.map(({ stack }) => stack?.generation);
    expect(generations.sort()).toEqual([2, 3, 4, 5, 6, 7]);
  });
});

describe('a change that a rule refuses after it has enqueued', () => {
  test('a deletion with dependents leaves no task and no change', async ({ platform, stores, send }) => {
    const organisation = await addOrganisation(platform);
    const { stackId: needed } = await addStack(stores, organisation, 'needed');
    const { stackId: dependent } = await addStack(stores, organisation, 'dependent');
    const edge = { from_stack_id: dependent, to_stack_id: needed, from_name: 'dependent', generation: 1 };
    await platform.insertInto('edges').values(edge).execute();

    const answer = await send('DELETE', `/stacks/${needed}`);
    expect(answer).toMatchObject({ status: 409, committed: false });
    expect(answer.reason).toContain('dependent');
    expect(answer.tasks).toHaveLength(4);
    const ids = answer.tasks.map(({ id }) => id);
    expect(await evidence(platform)).toEqual({ committed: [], rolledBack: ids, rows: [] });
    expect(await send('DELETE', `/stacks/${needed}?force=true`)).toMatchObject({ status: 200 });
  });

  test('a name that is taken leaves no task and no change', async ({ platform, stores, send }) => {
    const organisation = await addOrganisation(platform);
    const { stackId } = await addStack(stores, organisation, 'stack');
    await addStack(stores, organisation, 'taken');
    const answer = await send('POST', `/stacks/${stackId}/rename`, { name: 'taken' });
    expect(answer).toMatchObject({ status: 409, committed: false, reason: "the name 'taken' is taken" });
    const ids = answer.tasks.map(({ id }) => id);
    expect(await evidence(platform)).toEqual({ committed: [], rolledBack: ids, rows: [] });
  });

  test('a dependency on a deleted stack or on itself leaves no task and no change', async ({
    platform,
    stores,
    send,
  }) => {
    const organisation = await addOrganisation(platform);
    const { stackId } = await addStack(stores, organisation, 'stack');
    const { stackId: deleted } = await addStack(stores, organisation, 'deleted');
    await markDeleted(platform, deleted);
    for (const dependsOn of [[deleted], [stackId]]) {
      const answer = await send('POST', `/stacks/${stackId}/deploy`, { dependsOn });
      expect(answer).toMatchObject({ status: 422, committed: false });
      expect(answer.tasks).toHaveLength(3);
    }
    const { committed, rolledBack, rows } = await evidence(platform);
    expect({ committed, rows, rolledBack: rolledBack.length }).toEqual({
      committed: [],
      rows: [],
      rolledBack: 6,
    });
  });

  test('a deployment of a deleted stack leaves neither objects nor the task that would clean them up', async ({
    platform,
    stores,
    send,
  }) => {
    const { stackId, storageKey } = await addStack(stores, await addOrganisation(platform), 'deleted');
    await markDeleted(platform, stackId);
    const answer = await send('POST', `/stacks/${stackId}/deploy`, { dependsOn: [stackId] });
    expect(answer).toMatchObject({ status: 422, committed: false });
    const { committed, rows } = await evidence(platform);
    expect({ committed: committed.length, rows }).toEqual({ committed: 1, rows: [] });
    const ledger = await platform.selectFrom('ledger').selectAll().where('done_inline', '=', true).execute();
    expect(ledger).toMatchObject([{ task_type: 'prefix_delete', task_id: committed[0] }]);
    const keys = await keysBelow(stores.objects, 'stacks/');
    expect(keys.every((key) => key.startsWith(stackPrefix(storageKey)))).toBe(true);
  });

  test('a deleted stack can be neither renamed nor deleted again', async ({ platform, stores, send }) => {
    const { stackId } = await addStack(stores, await addOrganisation(platform), 'deleted');
    await markDeleted(platform, stackId);
    expect(await send('POST', `/stacks/${stackId}/rename`, { name: 'x' })).toMatchObject({ status: 409 });
    expect(await send('DELETE', `/stacks/${stackId}`)).toMatchObject({ status: 409 });
    expect((await evidence(platform)).rows).toEqual([]);
  });
});

describe('a request that is no change', () => {
  test('unknown routes and stacks are answered with 404, unusable bodies with 400', async ({
    platform,
    stores,
    send,
  }) => {
    const { stackId } = await addStack(stores, await addOrganisation(platform), 'stack');
    const unknown = '00000000-0000-4000-8000-000000000000';
    expect(await send('GET', '/')).toMatchObject({ status: 404 });
    expect(await send('POST', '/stacks/1/deploy')).toMatchObject({ status: 404 });
    expect(await send('POST', `/stacks/${unknown}/deploy`)).toMatchObject({ status: 404, tasks: [] });
    expect(await send('POST', `/stacks/${stackId}/rename`, '{"name')).toMatchObject({ status: 400 });
    expect(await send('POST', `/stacks/${stackId}/rename`, { name: ' ' })).toMatchObject({ status: 400 });
    expect(await send('POST', `/stacks/${stackId}/deploy`, { dependOn: [] })).toMatchObject({ status: 400 });
    expect(await evidence(platform)).toEqual({ committed: [], rolledBack: [], rows: [] });
  });

  test('the list shows every stack with its generations', async ({ platform, stores, send }) => {
    const stack = await addStack(stores, await addOrganisation(platform), 'stack');
    const { stackId } = stack;
    await addDeployment(stores, stack, { generation: 2, name: 'stack' });
    expect(await send('GET', '/stacks')).toMatchObject({
      stacks: [{ id: stackId, name: 'stack', generation: 2, publishedGeneration: 0, live: true }],
    });
  });
});
