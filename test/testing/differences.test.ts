import { expect, test } from 'vitest';
import { differences } from '../../src/testing/differences.ts';

test('equal payloads have no differences', () => {
  const payload = { at: new Date(0), big: 1n, items: [{ price: -0 }], none: null };

  expect(differences(payload, structuredClone(payload))).toEqual([]);
});

test('each place is named once, with what was expected and what was received', () => {
  const expected = { a: 1, gone: true, items: [1, { price: 2 }], at: new Date(0), 'two words': 'x' };
  const actual = { a: 1, items: [1, { price: 3 }, 4], at: new Date(1), 'two words': 'y', extra: null };

  expect(differences(expected, actual)).toEqual([
    'payload.gone: expected true, not there',
    'payload.items[1].price: expected 2, received 3',
    'payload.items[2]: not expected, received 4',
    'payload.at: expected 1970-01-01T00:00:00.000Z, received 1970-01-01T00:00:00.001Z',
    "payload[\"two words\"]: expected 'x', received 'y'",
    'payload.extra: not expected, received null',
  ]);
});

test('values of different kinds are compared as a whole', () => {
  expect(differences([1], { 0: 1 })).toEqual(["payload: expected [ 1 ], received { '0': 1 }"]);
  expect(differences('a', undefined)).toEqual(["payload: expected 'a', received undefined"]);
  expect(differences({}, new Date(0))).toEqual(['payload: expected {}, received 1970-01-01T00:00:00.000Z']);
});

test('more than ten are counted', () => {
  const list = (value: number) => Array.from({ length: 12 }, () => value);

  expect(differences(list(1), list(2))).toHaveLength(11);
  expect(differences(list(1), list(2)).at(-1)).toBe('… and 2 more differences');
});
