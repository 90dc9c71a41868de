import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { beforeAll } from 'vitest';
import { build, start, taskq } from '../support/cli.ts';
import { parseScrape } from '../support/metrics.ts';
import { insertRow } from '../support/rows.ts';
import { describe, expect, test } from '../support/test.ts';

beforeAll(build);

const GREET = { task_type: 'greet', queue: 'default' };

describe('taskq work --metrics-port', () => {
  test('serves what the worker does and what the database holds, on the loopback address', async ({
    database,
  }) => {
    const env = { DATABASE_URL: database.url };
    const worker = start(['work', 'handlers.ts', '--metrics-port', '0', '--concurrency', '2'], { env });
    const [, url] = await worker.until(/"url":"(http:\/\/127\.0\.0\.1:\d+)"/);
    await worker.until(/"event":"listener_connected"/);
    await taskq(['enqueue', 'greet', '{"name":"Ada"}'], { env });
    await worker.until(/"event":"settled"/);

    const metrics = parseScrape(await (await fetch(`${url}/metrics`)).text());
    const ready = await fetch(`${url}/readyz`);

    expect(metrics.value('taskq_slots')).toBe(2);
    expect(metrics.value('taskq_runs_total', { ...GREET, outcome: 'success' })).toBe(1);
    expect(metrics.value('taskq_pending', GREET)).toBe(0);
    expect(metrics.value('taskq_database_up')).toBe(1);
    expect({ status: ready.status, body: await ready.json() }).toEqual({
      status: 200,
      body: { ready: true, problems: [] },
    });
    worker.child.kill('SIGTERM');
    expect(await worker.ended()).toMatchObject({ code: 0 });
    await expect(fetch(`${url}/healthz`)).rejects.toThrow();
  });

  test('serves nothing unless it is asked to', async ({ database }) => {
    const worker = start(['work', 'handlers.ts'], { env: { DATABASE_URL: database.url } });
    await worker.until(/"event":"started"/);

    expect(worker.stdout()).not.toContain('metrics_served');
    worker.child.kill('SIGTERM');
    expect(await worker.ended()).toMatchObject({ code: 0 });
  });

  test('a port that is taken ends the worker before it takes a task', async ({ database }) => {
    const env = { DATABASE_URL: database.url, TASKQ_METRICS_PORT: '0' };
    const first = start(['work', 'handlers.ts'], { env });
    const [, port = ''] = await first.until(/"url":"http:\/\/127\.0\.0\.1:(\d+)"/);

    const second = await taskq(['work', 'handlers.ts', '--metrics-port', port], { env });

    expect(second.code, 'the configuration is not usable').toBe(2);
    expect(second.stderr).toContain(`cannot serve on 127.0.0.1:${port}`);
    expect(second.stdout).not.toContain('"started"');
    first.child.kill('SIGTERM');
    await first.ended();
  });
});

describe('taskq metrics', () => {
  test('serves the gauges of the database until SIGTERM, and runs no task', async ({ database, db }) => {
    await insertRow(db, { type: 'greet', payload: { name: 'Ada' } });
    const exporter = start(['metrics', '--metrics-port', '0'], { env: { DATABASE_URL: database.url } });
    const [, url] = await exporter.until(/serving (http:\/\/127\.0\.0\.1:\d+)\/metrics/);

    const metrics = parseScrape(await (await fetch(`${url}/metrics`)).text());
    const ready = await fetch(`${url}/readyz`);

    expect(metrics.value('taskq_pending', GREET)).toBe(1);
    expect(metrics.value('taskq_due', GREET)).toBe(1);
    for (const name of ['taskq_slots', 'taskq_listener_connected', 'taskq_unregistered_tasks']) {
      expect(metrics.of(name), `${name} is for those who run tasks`).toEqual([]);
    }
    expect(ready.status).toBe(200);
    exporter.child.kill('SIGTERM');
    expect(await exporter.ended()).toMatchObject({ code: 0, stderr: '' });
  });

  test('a schema that is not migrated is said at once', async ({ database }) => {
    const env = { DATABASE_URL: database.url };

    const ended = await taskq(['metrics', '--schema', 'nowhere', '--metrics-port', '0'], { env });

    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain("taskq migrate up --schema 'nowhere'");
  });

  test('a port that is none is misuse', async ({ database }) => {
    const env = { DATABASE_URL: database.url };

    const ended = await taskq(['metrics', '--metrics-port', '70000'], { env });

    expect(ended.stderr).toContain('expected a port from 0 to 65535');
    expect(ended.code).not.toBe(0);
  });
});

test('whoever enqueues or runs tasks without metrics does not load prom-client', () => {
  expect(loadsPrometheus('src/index.js')).toBe(false);
  expect(loadsPrometheus('src/metrics/index.js')).toBe(true);
});

/** Whether the built module loads prom-client, in a process of its own. */
function loadsPrometheus(file: string): boolean {
  const url = new URL(`../../dist/${file}`, import.meta.url).href;
  const script = `await import(${JSON.stringify(url)});
    const { default: { _cache: loaded } } = await import('node:module');
    console.log(Object.keys(loaded).some((name) => name.includes('/prom-client/')));`;
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    encoding: 'utf8',
    cwd: fileURLToPath(new URL('../../', import.meta.url)),
  });
  if (stdout === '') throw new Error(stderr);
  return stdout.trim() === 'true';
}
