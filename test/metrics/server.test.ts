import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createApp } from '../../src/index.ts';
import { createMetrics, metricsHandler, startMetricsServer } from '../../src/metrics/index.ts';
import { FaultProxy } from '../support/fault-proxy.ts';
import { parseScrape, stopWithTest, testMetrics } from '../support/metrics.ts';
import { EventLog, test } from '../support/replica.ts';
import { handlersFor } from '../support/tasks.ts';
import { expect, onTestFinished } from '../support/test.ts';

type Served = Parameters<typeof startMetricsServer>[0];

async function serve(options: Omit<Served, 'port'>): Promise<string> {
  const server = await startMetricsServer({ ...options, port: 0 });
  onTestFinished(() => server.close());
  return server.url;
}

test('the worker answers a scrape in the format of Prometheus', async ({ startReplica }) => {
  const metrics = createMetrics();
  const { app } = await startReplica({ metrics });
  const url = await serve({ metrics, apps: [app] });

  const response = await fetch(`${url}/metrics`);

  expect(response.status).toBe(200);
  expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
  expect(response.headers.get('cache-control')).toBe('no-store');
  expect(parseScrape(await response.text()).value('taskq_slots')).toBe(4);
});

test('ready means started, listening and discovering; before and after that the reason is said', async ({
  database,
}) => {
  const metrics = createMetrics();
  const events = new EventLog();
  const proxy = await FaultProxy.start(database.connection);
  onTestFinished(() => proxy.stop());
  const app = stopWithTest(
    createApp({
      database: proxy.url,
      handlers: handlersFor(),
      roles: ['processor'],
      pollInterval: '100ms',
      metrics,
      observer: events.observe,
    }),
  );
  const url = await serve({ metrics, apps: [app] });
  const readiness = async () => {
    const response = await fetch(`${url}/readyz`);
    const { ready, problems } = (await response.json()) as {
      ready: boolean;
      problems: { code: string; message: string }[];
    };
    expect(response.status).toBe(ready ? 200 : 503);
    return problems.map(({ code }) => code);
  };

  expect(await readiness()).toEqual(['not_started']);
  await app.start();
  await Promise.all([events.first('listener_connected'), events.first('discovered')]);
  expect(await readiness()).toEqual([]);
  proxy.mode = 'refuse';
  proxy.resetAll();
  await Promise.all([events.first('listener_lost'), events.first('database_failed')]);
  expect(await readiness()).toEqual(['not_listening', 'not_discovering']);
  expect((await fetch(`${url}/healthz`)).status, 'alive all the while').toBe(200);
  proxy.mode = 'pass';
  await Promise.all([
    events.first('listener_connected', ({ again }) => again),
    events.first('database_recovered'),
  ]);
  expect(await readiness()).toEqual([]);
  await app.stop();
  expect(await readiness()).toEqual(['stopping']);
});

test('of several apps all must be ready', async ({ database, startReplica }) => {
  const { app } = await startReplica();
  const other = createApp({ database: database.url, handlers: handlersFor(), roles: ['prune'] });
  const { fetch: answer } = metricsHandler({ metrics: createMetrics(), apps: [app, other] });

  const response = await answer(new Request('http://localhost/readyz'));

  expect(response.status).toBe(503);
});

test('the endpoints can be mounted in a server of the application, under a path of its own', async ({
  startReplica,
}) => {
  const metrics = createMetrics();
  const { app } = await startReplica({ metrics });
  const endpoints = metricsHandler({ metrics, apps: [app], basePath: '/internal' });
  const server = createServer(endpoints.listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  const overNode = await fetch(`${url}/internal/metrics?format=text`);
  const overFetch = await endpoints.fetch(new Request('http://host/internal/metrics'));

  expect(overNode.status).toBe(200);
  expect(overFetch.status).toBe(200);
  expect(parseScrape(await overNode.text()).value('taskq_slots')).toBe(4);
  expect(parseScrape(await overFetch.text()).value('taskq_slots')).toBe(4);
  expect((await fetch(`${url}/metrics`)).status).toBe(404);
});

test('only GET and HEAD are answered, and only on the three paths', async () => {
  const endpoints = metricsHandler({ metrics: createMetrics() });
  const status = async (method: string, path: string) =>
    (await endpoints.fetch(new Request(`http://host${path}`, { method }))).status;

  expect(await status('POST', '/metrics')).toBe(405);
  expect(await status('DELETE', '/healthz')).toBe(405);
  expect(await status('HEAD', '/metrics')).toBe(200);
  for (const path of ['/', '/constructor', '/__proto__', '/metrics/', '/../metrics', '/readyz/x']) {
    expect(await status('GET', path)).toBe(path === '/../metrics' ? 200 : 404);
  }
});

test('what goes wrong in a scrape is not shown to whoever scrapes', async () => {
  const metrics = {
    ...testMetrics(),
    render: () => Promise.reject(new Error('password "secret" of user x was refused')),
  };
  const { fetch: answer } = metricsHandler({ metrics });

  const response = await answer(new Request('http://host/metrics'));

  expect(response.status).toBe(500);
  expect(await response.text()).toBe('the answer could not be made\n');
});

test('a port that is taken is refused with what to change', async () => {
  const metrics = createMetrics();
  const url = await serve({ metrics });
  const port = Number(new URL(url).port);

  await expect(startMetricsServer({ metrics, port })).rejects.toMatchObject({
    code: 'CONFIG_INVALID',
    message: expect.stringContaining(`127.0.0.1:${port}`),
  });
});
