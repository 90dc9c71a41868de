import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { describe, expect, inject, onTestFinished, test } from 'vitest';
import { tasks } from '../../generated/tasks.ts';
import { startObjectStoreServer } from '../../src/demo/object-store-server.ts';
import type { DemoReport } from '../../src/demo/report.ts';
import { administer, databaseName, urlOf } from '../support/databases.ts';
import { waitFor } from '../support/wait.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** A slow machine is no failure. */
const BUILD_AND_RUN_MS_MAX = 300_000;

/** Runs a program in a process group of its own, which ends with the test. */
function run(...args: string[]) {
  return runIn(process.env, ...args);
}

function runIn(env: NodeJS.ProcessEnv, ...args: string[]) {
  const child = spawn(process.execPath, args, {
    cwd: ROOT,
    env,
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

/** A database and an object store of the test's own, gone when it is over. */
async function startStores() {
  const serverUrl = inject('serverUrl');
  const name = databaseName('demo explore');
  await administer(serverUrl, `CREATE DATABASE ${name}`);
  const server = await startObjectStoreServer(['--import', 'jiti/register']);
  onTestFinished(async () => {
    await server.stop();
    await administer(serverUrl, `DROP DATABASE ${name} WITH (FORCE)`);
  });
  const { accessKeyId = '', secretAccessKey = '' } = server.settings.credentials ?? {};
  return {
    explore: urlOf(serverUrl, name),
    objects: server.settings,
    // Where the SDK looks first.
    credentials: { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey },
  };
}

describe('the demo', { timeout: BUILD_AND_RUN_MS_MAX }, () => {
  test('runs every committed task once although a worker is killed, and leaves nothing running', async () => {
    await build();
    const { ended, group, output } = run('dist/src/demo/main.js', '--once', '--json');
    expect(await ended, output.stderr).toEqual({ code: 0 });
    const report = JSON.parse(output.stdout) as DemoReport;

    expect(report).toMatchObject({ ok: true, invariant: { holds: true, problems: [] } });
    expect(report.types.map(({ type }) => type)).toEqual(Object.keys(tasks).sort());
    for (const { enqueued, succeeded, dead, lost } of report.types) {
      expect({ succeeded, dead, lost }).toEqual({ succeeded: enqueued, dead: 0, lost: 0 });
      expect(enqueued).toBeGreaterThan(0);
    }
    for (const type of ['dependency_graph_reconcile', 'explore_purge', 'prefix_delete', 'seat_cap_audit']) {
      expect(report.types.find((each) => each.type === type)?.rolledBack).toBeGreaterThan(0);
    }
    expect(report.requests.failed).toBe(0);
    expect(report.requests.committed).toBeGreaterThan(0);
    expect(report.requests.rolledBack).toBeGreaterThan(0);
    const { takeover, comeback, platform, sweep, input } = report;
    expect(takeover).toMatchObject({ type: 'explore_purge', attempt: 2 });
    expect(takeover.takenOverBy).not.toBe(takeover.killedWorker);
    // Never before the lease has lapsed; the reports of both claims come in a little later than they happen.
    expect(takeover.waitedMs).toBeGreaterThan(takeover.leaseMs - 500);
    expect(input.stacks).toBeGreaterThan(200);
    expect(platform).toMatchObject({
      edges: { published: platform.edges.declared, missing: 0, surplus: 0 },
      index: { stacks: platform.seats.live, outdated: 0, ofDeletedStacks: 0 },
      objects: { ofDeletedStacks: 0, missing: 0 },
    });
    expect(platform.triggeredRuns).toBeGreaterThan(0);
    expect(Object.values(platform.findings).some((stacks) => stacks > 0)).toBe(true);
    expect(comeback).toMatchObject({ objectsOfOldPrefix: 0, objectsOfNewPrefix: 1 });
    expect(sweep).toMatchObject({ rebuilds: 2, underWay: 2 });
    expect(sweep.slices).toBeGreaterThan(sweep.rebuilds);
    expect(isThere(group)).toBe(false);
  });

  test('on stores that are given it stays up until Ctrl-C, and then leaves nothing running', async () => {
    await build();
    const { explore, objects, credentials } = await startStores();
    const { child, ended, group, output, until } = runIn(
      { ...process.env, ...credentials },
      'dist/src/demo/main.js',
      ...['--explore-url', explore],
      ...['--object-store-endpoint', objects.endpoint, '--object-store-bucket', objects.bucket],
    );
    await until('stays up until Ctrl-C');
    await until('the worker left');
    const url = /curl (http:\S+\/stacks)\n/.exec(output.stdout)?.[1] ?? '';
    expect((await fetch(url)).status).toBe(200);
    child.kill('SIGINT');
    expect(await ended, output.stderr).toEqual({ code: 0 });
    expect(isThere(group)).toBe(false);
    await expect(fetch(url)).rejects.toThrow();
    expect(output.stdout).toContain(`the bucket '${objects.bucket}' at ${objects.endpoint}`);
    const [{ resources } = { resources: 0 }] = (
      await administer(explore, 'SELECT count(*)::int AS resources FROM resources')
    ).rows as { resources: number }[];
    expect(resources).toBeGreaterThan(0);
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

  test('an object store without a bucket is refused as misuse', async () => {
    await build();
    const { ended, output } = run('dist/src/demo/main.js', '--object-store-endpoint', 'http://127.0.0.1:1');
    expect(await ended).toEqual({ code: 2 });
    expect(output.stderr).toContain('needs --object-store-bucket');
  });
});
