import { type Kysely, sql } from 'kysely';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../../src/domain/ids.ts';
import { dropDead } from '../../src/statements/dead.ts';
import { dequeue, recordFailure } from '../../src/statements/settle.ts';
import { claimRow, lapseLease, writeLaneOf } from './rows.ts';
import { TEST_SCHEMA } from './schema.ts';
import { enqueue } from './tasks.ts';
import type { Mode, State } from './unique-truth-table.ts';

/** Brings a task with the key into the state by what the product itself does. Undefined where there is none. */
export async function makeExisting(
  db: Kysely<DB>,
  key: string,
  state: State,
  mode: Mode,
): Promise<TaskId | undefined> {
  if (state === 'none') return undefined;
  const isLast = state === 'runningFinally' || state === 'dead' || state === 'dropped';
  const { id } = await enqueue(
    db,
    'plain',
    { n: 1 },
    {
      unique: { key, while: mode.while },
      ...(state === 'waitingLater' ? { delay: '1h' } : {}),
      ...(isLast ? { maxAttempts: 1 } : {}),
    },
  );
  if (state !== 'waitingDue' && state !== 'waitingLater') await advance(db, id, state);
  if (mode.windowIsOver) {
    const keys = sql.table(`${TEST_SCHEMA}.async_task_keys`);
    await sql`update ${keys} set window_ends_at = now() - interval '1 second' where task_id = ${id}`.execute(
      db,
    );
  }
  return id;
}

async function advance(db: Kysely<DB>, id: TaskId, state: State): Promise<void> {
  const { lease } = await claimRow(db, id);
  const lane = writeLaneOf(db);
  if (state === 'abandoned') await lapseLease(db, id);
  if (state === 'finished') await dequeue(lane, [lease]);
  if (state === 'backingOff' || state === 'dead' || state === 'dropped') {
    const failure = { attempt: 1, outcome: 'failure', message: 'failed' } as const;
    await recordFailure(lane, lease, failure, 600_000);
  }
  if (state === 'dropped') await dropDead(lane, id);
}
