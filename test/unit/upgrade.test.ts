import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { defineTask, type Upgrade } from '../../src/domain/task-definition.ts';
import { upgradePayload } from '../../src/domain/upgrade.ts';

const define = (upgrades: Readonly<Record<number, Upgrade>>) =>
  defineTask({ type: 'purge', payload: z.unknown(), ceiling: '1m', upgrades });

const trace = (step: string) => (old: unknown) => `${old} ${step}`;

describe('a payload is upgraded', () => {
  const definition = define({ 2: trace('two'), 3: trace('three'), 5: trace('five') });

  test.each([
    [1, 5, 'row two three five'],
    [2, 5, 'row three five'],
    [4, 5, 'row five'],
    [3, 4, 'row'],
    [5, 5, 'row'],
    [1, 2, 'row two'],
  ])(
    'from revision %i to %i by each step in turn, and a missing one changes nothing',
    (from, to, expected) => {
      expect(upgradePayload(definition, 'row', from, to)).toBe(expected);
    },
  );
});

test('an upgrade that throws names type and step, and keeps what it threw', () => {
  const cause = new TypeError('no id');
  const definition = define({
    2: () => {
      throw cause;
    },
  });
  expect(() => upgradePayload(definition, {}, 1, 2)).toThrow(
    expect.objectContaining({
      code: 'PAYLOAD_INVALID',
      message: 'purge: the upgrade of revision 1 → 2 threw',
      cause,
    }),
  );
});

test.each([
  ['nothing', () => undefined, /answered nothing/],
  ['a promise', () => Promise.resolve({}), /answered a promise/],
])('an upgrade that answers %s is refused by name', (_, upgrade, problem) => {
  expect(() => upgradePayload(define({ 2: upgrade }), {}, 1, 2)).toThrow(problem);
});

describe('upgrades are refused where they are defined', () => {
  test.each<[string, object, RegExp]>([
    ['a first revision', { 1: trace('one') }, /'purge': upgrades are keyed.*'1'/],
    ['a fraction', { 2.5: trace('two') }, /'2\.5'/],
    ['a negative number', { [-2]: trace('two') }, /'-2'/],
    ['a name', { second: trace('two') }, /'second'/],
    ['a number in another spelling', { '02': trace('two') }, /'02'/],
    ['no function', { 2: 'two' }, /upgrades\[2\] must be a function/],
    ['an async function', { 2: async (old: unknown) => old }, /upgrades\[2\].*not async/],
  ])('for %s', (_, upgrades, problem) => {
    expect(() => define(upgrades as Record<number, Upgrade>)).toThrow(
      expect.objectContaining({ code: 'DEFINITION_INVALID', message: expect.stringMatching(problem) }),
    );
  });
});
