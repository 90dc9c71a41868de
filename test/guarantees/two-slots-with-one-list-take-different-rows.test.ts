import { type Kysely, sql } from 'kysely';
import { expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { claimRows, insertRows, rowOf } from '../support/rows.ts';
import { test } from '../support/test.ts';

test('two slots with one list take different rows, and neither waits for the other', async ({ db }) => {
  const ids = await insertRows(db, 3);

  await db.transaction().execute(async (firstSlot) => {
    // Not committed: its row lock is really held while the second claim runs.
    const [first] = await claimRows(firstSlot, ids);
    const [second] = await unlessItWaits(db, (other) => claimRows(other, ids));

    expect(first?.id).toBe(ids[0]);
    expect(second?.id).toBe(ids[1]);
    expect(second?.lease.token).not.toBe(first?.lease.token);
  });

  expect(await rowOf(db, ids[2] as never)).toMatchObject({ lease_token: null, attempt_count: 0 });
});

test('a claim that finds every candidate locked leases nothing and does not wait', async ({ db }) => {
  const ids = await insertRows(db, 2);

  await db.transaction().execute(async (other) => {
    await claimRows(other, ids, { slots: 2 });
    expect(await unlessItWaits(db, (mine) => claimRows(mine, ids))).toEqual([]);
  });
});

/** A claim that waits for the lock would wait for ever, as the test holds it until the claim is there. */
function unlessItWaits<Answer>(db: Kysely<DB>, run: (other: Kysely<DB>) => Promise<Answer>): Promise<Answer> {
  return db.transaction().execute(async (other) => {
    await sql`set local lock_timeout = '3s'`.execute(other);
    return run(other);
  });
}
