import { execFile } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));

function bench(...args: string[]) {
  const program = path.join(root, 'test/bench/main.ts');
  return promisify(execFile)(process.execPath, ['--import', 'jiti/register', program, ...args], {
    cwd: root,
  });
}

test('the benchmark measures taskq and its floor in the same rounds and prints both', async () => {
  const { stdout, stderr } = await bench(
    ...['--quick', '--only', 'enqueue', '--json', '--rounds', '2', '--scale', '0.005'],
  );

  const result = JSON.parse(stdout);
  expect(result.machine.settings).toMatchObject({ fsync: 'on', synchronous_commit: 'on' });
  expect(result.lines.map(({ name }: { name: string }) => name)).toContain('enqueue, in a transaction');
  for (const line of result.lines) {
    for (const figures of [line.taskq, line.floor, line.ratios]) expect(figures).toHaveLength(2);
    for (const figure of [...line.taskq, ...line.floor]) expect(figure).toBeGreaterThan(0);
    expect(line.ratios[0]).toBeCloseTo(line.taskq[0] / line.floor[0]);
  }
  expect(stderr).toContain('round 2/2');
});

test('the benchmark measures what a notification costs beside none, in the same rounds', async () => {
  const { stdout } = await bench('--only', 'wake', '--json', '--rounds', '2', '--scale', '0.01');

  const [notify, poll, beside] = JSON.parse(stdout).lines;
  expect([notify.name, poll.name]).toEqual([
    expect.stringMatching(/32 clients, wake notify$/),
    expect.stringMatching(/32 clients, wake poll$/),
  ]);
  expect(beside.values).toEqual(
    poll.taskq.map((figure: number, round: number) => figure / notify.taskq[round]),
  );
  for (const figure of [...poll.taskq, ...poll.floor]) expect(figure).toBeGreaterThan(0);
});

test('the benchmark refuses a section that it does not have', async () => {
  await expect(bench('--only', 'dreams')).rejects.toMatchObject({
    code: 2,
    stderr: expect.stringContaining("there is no 'dreams'"),
  });
});
