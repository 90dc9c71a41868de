import { describe, expect, test } from 'vitest';
import {
  CAUSE_CHAIN_MAX,
  ERROR_MESSAGE_LENGTH_MAX,
  ERROR_STACK_LENGTH_MAX,
  NAME_LENGTH_MAX,
} from '../../src/domain/limits.ts';
import { causeChain, describeThrown, toError } from '../../src/domain/thrown.ts';

const refuse = () => {
  throw new Error('reading me throws');
};

const errorWithGetter = (key: string) => Object.defineProperty(new Error('x'), key, { get: refuse });

/** A proxy whose every trap throws: nothing can be asked of it. */
const closedProxy = (target: object) => new Proxy(target, new Proxy({}, { get: () => refuse }));

function revokedProxy(): object {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

function named(name: string): Error {
  const error = new Error('x');
  error.name = name;
  return error;
}

const cases: [what: string, thrown: unknown, message: string | RegExp, name: string][] = [
  ['undefined', undefined, 'undefined was thrown', 'undefined'],
  ['null', null, 'null was thrown', 'null'],
  ['a text', 'text', 'text', 'string'],
  ['an empty text', '', 'an empty text was thrown', 'string'],
  ['a blank text', ' \n', 'an empty text was thrown', 'string'],
  ['a number', 42, 'a number was thrown: 42', 'number'],
  ['a boolean', false, 'a boolean was thrown: false', 'boolean'],
  ['a bigint', 1n, 'a bigint was thrown: 1', 'bigint'],
  ['a symbol', Symbol('x'), 'a symbol was thrown: Symbol(x)', 'symbol'],
  ['an empty object', {}, 'an object was thrown: {}', 'Object'],
  ['an object', { code: 5 }, 'an object was thrown: { code: 5 }', 'Object'],
  ['an object with a message', { message: 'no funds', name: 'Refusal' }, 'no funds', 'Refusal'],
  ['an object without a prototype', Object.create(null), /^an object was thrown: .*\{\}$/, 'object'],
  ['an array', ['a'], "an object was thrown: [ 'a' ]", 'Array'],
  ['a function', function giveUp() {}, 'a function was thrown: giveUp', 'giveUp'],
  [
    'a function without a name',
    (
      () => () =>
        1
    )(),
    'a function was thrown: anonymous',
    'anonymous',
  ],
  ['an Error', new TypeError('no such stack'), 'no such stack', 'TypeError'],
  ["an Error whose message is ''", new RangeError(''), 'RangeError without a message', 'RangeError'],
  [
    'an Error whose message is no text',
    Object.assign(new Error('x'), { message: 5 }),
    /^Error without/,
    'Error',
  ],
  ['an Error whose message getter throws', errorWithGetter('message'), 'Error without a message', 'Error'],
  ['an Error whose name getter throws', errorWithGetter('name'), 'x', 'Error'],
  ['an Error whose stack getter throws', errorWithGetter('stack'), 'x', 'Error'],
  ['an Error whose cause getter throws', errorWithGetter('cause'), 'x', 'Error'],
  ['an object whose toString throws', { toString: refuse }, /^an object was thrown: \{ toString/, 'Object'],
  [
    'an object whose every getter throws',
    {
      get message() {
        return refuse();
      },
    },
    /^an object was thrown/,
    'Object',
  ],
  ['a frozen Error', Object.freeze(new Error('frozen')), 'frozen', 'Error'],
  ['a DOMException', new DOMException('stopped', 'AbortError'), 'stopped', 'AbortError'],
  ['a proxy of an Error', new Proxy(new Error('behind'), {}), 'behind', 'Error'],
  ['a proxy that answers nothing', closedProxy(new Error('x')), /^an object was thrown/, 'object'],
  ['a proxy of a function that answers nothing', closedProxy(() => 1), /^a function was thrown/, 'anonymous'],
  ['a revoked proxy', revokedProxy(), /^an object was thrown/, 'object'],
  ['a promise', Promise.resolve(1), /^an object was thrown: Promise/, 'Promise'],
];

describe('anything that can be thrown has a readable description', () => {
  test.each(cases)('%s', (_what, thrown, message, name) => {
    const described = describeThrown(thrown);
    if (typeof message === 'string') expect(described.message).toBe(message);
    else expect(described.message).toMatch(message);
    expect(described.message.trim()).not.toBe('');
    expect(described.name).toBe(name);
  });

  test.each(cases)('%s becomes an Error that keeps it', (_what, thrown) => {
    const error = toError(thrown);
    expect(error).toBeInstanceOf(Error);
    expect(error === thrown || error.cause === thrown).toBe(true);
    expect(error.message).toBeTypeOf('string');
    expect(describeThrown(error).message).toBe(describeThrown(thrown).message);
  });

  test.each(cases)('%s begins its own chain', (_what, thrown) => {
    expect(causeChain(thrown)[0]).toBe(thrown);
  });

  test('Promise.reject() without a reason', async () => {
    const thrown = await Promise.reject().catch((reason: unknown) => reason);
    expect(describeThrown(thrown).message).toBe('undefined was thrown');
  });

  test("an inspected object runs none of the thrower's code", () => {
    const inspectable = {
      [Symbol.for('nodejs.util.inspect.custom')]: refuse,
      get secret() {
        return refuse();
      },
    };
    expect(describeThrown(inspectable).message).toMatch(/^an object was thrown: \{/);
  });
});

describe('the stack', () => {
  test('is the one of the Error', () => {
    const error = new Error('x');
    expect(describeThrown(error).stack).toBe(error.stack);
  });

  test('is undefined for what has none', () => {
    expect(describeThrown('text').stack).toBeUndefined();
    expect(describeThrown(Object.assign(new Error('x'), { stack: ['no', 'text'] })).stack).toBeUndefined();
  });

  test('is followed by those of the causes', () => {
    const cause = Object.assign(new Error('inner'), { stack: 'inner stack' });
    const error = Object.assign(new Error('outer', { cause }), { stack: 'outer stack' });
    expect(describeThrown(error).stack).toBe('outer stack\ncaused by: inner stack');
  });
});

describe('causes', () => {
  test('are in the message, one after the other', () => {
    const error = new Error('outer', { cause: new Error('middle', { cause: 'inner' }) });
    expect(describeThrown(error).message).toBe('outer; caused by: middle; caused by: inner');
  });

  test('that say the same are said once', () => {
    expect(describeThrown(new Error('same', { cause: new Error('same') })).message).toBe('same');
    expect(describeThrown(toError('same')).message).toBe('same');
  });

  test('members of an AggregateError are in the message, the sixth and later ones as a count', () => {
    const members = Array.from({ length: 8 }, (_, index) => new Error(`number ${index + 1}`));
    expect(describeThrown(new AggregateError(members.slice(0, 2), 'all failed')).message).toBe(
      'all failed [number 1; number 2]',
    );
    expect(describeThrown(new AggregateError(members, 'all failed')).message).toBe(
      'all failed [number 1; number 2; number 3; number 4; number 5; 3 more]',
    );
    expect(describeThrown(new AggregateError(['a', undefined])).message).toBe(
      'AggregateError without a message [a; undefined was thrown]',
    );
  });

  test('form a chain with the members of an AggregateError, nearest first, each once', () => {
    const root = new Error('root');
    const left = new Error('left', { cause: root });
    const right = new Error('right', { cause: root });
    const all = new AggregateError([left, right], 'all');
    const outer = new Error('outer', { cause: all });
    expect(causeChain(outer)).toEqual([outer, all, left, right, root]);
  });

  test('in a cycle end', () => {
    const first: Error = new Error('first');
    const second = new Error('second', { cause: first });
    first.cause = second;
    expect(causeChain(first)).toEqual([first, second]);
    expect(describeThrown(first).message).toBe('first; caused by: second');

    const own = new AggregateError([], 'own');
    own.errors.push(own, second);
    expect(causeChain(own)).toEqual([own, second, first]);
    expect(describeThrown(own).message).toBe('own [second; caused by: first; 1 more]');
  });

  test(`are followed to ${CAUSE_CHAIN_MAX} and no further`, () => {
    let error = new Error('number 1');
    for (let count = 2; count <= 100_000; count++) error = new Error(`number ${count}`, { cause: error });
    expect(causeChain(error)).toHaveLength(CAUSE_CHAIN_MAX);
    expect(describeThrown(error).message.split('caused by')).toHaveLength(CAUSE_CHAIN_MAX);
    const many = new AggregateError(
      Array.from({ length: 100_000 }, (_, index) => new Error(`${index}`)),
      'many',
    );
    expect(causeChain(many)).toHaveLength(CAUSE_CHAIN_MAX);
    expect(describeThrown(many).message).toMatch(/; 99995 more\]$/);
  });

  test('that cannot be read end the chain', () => {
    const error = new Error('outer', { cause: closedProxy([]) });
    expect(causeChain(error)).toHaveLength(2);
    expect(describeThrown(error).message).toMatch(/^outer; caused by: an object was thrown/);
    expect(causeChain({ errors: revokedProxy() })).toHaveLength(1);
    expect(causeChain({ errors: { length: 5 }, cause: null })).toHaveLength(1);
  });
});

describe('every text can be stored', () => {
  const broken: [what: string, text: string, mended: string][] = [
    ['NUL', 'a\0b', 'a\ufffdb'],
    ['a lone high surrogate', 'a\ud83db', 'a\ufffdb'],
    ['a lone low surrogate', 'a\ude00b', 'a\ufffdb'],
    ['a surrogate pair the wrong way round', '\ude00\ud83d', '\ufffd\ufffd'],
    ['a text of a Buffer cut within a character', Buffer.from('a😀').subarray(0, 4).toString(), 'a\ufffd'],
    [
      'UTF-16 cut within a character',
      Buffer.from('a😀', 'utf16le').subarray(0, 4).toString('utf16le'),
      'a\ufffd',
    ],
    ['nothing wrong', 'a😀\u2028b', 'a😀\u2028b'],
  ];

  test.each(broken)('%s', (_what, text, mended) => {
    expect(describeThrown(text).message).toBe(mended);
    expect(describeThrown(new Error(text)).message).toBe(mended);
    expect(describeThrown(new Error('outer', { cause: text })).message).toBe(`outer; caused by: ${mended}`);
    expect(describeThrown(Object.assign(new Error('x'), { stack: text })).stack).toBe(mended);
    expect(describeThrown(named(text)).name).toBe(mended);
    const inObject = describeThrown({ [text]: text });
    expect(inObject.message).not.toMatch(/\0|\p{Surrogate}/u);
  });

  test.each([
    ['message', ERROR_MESSAGE_LENGTH_MAX, (text: string) => describeThrown(new Error(text)).message],
    ['message', ERROR_MESSAGE_LENGTH_MAX, (text: string) => describeThrown(text).message],
    [
      'stack',
      ERROR_STACK_LENGTH_MAX,
      (text: string) => describeThrown(Object.assign(new Error('x'), { stack: text })).stack,
    ],
    ['name', NAME_LENGTH_MAX, (text: string) => describeThrown(named(text)).name],
  ] as const)('a %s is cut to %i, and not within a character', (_what, lengthMax, cutBy) => {
    expect(cutBy('x'.repeat(lengthMax))).toBe('x'.repeat(lengthMax));
    expect(cutBy('x'.repeat(lengthMax + 1))).toBe(`${'x'.repeat(lengthMax - 1)}…`);
    expect(cutBy(`${'x'.repeat(lengthMax - 2)}😀😀`)).toBe(`${'x'.repeat(lengthMax - 2)}…`);
    expect(cutBy(`${'x'.repeat(lengthMax - 3)}😀😀`)).toBe(`${'x'.repeat(lengthMax - 3)}😀…`);
    expect(cutBy('x'.repeat(10_000_000))).toHaveLength(lengthMax);
  });

  test('an object of any size is cut, too', () => {
    const huge = Object.fromEntries(Array.from({ length: 10_000 }, (_, index) => [`key${index}`, index]));
    expect(describeThrown(huge).message).toHaveLength(ERROR_MESSAGE_LENGTH_MAX);
  });
});
