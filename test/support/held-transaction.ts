import type { ControlledTransaction, IsolationLevel, Kysely } from 'kysely';
import type { DB } from '../../generated/db.ts';

/** An open transaction. Still open when its scope ends, it is rolled back: a failed test must not leave its pool waiting. */
export interface HeldTransaction extends AsyncDisposable {
  readonly tx: ControlledTransaction<DB>;
  release(): Promise<void>;
}

export async function holdTransaction(
  db: Kysely<DB>,
  isolation: IsolationLevel = 'read committed',
): Promise<HeldTransaction> {
  const tx = await db.startTransaction().setIsolationLevel(isolation).execute();
  const release = async () => {
    if (!tx.isRolledBack && !tx.isCommitted) await tx.rollback().execute();
  };
  return { tx, release, [Symbol.asyncDispose]: release };
}
