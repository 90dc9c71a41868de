import { readLedger, readRemaining } from '../../src/demo/evidence.ts';
import type { DemoDatabase } from '../../src/demo/schema.ts';
import { type ChangeAnswer, startService } from '../../src/demo/service.ts';
import {
  addDeployment,
  addOrganisation,
  addStack,
  describe,
  expect,
  markDeleted,
  test as platformTest,
} from './support/platform.ts';

type Send = (
  method: string,
  path: string,
  body?: object | string,
) => Promise<{ status: number } & ChangeAnswer>;

const test = platformTest.extend<{ send: Send }>({
  send: async ({ platform }, use) => {
    const service = await startService(platform);
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

describe('a change that commits', () => {
  test('a deletion leaves its three tasks, and the ledger says so', async ({ platform, send }) => {
    const stackId = await addStack(platform, await addOrganisation(platform), 'stack');
    const answer = await send('DELETE', `/stacks/${stackId}`);
    expect(answer).toMatchObject({ status: 200, committed: true, stack: { live: false, generation: 2 } });
    expect(types(answer)).toEqual(['explore_purge', 'seat_cap_audit', 'dependency_graph_reconcile']);
    const ids = answer.tasks.map(({ id }) => id);
    expect(await evidence(platform)).toEqual({ committed: ids, rolledBack: [], rows: ids });
  });

  test('a deployment makes a deleted stack live again and has its seats counted', async ({
    platform,
    send,
  }) => {
    const stackId = await addStack(platform, await addOrganisation(platform), 'stack');
    await markDeleted(platform, stackId);
    const answer = await send('POST', `/stacks/${stackId}/deploy`);
    expect(answer).toMatchObject({ status: 200, stack: { live: true } });
    expect(types(answer)).toEqual(['dependency_graph_reconcile', 'seat_cap_audit']);
  });

  test('changes of one stack at once each get a generation of their own', async ({ platform, send }) => {
    const stackId = await addStack(platform, await addOrganisation(platform), 'stack');
    const answers = await Promise.all(
      Array.from({ length: 6 }, (_, at) => send('POST', `/stacks/${stackId}/rename`, { name: `name ${at}` })),
    );
    const generations = answers.map(({ stack }) => stack?.generation);
    expect(generations.sort()).toEqual([2, 3, 4, 5, 6, 7]);
  });
});

describe('a change that a rule refuses after it has enqueued', () => {
  test('a deletion with dependents leaves no task and no change', async ({ platform, send }) => {
    const organisation = await addOrganisation(platform);
    const needed = await addStack(platform, organisation, 'needed');
    const dependent = await addStack(platform, organisation, 'dependent');
    const edge = { from_stack_id: dependent, to_stack_id: needed, from_name: 'dependent', generation: 1 };
    await platform.insertInto('edges').values(edge).execute();

    const answer = await send('DELETE', `/stacks/${needed}`);
    expect(answer).toMatchObject({ status: 409, committed: false });
    expect(answer.reason).toContain('dependent');
    expect(answer.tasks).toHaveLength(3);
    const ids = answer.tasks.map(({ id }) => id);
    expect(await evidence(platform)).toEqual({ committed: [], rolledBack: ids, rows: [] });
    expect(await send('DELETE', `/stacks/${needed}?force=true`)).toMatchObject({ status: 200 });
  });

  test('a name that is taken leaves no task and no change', async ({ platform, send }) => {
    const organisation = await addOrganisation(platform);
    const stackId = await addStack(platform, organisation, 'stack');
    await addStack(platform, organisation, 'taken');
    const answer = await send('POST', `/stacks/${stackId}/rename`, { name: 'taken' });
    expect(answer).toMatchObject({ status: 409, committed: false, reason: "the name 'taken' is taken" });
    const ids = answer.tasks.map(({ id }) => id);
    expect(await evidence(platform)).toEqual({ committed: [], rolledBack: ids, rows: [] });
  });

  test('a dependency on a deleted stack or on itself leaves no task and no change', async ({
    platform,
    send,
  }) => {
    const organisation = await addOrganisation(platform);
    const stackId = await addStack(platform, organisation, 'stack');
    const deleted = await addStack(platform, organisation, 'deleted');
    await markDeleted(platform, deleted);
    for (const dependsOn of [[deleted], [stackId]]) {
      const answer = await send('POST', `/stacks/${stackId}/deploy`, { dependsOn });
      expect(answer).toMatchObject({ status: 422, committed: false });
      expect(answer.tasks).toHaveLength(1);
    }
    const { committed, rolledBack, rows } = await evidence(platform);
    expect({ committed, rows, rolledBack: rolledBack.length }).toEqual({
      committed: [],
      rows: [],
      rolledBack: 2,
    });
  });

  test('a deleted stack can be neither renamed nor deleted again', async ({ platform, send }) => {
    const stackId = await addStack(platform, await addOrganisation(platform), 'deleted');
    await markDeleted(platform, stackId);
    expect(await send('POST', `/stacks/${stackId}/rename`, { name: 'x' })).toMatchObject({ status: 409 });
    expect(await send('DELETE', `/stacks/${stackId}`)).toMatchObject({ status: 409 });
    expect((await evidence(platform)).rows).toEqual([]);
  });
});

describe('a request that is no change', () => {
  test('unknown routes and stacks are answered with 404, unusable bodies with 400', async ({
    platform,
    send,
  }) => {
    const stackId = await addStack(platform, await addOrganisation(platform), 'stack');
    const unknown = '00000000-0000-4000-8000-000000000000';
    expect(await send('GET', '/')).toMatchObject({ status: 404 });
    expect(await send('POST', '/stacks/1/deploy')).toMatchObject({ status: 404 });
    expect(await send('POST', `/stacks/${unknown}/deploy`)).toMatchObject({ status: 404, tasks: [] });
    expect(await send('POST', `/stacks/${stackId}/rename`, '{"name')).toMatchObject({ status: 400 });
    expect(await send('POST', `/stacks/${stackId}/rename`, { name: ' ' })).toMatchObject({ status: 400 });
    expect(await send('POST', `/stacks/${stackId}/deploy`, { dependOn: [] })).toMatchObject({ status: 400 });
    expect(await evidence(platform)).toEqual({ committed: [], rolledBack: [], rows: [] });
  });

  test('the list shows every stack with its generations', async ({ platform, send }) => {
    const stackId = await addStack(platform, await addOrganisation(platform), 'stack');
    await addDeployment(platform, { stackId, generation: 2, name: 'stack', dependsOn: [] });
    expect(await send('GET', '/stacks')).toMatchObject({
      stacks: [{ id: stackId, name: 'stack', generation: 2, publishedGeneration: 0, live: true }],
    });
  });
});
