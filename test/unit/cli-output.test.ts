import { describe, expect, test } from 'vitest';
import { messageOf, stackOf } from '../../cli/failure.ts';
import { parsePayload } from '../../cli/payload-argument.ts';
import { tableLines } from '../../cli/print-table.ts';
import { readable } from '../../cli/worker-log.ts';
import { TaskqError } from '../../src/domain/errors.ts';

describe('a table', () => {
  const headings = ['id', 'count', 'last error'];

  test('has plain columns, numbers to the right, and no colours or borders', () => {
    const lines = tableLines(
      headings,
      [
        ['7', '12', 'x'],
        ['1234', '3', ''],
      ],
      { alignRight: ['count'] },
    );
    expect(lines).toEqual(['id    count  last error', '7        12  x', '1234      3']);
  });

  test('cuts its last column to a narrow terminal, and to nothing less than readable', () => {
    const row = ['7', '12', 'a very long error that goes on and on and on'];
    expect(tableLines(headings, [row], { width: 40 })[1]).toBe('7   12     a very long error that goes …');
    expect(tableLines(headings, [row], { width: 5 })[1]).toBe('7   12     a very long error t…');
  });

  test('keeps a cell on its line and shows control characters', () => {
    expect(tableLines(['a'], [['one\r\n\u001b[31mtwo']])).toEqual(['a', 'one \\x1b[31mtwo']);
  });
});

test('a log line for people is one line, with its fields and short numbers', () => {
  const line = {
    level: 'warn',
    time: '2026-01-31T09:00:00.123Z',
    event: 'settled',
    ranMs: 0.1304,
    msg: 'settled',
  };
  expect(readable(JSON.stringify({ ...line, error: 'a\nb' }))).toBe(
    '09:00:00.123 warn  settled ranMs=0.1 error=a b\n',
  );
});

describe('an error for people', () => {
  test('is its message and its code in one line; causes only where the message is not our own', () => {
    const cause = Object.assign(new Error('inner\nline'), { code: 'ECONNRESET' });
    expect(messageOf(new TaskqError('CONFIG_INVALID', 'outer', { cause }))).toBe('outer [CONFIG_INVALID]');
    expect(messageOf(Object.assign(new Error('outer', { cause }), { code: 'X1' }))).toBe(
      'outer; caused by: inner line [X1]',
    );
    expect(messageOf(undefined)).not.toBe('');
  });

  test('holds no password of a URL, and no other property of the error', () => {
    const error = Object.assign(new Error('no postgres://ada:secret@h/x'), { input: 'secret' });
    expect(messageOf(error)).toBe('no postgres://ada:***@h/x');
    expect(stackOf(error)).not.toContain('secret');
  });
});

describe('a payload on the command line', () => {
  test('is JSON, with dates and bigints in the form they are stored in', () => {
    expect(
      parsePayload('{"at":{"$taskq:date":"2027-01-31T09:00:00.000Z"},"n":{"$taskq:bigint":"9"}}'),
    ).toEqual({
      at: new Date('2027-01-31T09:00:00Z'),
      n: 9n,
    });
  });

  test('is refused when a number in it would be rounded, and only then', () => {
    for (const text of ['[12345678901234567890]', '-9007199254740993', '{"a":{"b":9007199254740993}}']) {
      expect(() => parsePayload(text)).toThrow(expect.objectContaining({ code: 'PAYLOAD_INVALID' }));
    }
    for (const text of ['[9007199254740992]', '{"a":"12345678901234567891"}', '1.2345678901234567891']) {
      expect(parsePayload(text)).toEqual(JSON.parse(text));
    }
  });
});
