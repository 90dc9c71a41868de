import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { DemoReport } from '../../src/demo/report.ts';
import { waitFor } from '../support/wait.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** A slow machine is no failure. */
const BUILD_AND_RUN_MS_MAX = 300_000;

/** Runs a program in a process group of its own, which ends with the test. */
function run(...args: string[]) {
  const child = spawn(process.execPath, args, {
    cwd: ROOT,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const group = -(child.pid as number);
  onTestFinished(() => {
    if (isThere(group)) process.kill(group, 'SIGKILL');
  });
  const output = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text) => {
    output.stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text) => {
    output.stderr += text;
  });
  const ended = new Promise<{ code: number | null }>((resolve) =>
    child.on('close', (code) => resolve({ code })),
  );
  const until = (text: string) =>
    new Promise<void>((resolve, reject) => {
      const look = () => output.stdout.includes(text) && resolve();
      child.stdout.on('data', look);
      void ended.then(() => reject(new Error(`ended without '${text}': ${output.stderr}${output.stdout}`)));
      look();
    });
  return { child, group, output, ended, until };
}

/** Whether a process, or for a negative number any process of a group, is there. */
function isThere(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

async function build(): Promise<void> {
  const { ended, output } = run('cli/setup.mjs');
  expect(await ended, output.stderr + output.stdout).toEqual({ code: 0 });
}

describe('the demo', { timeout: BUILD_AND_RUN_MS_MAX }, () => {
  test('runs every committed task once although a worker is killed, and leaves nothing running', async () => {
    await build();
    const { ended, group, output } = run('dist/src/demo/main.js', '--once', '--json');
    expect(await ended, output.stderr).toEqual({ code: 0 });
    const report = JSON.parse(output.stdout) as DemoReport;

    expect(report).toMatchObject({ ok: true, invariant: { holds: true, problems: [] } });
    expect(report.types.map(({ type }) => type)).toEqual([
      'dependency_graph_reconcile',
      'explore_purge',
      'seat_cap_audit',
    ]);
    for (const { enqueued, succeeded, rolledBack, dead, lost } of report.types) {
      expect({ succeeded, dead, lost }).toEqual({ succeeded: enqueued, dead: 0, lost: 0 });
      expect(rolledBack).toBeGreaterThan(0);
    }
    expect(report.requests.failed).toBe(0);
    expect(report.requests.committed).toBeGreaterThan(0);
    expect(report.requests.rolledBack).toBeGreaterThan(0);
    const { takeover, platform, input } = report;
    expect(takeover).toMatchObject({ type: 'explore_purge', attempt: 2 });
    expect(takeover.takenOverBy).not.toBe(takeover.killedWorker);
    // Never before the lease has lapsed; the reports of both claims come in a little later than they happen.
    expect(takeover.waitedMs).toBeGreaterThan(takeover.leaseMs - 500);
    expect(input.stacks).toBeGreaterThan(200);
    expect(platform.edges).toMatchObject({ published: platform.edges.declared, differing: 0 });
    expect(isThere(group)).toBe(false);
  });

  test('without --once it stays up until Ctrl-C, and then leaves nothing running', async () => {
    await build();
    const { child, ended, group, output, until } = run('dist/src/demo/main.js');
    await until('stays up until Ctrl-C');
    await until('the worker left');
    const url = /curl (http:\S+\/stacks)\n/.exec(output.stdout)?.[1] ?? '';
    expect((await fetch(url)).status).toBe(200);
    child.kill('SIGINT');
    expect(await ended, output.stderr).toEqual({ code: 0 });
    expect(isThere(group)).toBe(false);
    await expect(fetch(url)).rejects.toThrow();
    const database = /psql '(\S+)'/.exec(output.stdout)?.[1];
    const client = new pg.Client({ connectionString: database });
    await expect(client.connect()).rejects.toThrow('ECONNREFUSED');
  });

  test('Ctrl-C in the middle ends it at once, and leaves nothing running', async () => {
    await build();
    const { child, ended, group, output, until } = run('dist/src/demo/main.js', '--once');
    await until('waits for the locked rows');
    child.kill('SIGINT');
    expect(await ended, output.stderr).toEqual({ code: 130 });
    expect(output.stdout).not.toContain('The result');
    expect(isThere(group)).toBe(false);
  });

  test('killed with SIGKILL, its workers end by themselves', async () => {
    await build();
    const { child, group, until } = run('dist/src/demo/main.js', '--once');
    await until('worker B is a process of its own');
    child.kill('SIGKILL');
    await waitFor(() => !isThere(group), { what: 'the end of the workers', timeoutMs: 90_000 });
  });

  test('an option that does not exist is refused as misuse', async () => {
    await build();
    const { ended, output } = run('dist/src/demo/main.js', '--twice');
    expect(await ended).toEqual({ code: 2 });
    expect(output.stderr).toContain('--once');
  });
});
