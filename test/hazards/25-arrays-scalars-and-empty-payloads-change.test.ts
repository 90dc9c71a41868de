import { z } from 'zod';
import type { TaskId } from '../../src/domain/ids.ts';
import { decodePayload } from '../../src/domain/payload-codec.ts';
import { createEnqueuer, createRegistry, defineTask } from '../../src/index.ts';
import { findDead, replayDead } from '../../src/statements/dead.ts';
import { test } from '../support/replica.ts';
import { readLaneOf, writeLaneOf } from '../support/rows.ts';
import { expect } from '../support/test.ts';

// Hazard 25: the driver turns arrays into PostgreSQL's own literals and sends texts as they are, so that top-level
// arrays, texts and empty values are stored as something else, or not at all.

const PAYLOADS: readonly unknown[] = [
  [],
  [1, 2],
  ['a'],
  [{ a: 1 }],
  {},
  'hello',
  '12',
  'true',
  'null',
  '',
  0,
  -0,
  false,
  null,
  { text: '{}' },
];

const any = z.union([
  z.array(z.unknown()),
  z.string(),
  z.number(),
  z.boolean(),
  z.null(),
  z.record(z.string(), z.unknown()),
]);
const whole = defineTask({ type: 'whole', payload: any, ceiling: '1m', maxAttempts: 1 });
const paged = defineTask({ type: 'paged', payload: z.null(), cursor: any, ceiling: '1m' });
const tasks = { whole: { definition: whole, revision: 1 }, paged: { definition: paged, revision: 1 } };
const { enqueue, enqueueMany } = createEnqueuer(tasks);

type Payload = z.output<typeof any>;

/** Handlers that keep what arrives, by task. */
function keeping() {
  const payloads = new Map<TaskId, unknown>();
  const cursors = new Map<TaskId, unknown[]>();
  let broken = false;
  const registry = createRegistry(tasks, {
    whole: async (payload, { id }) => {
      payloads.set(id, payload);
      if (broken) throw new Error('for the dead letters');
    },
    paged: async (payload, { id, cursor, advanceCursor, headers }) => {
      payloads.set(id, payload);
      const seen = cursors.get(id) ?? [];
      cursors.set(id, [...seen, cursor]);
      if (seen.length > 0) return 'done';
      await advanceCursor(PAYLOADS[Number(headers['which'])] as Payload);
      return 'continue';
    },
  });
  const breakHandlers = (yes: boolean) => {
    broken = yes;
  };
  return { payloads, cursors, registry, breakHandlers };
}

test('every payload reaches the handler as it was enqueued, one by one and in bulk', async ({
  db,
  startReplica,
}) => {
  const { payloads, registry } = keeping();
  const { events } = await startReplica({ registry });

  const single: TaskId[] = [];
  for (const payload of PAYLOADS) single.push((await enqueue(db, 'whole', payload as Payload)).id);
  const bulk = await enqueueMany(db, 'whole', PAYLOADS as Payload[]);
  await events.atLeast(PAYLOADS.length * 2, 'settled', ({ outcome }) => outcome === 'success');

  // toStrictEqual tells -0 from 0, and {} from [].
  expect(single.map((id) => payloads.get(id))).toStrictEqual(PAYLOADS);
  expect(bulk.map(({ id }) => payloads.get(id))).toStrictEqual(PAYLOADS);
});

test('every cursor comes back to the next slice as it was saved', async ({ db, startReplica }) => {
  const { payloads, cursors, registry } = keeping();
  const { events } = await startReplica({ registry });

  const ids: TaskId[] = [];
  for (const which of PAYLOADS.keys()) {
    ids.push((await enqueue(db, 'paged', null, { headers: { which: String(which) } })).id);
  }
  await events.atLeast(PAYLOADS.length, 'settled', ({ outcome }) => outcome === 'success');

  expect(ids.map((id) => cursors.get(id))).toStrictEqual(PAYLOADS.map((cursor) => [undefined, cursor]));
  expect(new Set(payloads.values())).toEqual(new Set([null]));
});

test('a dead letter shows its payload as it was enqueued, and has it again when replayed', async ({
  db,
  startReplica,
}) => {
  const { payloads, registry, breakHandlers } = keeping();
  breakHandlers(true);
  const { events } = await startReplica({ registry });
  const enqueued = await enqueueMany(db, 'whole', PAYLOADS as Payload[]);
  await events.atLeast(PAYLOADS.length, 'settled', ({ dead }) => dead);

  for (const [which, { id }] of enqueued.entries()) {
    const letter = await findDead(readLaneOf(db), id);
    expect(decodePayload(letter?.payloadText ?? 'gone')).toStrictEqual(PAYLOADS[which]);
  }
  breakHandlers(false);
  payloads.clear();
  for (const { id } of enqueued) expect(await replayDead(writeLaneOf(db), id)).toBe('written');
  await events.atLeast(PAYLOADS.length, 'settled', ({ outcome }) => outcome === 'success');

  expect(enqueued.map(({ id }) => payloads.get(id))).toStrictEqual(PAYLOADS);
});
