import { sql } from 'kysely';
import type { Lease } from '../../src/domain/ids.ts';
import type { WriteLane } from '../../src/statements/lanes.ts';
import { advanceCursor, dequeue, recordFailure, release } from '../../src/statements/settle.ts';
import { holdTransaction } from '../support/held-transaction.ts';
import { claimRow, writeLaneOf } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';
import { describe, expect, test } from '../support/test.ts';

const FAILURE = { attempt: 1, outcome: 'failure', message: 'failed' } as const;

const SETTLEMENTS: Readonly<Record<string, (lane: WriteLane, lease: Lease) => Promise<unknown>>> = {
  dequeue: (lane, lease) =>
    dequeue(lane, [lease]).then((done) => (done.has(lease.id) ? 'written' : 'refused')),
  recordFailure: (lane, lease) => recordFailure(lane, lease, FAILURE, 15_000),
  release: (lane, lease) => release(lane, lease, FAILURE),
  advanceCursor: (lane, lease) => advanceCursor(lane, lease, '{"page":1}'),
};

describe('a long transaction that has enqueued the key of a running task does not hold up its settlement', () => {
  for (const mode of ['live', 'waiting', { window: '1h' }] as const) {
    test(`while ${JSON.stringify(mode)}`, async ({ db }) => {
      for (const [name, settle] of Object.entries(SETTLEMENTS)) {
        for (const onConflict of ['skip', 'replace'] as const) {
          const unique = { key: `${name} ${onConflict}`, while: mode, onConflict };
          const { id } = await enqueue(db, 'sliced', { pages: 1 }, { unique });
          const { lease } = await claimRow(db, id);
          await using long = await holdTransaction(db);
          await enqueue(long.tx, 'sliced', { pages: 2 }, { unique });

          const settled = await db.transaction().execute(async (tx) => {
            // Fails where it would wait.
            await sql`set local lock_timeout = '1ms'`.execute(tx);
            return settle(writeLaneOf(tx), lease);
          });

          expect(settled, unique.key).toBe('written');
        }
      }
    });
  }
});
