import { describe, expect } from 'vitest';
import { z } from 'zod';
import { createEnqueuer, defineTask } from '../../src/index.ts';
import { allRows } from '../support/rows.ts';
import { test } from '../support/test.ts';

const note = defineTask({ type: 'note', payload: z.string(), ceiling: '1m' });
const tasks = { note: { definition: note, revision: 1 } };
const KIBIBYTE = 1_024;

describe('a payload over the limit is refused before anything is written, and one at the limit is stored', () => {
  // Two of the bytes are the quotes of the JSON string.
  const atMost = (bytes: number) => 'x'.repeat(bytes - 2);

  test('of one mebibyte when nothing else is said', async ({ db }) => {
    const { enqueue } = createEnqueuer(tasks);

    await expect(enqueue(db, 'note', atMost(KIBIBYTE * KIBIBYTE + 1))).rejects.toMatchObject({
      code: 'PAYLOAD_TOO_LARGE',
      message: expect.stringContaining('1048577 bytes'),
    });
    expect(await allRows(db)).toEqual([]);

    await enqueue(db, 'note', atMost(KIBIBYTE * KIBIBYTE));
    expect(await allRows(db)).toHaveLength(1);
  });

  test('of its own, counted in bytes and not in characters', async ({ db }) => {
    const { enqueue, enqueueMany } = createEnqueuer(tasks, { maxPayloadBytes: 10 });

    await expect(enqueue(db, 'note', 'ééééé')).rejects.toMatchObject({ code: 'PAYLOAD_TOO_LARGE' });
    await expect(enqueueMany(db, 'note', ['fine', 'far too long'])).rejects.toMatchObject({
      code: 'PAYLOAD_TOO_LARGE',
      message: expect.stringContaining('note[1]'),
    });
    expect(await allRows(db)).toEqual([]);

    await enqueue(db, 'note', 'éééé');
    expect(await allRows(db)).toMatchObject([{ payload: 'éééé' }]);
  });
});
