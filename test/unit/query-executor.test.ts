import { expect, test } from 'vitest';
import type { TaskId } from '../../src/domain/ids.ts';
import { dequeueUnleased, queryExecutor } from '../../src/index.ts';
import { enqueue, enqueueMany } from '../support/tasks.ts';

const id = '1' as TaskId;

test('what the function throws passes through unchanged', async () => {
  const thrown = new Error('connection lost');
  const tx = queryExecutor(() => Promise.reject(thrown));

  await expect(enqueue(tx, 'plain', {})).rejects.toBe(thrown);
  await expect(enqueueMany(tx, 'plain', [{}, {}])).rejects.toBe(thrown);
  await expect(dequeueUnleased(tx, id)).rejects.toBe(thrown);
});

test.each([
  ['the result of pg or Knex', { rows: [{ id }], rowCount: 1 }],
  ['the rows and their number, as TypeORM answers a DELETE', [[], 0]],
  ['a number of rows', 1],
  ['rows as arrays', [['1']]],
  ['nothing', undefined],
])('%s is refused, since it would be taken for rows', async (_, answer) => {
  const tx = queryExecutor(async () => answer as unknown as object[]);

  await expect(dequeueUnleased(tx, id)).rejects.toMatchObject({
    code: 'CONFIG_INVALID',
    message: expect.stringContaining('an array of objects'),
  });
});
