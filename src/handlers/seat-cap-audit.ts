import { sql, type Transaction } from 'kysely';
import type { Handlers } from '../../generated/tasks.ts';
import { deadlineTransaction } from './deadline-transaction.ts';
import type { HandlerServices } from './services.ts';
import type { PlatformTables } from './tables.ts';

/**
 * Counts the seats an organisation takes, one for each live stack, and records them beside its cap.
 * Idempotent: one row per organisation, always of the newest count. An organisation that is gone has none.
 */
export function seatCapAudit({ primary }: Pick<HandlerServices, 'primary'>): Handlers['seat_cap_audit'] {
  return ({ organisationId }, context) =>
    deadlineTransaction(primary, context, async (tx) => {
      // Audits of one organisation take turns, each counting after the one before has committed. Without the
      // lock two could count side by side, and the older count could be the last one written.
      const organisation = await tx
        .selectFrom('organisations')
        .select('seat_cap')
        .where('id', '=', organisationId)
        .forNoKeyUpdate()
        .executeTakeFirst();
      if (organisation === undefined) return 'done';

      await recordSeats(tx, organisationId, organisation.seat_cap);
      return 'done';
    });
}

async function recordSeats(
  tx: Transaction<PlatformTables>,
  organisationId: string,
  seatCap: number,
): Promise<void> {
  const { seats } = await tx
    .selectFrom('stacks')
    .select(({ fn }) => fn.countAll<string>().as('seats'))
    .where('organisation_id', '=', organisationId)
    .where('deleted_at', 'is', null)
    .executeTakeFirstOrThrow();
  const audit = {
    seats_taken: Number(seats),
    seat_cap: seatCap,
    over_cap: Number(seats) > seatCap,
    audited_at: sql<Date>`now()`,
  };
  await tx
    .insertInto('seat_audits')
    .values({ organisation_id: organisationId, ...audit })
    .onConflict((conflict) => conflict.column('organisation_id').doUpdateSet(audit))
    .execute();
}
