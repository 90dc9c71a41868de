import { explorePurge } from '../../src/handlers/explore-purge.ts';
import {
  addOrganisation,
  addStack,
  contextOf,
  describe,
  expect,
  explorePaths,
  markDeleted,
  primaryOf,
  test,
  untilWaiting,
  whileLocked,
} from './support/platform.ts';

const context = () => contextOf('explore_purge');

describe('explore_purge', () => {
  test("removes a deleted stack's Explore rows and no other stack's", async ({ platform }) => {
    const organisation = await addOrganisation(platform);
    const deleted = await addStack(platform, organisation, 'deleted');
    const other = await addStack(platform, organisation, 'other');
    await markDeleted(platform, deleted);
    const purge = explorePurge({ primary: primaryOf(platform) });

    expect(await purge({ stackId: deleted }, context())).toBe('done');
    expect(await explorePaths(platform, deleted)).toEqual([]);
    expect(await explorePaths(platform, other)).toEqual(['license', 'version']);
  });

  test('is done without deleting when the stack is live again', async ({ platform }) => {
    const stackId = await addStack(platform, await addOrganisation(platform), 'live again');
    const purge = explorePurge({ primary: primaryOf(platform) });

    expect(await purge({ stackId }, context())).toBe('done');
    expect(await explorePaths(platform, stackId)).toEqual(['license', 'version']);
  });

  test('removes the rows of a stack whose own row is gone', async ({ platform }) => {
    const stackId = await addStack(platform, await addOrganisation(platform), 'gone');
    await platform.deleteFrom('stacks').where('id', '=', stackId).execute();
    await explorePurge({ primary: primaryOf(platform) })({ stackId }, context());
    expect(await explorePaths(platform, stackId)).toEqual([]);
  });

  test('run again or twice at once, it is done and changes nothing more', async ({ platform }) => {
    const stackId = await addStack(platform, await addOrganisation(platform), 'deleted');
    await markDeleted(platform, stackId);
    const purge = explorePurge({ primary: primaryOf(platform) });

    const answers = await Promise.all([purge({ stackId }, context()), purge({ stackId }, context())]);
    expect(answers).toEqual(['done', 'done']);
    expect(await purge({ stackId }, context())).toBe('done');
    expect(await explorePaths(platform, stackId)).toEqual([]);
  });

  test('waits for a deployment that is making the stack live again, and then deletes nothing', async ({
    platform,
  }) => {
    const stackId = await addStack(platform, await addOrganisation(platform), 'coming back');
    await markDeleted(platform, stackId);
    const purge = explorePurge({ primary: primaryOf(platform) });

    const { purged } = await whileLocked(
      platform,
      (deployment) =>
        deployment.updateTable('stacks').set({ deleted_at: null }).where('id', '=', stackId).execute(),
      async () => {
        const purged = purge({ stackId }, context());
        await untilWaiting(platform, 1);
        // Not the promise itself: the deployment's commit would wait for it.
        return { purged };
      },
    );
    expect(await purged).toBe('done');
    expect(await explorePaths(platform, stackId)).toEqual(['license', 'version']);
  });
});
