import type { ExploreDatabase } from '../../src/demo/schema.ts';
import { exploreDiagnostics } from '../../src/handlers/explore-diagnostics.ts';
import {
  addOrganisation,
  addStack,
  contextOf,
  describe,
  expect,
  putInIndex,
  test,
  untilWaiting,
  whileLocked,
} from './support/platform.ts';

const context = () => contextOf('explore_diagnostics');

async function findings(explore: ExploreDatabase, organisationId: string): Promise<string[]> {
  const rows = await explore
    .selectFrom('findings')
    .select(['rule', 'detail'])
    .where('organisation_id', '=', organisationId)
    .orderBy('rule')
    .execute();
  return rows.map(({ rule, detail }) => `${rule}: ${detail}`);
}

const COMPLETE = { package: 'a', version: '1.0.0', license: 'MIT', integrity: 'sha512-x' };

describe('explore_diagnostics', () => {
  test('finds what no stack alone can tell, in one organisation', async ({ stores, services }) => {
    const { db, explore } = stores;
    const organisationId = await addOrganisation(db);
    const added = async (name: string, organisation = organisationId) => addStack(stores, organisation, name);
    await putInIndex(explore, await added('a'), COMPLETE);
    await putInIndex(explore, await added('b > a'), { ...COMPLETE, version: '2.0.0' });
    const { license: _, integrity: __, ...bare } = { ...COMPLETE, package: 'bare' };
    await putInIndex(explore, await added('bare'), bare);
    const other = await addOrganisation(db);
    await putInIndex(explore, await added('a', other), { ...COMPLETE, version: '3.0.0' });

    for (const organisation of [organisationId, other]) {
      const scan = { organisationId: organisation, generation: 1 };
      expect(await exploreDiagnostics(services)(scan, context())).toBe('done');
    }
    expect(await findings(explore, organisationId)).toEqual([
      'integrity_missing: no checksum is pinned',
      'license_missing: no license is named',
      'several_versions: 1.0.0, 2.0.0',
      'several_versions: 1.0.0, 2.0.0',
    ]);
    expect(await findings(explore, other)).toEqual([]);
  });

  test('a newer scan replaces the findings of an older one, and an older one drops itself', async ({
    stores,
    services,
  }) => {
    const { db, explore } = stores;
    const organisationId = await addOrganisation(db);
    const stack = await addStack(stores, organisationId, 'a');
    await putInIndex(explore, stack, { ...COMPLETE, license: 'MIT' });
    const diagnose = exploreDiagnostics(services);
    await diagnose({ organisationId, generation: 2 }, context());
    expect(await findings(explore, organisationId)).toEqual([]);

    await explore.deleteFrom('resources').where('path', '=', 'license').execute();
    await diagnose({ organisationId, generation: 1 }, context());
    expect(await findings(explore, organisationId)).toEqual([]);
    await diagnose({ organisationId, generation: 3 }, context());
    expect(await findings(explore, organisationId)).toEqual(['license_missing: no license is named']);
  });

  test('the same scan again, or several at once, leave one set of findings', async ({ stores, services }) => {
    const { db, explore } = stores;
    const organisationId = await addOrganisation(db);
    await putInIndex(explore, await addStack(stores, organisationId, 'a'), { package: 'a' });
    const diagnose = exploreDiagnostics(services);
    const generations = [3, 1, 2, 3, 3];
    await Promise.all(generations.map((generation) => diagnose({ organisationId, generation }, context())));
    expect(await findings(explore, organisationId)).toHaveLength(2);
  });

  test('an older scan that waited for a newer one drops itself', async ({ stores, services }) => {
    const { db, explore } = stores;
    const organisationId = await addOrganisation(db);
    await putInIndex(explore, await addStack(stores, organisationId, 'a'), { package: 'a' });
    const diagnose = exploreDiagnostics(services);
    const { stale } = await whileLocked(
      explore,
      (newer) =>
        newer.insertInto('diagnostics').values({ organisation_id: organisationId, generation: 2 }).execute(),
      async () => {
        const stale = diagnose({ organisationId, generation: 1 }, context());
        await untilWaiting(explore, 1);
        return { stale };
      },
    );
    expect(await stale).toBe('done');
    expect(await findings(explore, organisationId)).toEqual([]);
  });
});
