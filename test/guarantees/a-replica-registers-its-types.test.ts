import { type Kysely, sql } from 'kysely';
import { expect } from 'vitest';
import { z } from 'zod';
import type { DB } from '../../generated/db.ts';
import { createRegistry, type Duration, defineTask } from '../../src/index.ts';
import { findTypes, listTypes } from '../../src/statements/task-types.ts';
import { test } from '../support/replica.ts';
import { readLaneOf } from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/test.ts';

function registryOf({ ceiling = '5m', revision = 1 }: { ceiling?: Duration; revision?: number } = {}) {
  const mail = defineTask({
    type: 'mail',
    payload: z.object({ to: z.string(), token: z.string().meta({ taskq: 'secret' }) }),
    cursor: z.object({ after: z.string().meta({ taskq: 'secret' }) }),
    ceiling,
    maxAttempts: 7,
  });
  const greet = defineTask({ type: 'greet', payload: z.object({}), ceiling: '1m' });
  return createRegistry(
    { mail: { definition: mail, revision }, greet: { definition: greet, revision: 1 } },
    { mail: async () => {}, greet: async () => {} },
  );
}

/** The versions of the rows: a write makes another, whatever it says. */
async function versions(db: Kysely<DB>): Promise<string[]> {
  const { rows } = await sql<{ version: string }>`
    select xmin::text || ctid::text as version from ${sql.table(`${TEST_SCHEMA}.async_task_types`)} order by 1`.execute(
    db,
  );
  return rows.map(({ version }) => version);
}

const MAIL = {
  type: 'mail',
  revision: 1,
  secrets: [{ fields: { token: 1 } }, { secret: true }],
  cursorSecrets: [{ fields: { after: 1 } }, { secret: true }],
  ceilingMs: 300_000,
  maxAttempts: 7,
  registeredAt: expect.any(Date),
};

test('the start of a replica registers each type with its secrets, ceiling and attempts', async ({
  db,
  startReplica,
}) => {
  await startReplica({ registry: registryOf() });

  expect(await listTypes(readLaneOf(db))).toEqual([
    {
      type: 'greet',
      revision: 1,
      secrets: undefined,
      cursorSecrets: undefined,
      ceilingMs: 60_000,
      maxAttempts: 20,
      registeredAt: expect.any(Date),
    },
    MAIL,
  ]);
});

test('replicas that start together, and later ones with the same types, write nothing more within the hour', async ({
  db,
  startReplica,
}) => {
  await Promise.all([1, 2, 3].map(() => startReplica({ registry: registryOf() })));
  const before = await versions(db);
  await startReplica({ registry: registryOf() });

  expect(before).toHaveLength(2);
  expect(await versions(db)).toEqual(before);
});

test('a start after an hour says that the type is still run', async ({ db, startReplica }) => {
  await startReplica({ registry: registryOf() });
  await db
    .updateTable('async_task_types')
    .set({ registered_at: new Date(0) })
    .execute();
  await startReplica({ registry: registryOf() });

  const types = await listTypes(readLaneOf(db));
  expect(types.every(({ registeredAt }) => registeredAt.getTime() > 0)).toBe(true);
});

test('a changed ceiling is written, and a new revision has a row of its own beside the old one', async ({
  db,
  startReplica,
}) => {
  await startReplica({ registry: registryOf() });
  await startReplica({ registry: registryOf({ ceiling: '10m' }) });
  await startReplica({ registry: registryOf({ revision: 2 }) });

  const wanted = [1, 2, 3].map((revision) => ({ type: 'mail', revision }));
  const found = await findTypes(readLaneOf(db), wanted);
  expect(found.sort((left, right) => left.revision - right.revision)).toEqual([
    { ...MAIL, ceilingMs: 600_000 },
    { ...MAIL, revision: 2 },
  ]);
});

test('a replica that runs no tasks registers none', async ({ db, startReplica }) => {
  await startReplica({ registry: registryOf(), roles: ['prune'] });

  expect(await listTypes(readLaneOf(db))).toEqual([]);
});
