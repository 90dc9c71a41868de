import { describe, expect, test } from 'vitest';
import { checkFunctionNames, enqueueFunctionName, isIdentifier } from '../../src/codegen/identifiers.ts';

describe('a task type is given a function name', () => {
  test.each([
    ['explore_purge', 'enqueueExplorePurge'],
    ['cron:purge', 'enqueueCronPurge'],
    ['item:parse', 'enqueueItemParse'],
    ['delete', 'enqueueDelete'],
    ['2fa', 'enqueue2fa'],
    ['0', 'enqueue0'],
    ["a'b", 'enqueueAB'],
    ['ünï', 'enqueueÜnï'],
    ['日本', 'enqueue日本'],
    ['😀', 'enqueueU1F600'],
    ['*/ ;', 'enqueueU2AU2FU20U3B'],
    ['\u0301', 'enqueueU301'],
    ['__proto__', 'enqueueProto'],
    ['many', 'enqueueManyTask'],
  ])('%s → %s', (type, name) => {
    expect(enqueueFunctionName(type)).toBe(name);
    expect(isIdentifier(name)).toBe(true);
  });

  test('two Unicode spellings of one text ask for one name', () => {
    expect(enqueueFunctionName('u\u0308ni')).toBe(enqueueFunctionName('\u00fcni'));
  });
});

test('two types that ask for one function name are refused naming both and their files', () => {
  const types = [
    { type: 'item:parse', file: 'a.ts' },
    { type: 'item_parse', file: 'b.ts' },
  ];
  expect(() => checkFunctionNames(types)).toThrow(
    "'item:parse' (a.ts) and 'item_parse' (b.ts) would both be given the function enqueueItemParse",
  );
});
