import { progressLine } from '../../cli/progress-line.ts';
import { expect, onTestFinished, test, vi } from '../support/test.ts';

function stderr(isTTY: boolean): () => string {
  let written = '';
  const spy = vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    written += String(text);
    return true;
  });
  const before = process.stderr.isTTY;
  process.stderr.isTTY = isTTY;
  onTestFinished(() => {
    spy.mockRestore();
    process.stderr.isTTY = before;
  });
  return () => written;
}

test('on a terminal one line is written over, without a rest of the longer one and without colour', () => {
  const written = stderr(true);
  const line = progressLine();
  line.show('looked at 2000');
  line.show('done');
  line.end();
  line.end();

  expect(written()).toBe('\rlooked at 2000\rdone          \n');
});

test('elsewhere a line stays, one a second at the most, and none for what is short', () => {
  const written = stderr(false);
  const clock = vi.spyOn(performance, 'now');
  onTestFinished(() => clock.mockRestore());
  const at = (ms: number) => clock.mockReturnValue(ms);
  at(0);
  const line = progressLine();
  for (const ms of [10, 990, 1_000, 1_500, 1_999, 2_000]) {
    at(ms);
    line.show(`${ms}`);
  }
  line.end();

  expect(written()).toBe('1000\n2000\n');
});
