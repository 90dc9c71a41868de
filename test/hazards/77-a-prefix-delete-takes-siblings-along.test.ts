import { enqueue } from '../../generated/tasks.ts';
import { prefixDelete } from '../../src/handlers/prefix-delete.ts';
import { prefixDelete as definition, PREFIX_DELETE_DELAY } from '../../src/tasks/prefix-delete.ts';
import { contextOf, describe, expect, keysBelow, putObjects, test } from '../demo/support/platform.ts';

// A recursive delete of a path without its slash removed every key that merely began with it.

const MINE = ['stacks/a/1', 'stacks/a/runs/2/analysis.json'];
const OTHERS = [
  'logs/stacks/a/1',
  'stacks/A/1',
  'stacks/a',
  'stacks/a /1',
  'stacks/a%2F1',
  'stacks/a-1/x',
  'stacks/ab/1',
];

describe('a prefix delete', () => {
  test('takes the keys below its prefix and no sibling, not even the bare key', async ({ services }) => {
    const { objects } = services;
    await putObjects(objects, [...MINE, ...OTHERS]);
    expect(await prefixDelete(services)({ prefix: 'stacks/a/' }, contextOf('prefix_delete'))).toBe('done');
    expect(await keysBelow(objects, '')).toEqual([...OTHERS].sort());
  });

  test.for([
    ['empty', ''],
    ['the root', '/'],
    ['without its slash', 'stacks/a'],
    ['of all stacks', 'stacks/'],
    ['of no key', 'stacks//'],
    ['of something inside a stack', 'stacks/a/runs/'],
    ['that climbs', 'stacks/../'],
    ['that is encoded', 'stacks/a%2F/'],
    ['of something else', 'logs/a/'],
    ['behind a space', ' stacks/a/'],
  ])('is refused at the enqueue for a prefix %s', async ([, prefix], { platform }) => {
    const enqueued = enqueue(platform, 'prefix_delete', { prefix: prefix as string });
    await expect(enqueued).rejects.toMatchObject({ code: 'PAYLOAD_INVALID' });
    expect(definition.payload.safeParse({ prefix }).success).toBe(false);
  });

  test('comes half an hour after what it follows from', () => {
    expect(PREFIX_DELETE_DELAY).toBe('30m');
  });
});
