import { expect, test } from 'vitest';
import { TaskqError } from '../../src/domain/errors.ts';
import { inThread } from '../../src/index.ts';
import { packThrown, unpackThrown } from '../../src/threads/thrown-message.ts';

test('inThread refuses at once what is no file', () => {
  for (const module of ['./report.thread.js', 'report', 'https://example.org/report.js']) {
    expect(() => inThread(module), module).toThrow(/expected a file/);
  }
  const missing = new URL('./no-such.thread.js', import.meta.url);
  expect(() => inThread(missing)).toThrow(/there is no file .*no-such\.thread\.js/);
  expect(inThread(import.meta.filename)).toBeTypeOf('function');
});

const viaMessage = (thrown: unknown, reasons: [unknown, unknown] = [undefined, undefined]) =>
  unpackThrown(structuredClone(packThrown(thrown, reasons[0])), reasons[1]);

test('whatever a thread throws arrives, and what it cannot tell is described', () => {
  const circular = new Error('round');
  circular.cause = circular;
  const round = viaMessage(circular) as Error;
  expect([round.message, round.cause]).toEqual(['round', undefined]);
  expect(viaMessage(new AggregateError([new RangeError('one'), 'two'], 'many'))).toMatchObject({
    name: 'AggregateError',
    errors: [{ name: 'RangeError', message: 'one' }, 'two'],
  });
  const coded = viaMessage(Object.assign(new Error('no'), { code: 'ECONNREFUSED' }));
  expect(coded).toMatchObject({ code: 'ECONNREFUSED' });
  expect(viaMessage(new TaskqError('LEASE_LOST', 'gone'))).toBeInstanceOf(TaskqError);
  for (const value of [undefined, null, 'text', 7, { plain: true }]) expect(viaMessage(value)).toEqual(value);

  const evil = new Error('unreadable');
  Object.defineProperty(evil, 'message', {
    get() {
      throw new Error('trap');
    },
  });
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  for (const value of [() => 1, Symbol('s'), evil, proxy]) expect(viaMessage(value)).toBeInstanceOf(Error);
});

test('the reason of an abort is the same object on the other side, also as a cause', () => {
  const [there, here] = [new TaskqError('DEADLINE_REACHED'), new TaskqError('DEADLINE_REACHED')];
  expect(viaMessage(there, [there, here])).toBe(here);
  expect((viaMessage(new Error('gave up', { cause: there }), [there, here]) as Error).cause).toBe(here);
});
