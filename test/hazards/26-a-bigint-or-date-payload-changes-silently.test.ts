import { z } from 'zod';
import { createEnqueuer, createRegistry, defineTask } from '../../src/index.ts';
import { test } from '../support/replica.ts';
import { allRows, rowOf } from '../support/rows.ts';
import { recordStatements } from '../support/statements.ts';
import { expect } from '../support/test.ts';

// Hazard 26: BigInt makes the serialiser throw, and Date, Map, Set and NaN turn into something else without a word,
// while the type still promises the original. Each is carried as it is, or refused with its path before any SQL.

const rich = defineTask({
  type: 'rich',
  payload: z.object({
    deep: z.object({ deeper: z.object({ big: z.bigint() }) }),
    at: z.date(),
    optional: z.string().optional(),
    exact: z.bigint(),
  }),
  ceiling: '1m',
});
const loose = defineTask({ type: 'loose', payload: z.unknown(), ceiling: '1m' });
const paged = defineTask({ type: 'paged', payload: z.object({}), cursor: z.unknown(), ceiling: '1m' });
const tasks = {
  rich: { definition: rich, revision: 1 },
  loose: { definition: loose, revision: 1 },
  paged: { definition: paged, revision: 1 },
};
const { enqueue, enqueueMany } = createEnqueuer(tasks);

class Money {
  readonly cents = 1;
  toJSON() {
    return 'one cent';
  }
}

const REFUSED: readonly (readonly [what: string, value: unknown])[] = [
  ['an invalid Date', new Date(Number.NaN)],
  ['undefined in an array', [1, undefined]],
  ['NaN', Number.NaN],
  ['Infinity', Number.POSITIVE_INFINITY],
  ['a Set', new Set([1])],
  ['a Map', new Map([[1, 2]])],
  ['a Buffer', Buffer.from('x')],
  ['a Uint8Array', new Uint8Array(2)],
  ['an instance with toJSON', new Money()],
  // biome-ignore lint/suspicious/noSparseArray: a hole is what is tested.
  ['a sparse array', [1, , 3]],
];

const richPayload = {
  deep: { deeper: { big: -(2n ** 70n) } },
  at: new Date('2026-10-25T01:30:00.123Z'),
  exact: 9_007_199_254_740_993n,
};

test('BigInt and Date reach the handler as the types that the schema promises', async ({
  db,
  startReplica,
}) => {
  const seen: z.output<(typeof rich)['payload']>[] = [];
  const { events } = await startReplica({
    registry: createRegistry(tasks, {
      rich: async (payload) => void seen.push(payload),
      loose: async () => 'done',
      paged: async () => 'done',
    }),
  });

  await enqueue(db, 'rich', richPayload);
  await enqueueMany(db, 'rich', [richPayload, { ...richPayload, optional: undefined }]);
  await events.atLeast(3, 'settled', ({ outcome }) => outcome === 'success');

  // An optional property that is undefined is absent, and that is all that differs.
  expect(seen).toStrictEqual([richPayload, richPayload, richPayload]);
});

test('what cannot be carried is refused with its path, before any statement', async ({ db }) => {
  const statements = recordStatements();

  for (const [what, value] of REFUSED) {
    const refusal = { code: 'PAYLOAD_UNSTORABLE', message: expect.stringContaining('payload.a.b') };
    await expect(enqueue(db, 'loose', { a: { b: value } }), what).rejects.toMatchObject(refusal);
    await expect(enqueueMany(db, 'loose', [{}, { a: { b: value } }]), what).rejects.toMatchObject({
      code: 'PAYLOAD_UNSTORABLE',
      message: expect.stringMatching(/loose\[1\].*payload\.a\.b/),
    });
  }
  await expect(enqueue(db, 'loose', undefined)).rejects.toMatchObject({ code: 'PAYLOAD_UNSTORABLE' });

  expect(statements.all).toEqual([]);
  expect(await allRows(db)).toEqual([]);
});

test('a cursor that cannot be carried fails its slice and leaves the saved cursor', async ({
  db,
  startReplica,
}) => {
  const { events } = await startReplica({
    registry: createRegistry(tasks, {
      rich: async () => 'done',
      loose: async () => 'done',
      paged: async (_payload, { cursor, advanceCursor }) => {
        await advanceCursor(cursor === undefined ? { page: 1n } : { page: new Map([[cursor, 1]]) });
        return 'continue' as const;
      },
    }),
  });

  const { id } = await enqueue(db, 'paged', {});

  const failed = await events.first('settled', ({ outcome }) => outcome === 'failure');
  expect(failed.error).toMatch(/cursor of paged: .*page/);
  expect(await rowOf(db, id)).toMatchObject({ cursor: { page: { '$taskq:bigint': '1' } }, attempt_count: 1 });
});
