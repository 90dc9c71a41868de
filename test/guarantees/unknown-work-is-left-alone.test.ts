import { expect } from 'vitest';
import { discover } from '../../src/statements/discover.ts';
import { test } from '../support/replica.ts';
import { allRows, claimRows, insertRow, readLaneOf, wakeReplicas } from '../support/rows.ts';
import { enqueue, knownRevisions } from '../support/tasks.ts';

test('unknown types and newer payload revisions are left to the workers that know them', async ({
  db,
  startReplica,
}) => {
  const { events } = await startReplica({ slots: 1 });
  const unknown = await insertRow(db, { type: 'of_the_next_release', runAtSeconds: -7_200 });
  const newer = await insertRow(db, { type: 'plain', revision: 2, runAtSeconds: -3_600 });
  const untouched = await allRows(db);
  await wakeReplicas(db);

  // Both are older than this one: they were looked at before it, and stand in nobody's way.
  const { id } = await enqueue(db, 'plain', {});
  await events.first('settled', ({ task }) => task.id === id);

  expect(await allRows(db)).toEqual(untouched);
  expect(events.of('claimed').map(({ task }) => task.id)).toEqual([id]);
  // The claim decides by itself, even when a list names them.
  expect(await claimRows(db, [unknown, newer], { slots: 2 })).toEqual([]);
  const read = readLaneOf(db);
  expect(await discover(read, { known: knownRevisions, queues: undefined, limit: 20 })).toEqual([]);
  const known = { plain: 2, of_the_next_release: 1 };
  const found = await discover(read, { known, queues: undefined, limit: 20 });
  expect(found.map(({ id }) => id)).toEqual([unknown, newer]);
});
