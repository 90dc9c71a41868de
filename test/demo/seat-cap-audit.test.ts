import { randomUUID } from 'node:crypto';
import type { DemoDatabase } from '../../src/demo/schema.ts';
import { seatCapAudit } from '../../src/handlers/seat-cap-audit.ts';
import {
  addOrganisation,
  addStack,
  contextOf,
  describe,
  expect,
  markDeleted,
  test,
  untilWaiting,
  whileLocked,
} from './support/platform.ts';

const context = () => contextOf('seat_cap_audit');

function audits(platform: DemoDatabase) {
  return platform
    .selectFrom('seat_audits')
    .select(['organisation_id', 'seats_taken', 'seat_cap', 'over_cap'])
    .execute();
}

describe('seat_cap_audit', () => {
  test('counts the live stacks of one organisation against its cap', async ({
    platform,
    stores,
    services,
  }) => {
    const organisationId = await addOrganisation(platform, 1);
    await addStack(stores, organisationId, 'one');
    await addStack(stores, organisationId, 'two');
    const deleted = await addStack(stores, organisationId, 'deleted');
    await markDeleted(platform, deleted.stackId);
    await addStack(stores, await addOrganisation(platform), "another organisation's");

    const audit = seatCapAudit(services);
    expect(await audit({ organisationId }, context())).toBe('done');
    const row = { organisation_id: organisationId, seats_taken: 2, seat_cap: 1, over_cap: true };
    expect(await audits(platform)).toEqual([row]);
  });

  test('exactly as many seats as the cap allows are not over it', async ({ platform, stores, services }) => {
    const organisationId = await addOrganisation(platform, 1);
    await addStack(stores, organisationId, 'one');
    await seatCapAudit(services)({ organisationId }, context());
    expect(await audits(platform)).toMatchObject([{ seats_taken: 1, over_cap: false }]);
  });

  test('run again or at once, it leaves one row with the newest count', async ({
    platform,
    stores,
    services,
  }) => {
    const organisationId = await addOrganisation(platform);
    const { stackId } = await addStack(stores, organisationId, 'one');
    await addStack(stores, organisationId, 'two');
    const audit = seatCapAudit(services);

    await Promise.all(Array.from({ length: 8 }, () => audit({ organisationId }, context())));
    expect(await audits(platform)).toMatchObject([{ seats_taken: 2 }]);
    await markDeleted(platform, stackId);
    await audit({ organisationId }, context());
    expect(await audits(platform)).toMatchObject([{ seats_taken: 1 }]);
  });

  test('an audit that had to wait for another counts what was committed meanwhile', async ({
    platform,
    stores,
    services,
  }) => {
    const organisationId = await addOrganisation(platform);
    const { stackId } = await addStack(stores, organisationId, 'one');
    const audit = seatCapAudit(services);

    const { audited } = await whileLocked(
      platform,
      (other) =>
        other
          .selectFrom('organisations')
          .select('id')
          .where('id', '=', organisationId)
          .forNoKeyUpdate()
          .execute(),
      async () => {
        const audited = audit({ organisationId }, context());
        await untilWaiting(platform, 1);
        await markDeleted(platform, stackId);
        return { audited };
      },
    );
    await audited;
    expect(await audits(platform)).toMatchObject([{ seats_taken: 0 }]);
  });

  test('an audit under way does not hold up those who add stacks to the organisation', async ({
    platform,
    stores,
    services,
  }) => {
    const organisationId = await addOrganisation(platform);
    const audit = seatCapAudit(services);
    await audit({ organisationId }, context());
    const { audited } = await whileLocked(
      platform,
      (holder) => holder.selectFrom('seat_audits').select('seat_cap').forUpdate().execute(),
      async () => {
        const audited = audit({ organisationId }, context());
        await untilWaiting(platform, 1);
        await addStack(stores, organisationId, 'added during the audit');
        return { audited };
      },
    );
    expect(await audited).toBe('done');
  });

  test('is done without a row for an organisation that is gone', async ({ platform, services }) => {
    const audit = seatCapAudit(services);
    expect(await audit({ organisationId: randomUUID() }, context())).toBe('done');
    expect(await audits(platform)).toEqual([]);
  });
});
