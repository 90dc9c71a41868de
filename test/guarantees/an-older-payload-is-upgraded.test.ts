import { expect } from 'vitest';
import { z } from 'zod';
import { createRegistry, defineTask, type HandlerRegistry } from '../../src/index.ts';
import { findDead } from '../../src/statements/dead.ts';
import { type StartReplica, test } from '../support/replica.ts';
import { allRows, insertRow, readLaneOf, wakeReplicas } from '../support/rows.ts';

/** Revision 1 held `{ path }`, revision 2 `{ paths }`; 3 accepts what 2 did; 4 asks for a reason. */
const purge = defineTask({
  type: 'purge',
  payload: z.object({ paths: z.array(z.string()), reason: z.string().min(1), note: z.string().optional() }),
  ceiling: '5m',
  upgrades: {
    2: (old) => ({ paths: [(old as { path: string }).path.toLowerCase()] }),
    4: (old) => ({ ...(old as object), reason: 'unknown' }),
  },
});

function registryOf(definition: typeof purge, ran: unknown[]): HandlerRegistry {
  const tasks = { purge: { definition, revision: 4 } };
  return createRegistry(tasks, {
    purge: async (payload) => {
      ran.push(payload);
    },
  });
}

async function startPurging(startReplica: StartReplica) {
  const ran: unknown[] = [];
  const { events } = await startReplica({ registry: registryOf(purge, ran), slots: 1 });
  return { ran, events };
}

test('a row of an older revision goes through each upgrade after it, is parsed, and runs', async ({
  db,
  startReplica,
}) => {
  const { ran, events } = await startPurging(startReplica);
  await insertRow(db, { type: 'purge', revision: 1, payload: { path: '/A' } });
  await insertRow(db, { type: 'purge', revision: 2, payload: { paths: ['/B'] } });
  await insertRow(db, { type: 'purge', revision: 3, payload: { paths: [], note: 'kept' } });
  await insertRow(db, { type: 'purge', revision: 4, payload: { paths: ['/C'], reason: 'given' } });
  await wakeReplicas(db);

  const settled = await events.atLeast(4, 'settled');

  expect(settled.map(({ outcome }) => outcome)).toEqual(['success', 'success', 'success', 'success']);
  expect(ran).toHaveLength(4);
  expect(ran).toEqual(
    expect.arrayContaining([
      { paths: ['/a'], reason: 'unknown' },
      { paths: ['/B'], reason: 'unknown' },
      { paths: [], reason: 'unknown', note: 'kept' },
      { paths: ['/C'], reason: 'given' },
    ]),
  );
  expect(await allRows(db)).toEqual([]);
});

test('an upgrade that throws makes a dead letter at once, naming the step and what it threw', async ({
  db,
  startReplica,
}) => {
  const { ran, events } = await startPurging(startReplica);
  const id = await insertRow(db, { type: 'purge', revision: 1, payload: { paths: 'no path' } });
  await wakeReplicas(db);

  expect(await events.first('settled')).toMatchObject({ outcome: 'failure', dead: true, ranMs: undefined });
  const dead = await findDead(readLaneOf(db), id);
  expect(dead?.attemptCount).toBe(1);
  expect(dead?.lastError).toMatch(/^purge: the upgrade of revision 1 → 2 threw; caused by: .*undefined/);
  expect(ran).toEqual([]);
});

test('what does not parse after its upgrades is a dead letter with revisions and path', async ({
  db,
  startReplica,
}) => {
  const { ran, events } = await startPurging(startReplica);
  const id = await insertRow(db, { type: 'purge', revision: 2, payload: { paths: ['/a', 7] } });
  await wakeReplicas(db);

  expect(await events.first('settled')).toMatchObject({ outcome: 'failure', dead: true, ranMs: undefined });
  const dead = await findDead(readLaneOf(db), id);
  expect(dead?.lastError).toMatch(/^purge \(revision 2 → 4\): payload\.paths\[1\]: /);
  expect(ran).toEqual([]);
});

test('a row of a newer revision is left to the workers that know it, whatever upgrades there are', async ({
  db,
  startReplica,
}) => {
  const { ran, events } = await startPurging(startReplica);
  await insertRow(db, { type: 'purge', revision: 5, payload: { path: '/new' }, runAtSeconds: -3_600 });
  const untouched = await allRows(db);
  const older = await insertRow(db, { type: 'purge', revision: 1, payload: { path: '/old' } });
  await wakeReplicas(db);

  await events.first('settled', ({ task }) => task.id === older);

  expect(await allRows(db)).toEqual(untouched);
  expect(ran).toEqual([{ paths: ['/old'], reason: 'unknown' }]);
});
