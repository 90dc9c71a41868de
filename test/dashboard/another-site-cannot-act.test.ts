import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Page } from 'playwright-core';
import { expect, onTestFinished } from 'vitest';
import { test } from '../support/dashboard.ts';
import { insertDead } from '../support/dead.ts';
import { allRows } from '../support/rows.ts';

// Somebody who is logged in opens a page elsewhere. To a browser, another port of one host is another origin but the
// same site, so that it sends even a strict cookie along: what refuses here is the server, not the cookie.

const API = 'api/v1/admin/async';
const HOSTS = ['127.0.0.1', 'localhost'] as const;

test.for(HOSTS)(
  'a page at another origin on %s can neither act, nor read, nor frame the dashboard',
  async (host, { db, dashboard }) => {
    const [id] = await insertDead(db, 1);
    const { context, url, enter } = dashboard;
    await enter();
    const before = await allRows(db);
    const elsewhere = await serveElsewhere(host);
    const page = await context.newPage();
    const refusals = refusalsOf(page, url);

    for (const path of [
      'dead/drop',
      'dead/replay',
      'queues/default/pause',
      `queues/default/archived/${id}/run`,
      'queues/default/archived/run-all',
      'logout',
    ]) {
      for (const enctype of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data']) {
        await page.goto(elsewhere);
        await submitForm(page, `${url}${API}/${path}`, enctype);
      }
      await page.goto(elsewhere);
      await requestEveryWay(page, `${url}${API}/${path}`);
    }
    await page.goto(elsewhere);
    await requestEveryWay(page, `${url}${API}/queues/default/archived/${id}`);
    expect(await readAcross(page, `${url}${API}/dead`)).toBe('blocked');
    expect(await isFrameShown(page, url)).toBe(false);

    expect(await allRows(db)).toEqual(before);
    expect(await db.selectFrom('async_queues').selectAll().execute()).toEqual([]);
    expect(await db.selectFrom('async_audit').selectAll().execute()).toEqual([]);
    // Each was refused by the server, and none was lost on its way.
    expect(refusals.statuses.size).toBeGreaterThan(0);
    expect([...refusals.statuses].filter((status) => status < 400)).toEqual([]);
    // Neither was the login ended.
    await dashboard.go('#/dead');
    await dashboard.page.getByRole('button', { name: `Replay task ${id}` }).waitFor();
  },
);

test('a link that acts does not exist: every address answers a GET without changing anything', async ({
  db,
  dashboard,
}) => {
  const [id] = await insertDead(db, 1);
  const { page, url, enter } = dashboard;
  await enter();
  const before = await allRows(db);
  for (const path of [
    'dead/drop',
    'dead/replay',
    'queues/default/pause',
    `queues/default/archived/${id}/run`,
    'logout',
  ]) {
    const status = await page.evaluate(
      `fetch(${JSON.stringify(`${url}${API}/${path}`)}).then(({ status }) => status)`,
    );
    expect(status).toBe(405);
  }
  expect(await allRows(db)).toEqual(before);
  expect(await db.selectFrom('async_queues').selectAll().execute()).toEqual([]);
});

async function serveElsewhere(host: string): Promise<string> {
  const server = createServer((_request, response) => {
    response.setHeader('content-type', 'text/html');
    response.end('<!doctype html><title>elsewhere</title><body></body>');
  });
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  onTestFinished(() => void server.close());
  return `http://${host}:${(server.address() as AddressInfo).port}/`;
}

function refusalsOf(page: Page, url: string): { readonly statuses: Set<number> } {
  const statuses = new Set<number>();
  page.on('response', (response) => {
    if (response.url().startsWith(url + API)) statuses.add(response.status());
  });
  return { statuses };
}

/** As a page does that submits itself; `_method` and the override header are what some frameworks obey. */
async function submitForm(page: Page, action: string, enctype: string): Promise<void> {
  const answered = page.waitForResponse((response) => response.url() === action);
  await page.evaluate(`(() => {
    const form = document.createElement('form');
    form.method = 'POST';
    form.action = ${JSON.stringify(action)};
    form.enctype = ${JSON.stringify(enctype)};
    for (const [name, value] of [['{"filter":{},"dryRun":false,"x":"', '"}'], ['_method', 'DELETE']]) {
      const input = document.createElement('input');
      input.name = name;
      input.value = value;
      form.append(input);
    }
    document.body.append(form);
    form.submit();
  })()`);
  expect((await answered).status()).toBeGreaterThanOrEqual(400);
  await page.waitForURL(action);
}

/** Without waiting for what an opaque answer does not tell: the requests have been answered when this resolves. */
async function requestEveryWay(page: Page, to: string): Promise<void> {
  await page.evaluate(`(async () => {
    const to = ${JSON.stringify(to)};
    const body = JSON.stringify({ filter: {}, dryRun: false });
    const quietly = (promise) => promise.catch(() => {});
    await quietly(fetch(to, { method: 'POST', mode: 'no-cors', credentials: 'include', body }));
    await quietly(fetch(to, { method: 'POST', credentials: 'include', body }));
    await quietly(fetch(to, { method: 'DELETE', credentials: 'include' }));
    await quietly(fetch(to, {
      method: 'POST', credentials: 'include', body,
      headers: { 'content-type': 'application/json', 'x-http-method-override': 'DELETE' },
    }));
    await new Promise((resolve) => {
      const image = new Image();
      image.onload = image.onerror = resolve;
      image.src = to;
    });
  })()`);
}

async function readAcross(page: Page, from: string): Promise<unknown> {
  return page.evaluate(`fetch(${JSON.stringify(from)}, { credentials: 'include' })
    .then((answer) => answer.text(), () => 'blocked')`);
}

/** A frame that the browser refuses shows its own error page, out of reach and without our elements. */
async function isFrameShown(page: Page, url: string): Promise<boolean> {
  await page.evaluate(`new Promise((resolve) => {
    const frame = document.createElement('iframe');
    frame.onload = resolve;
    frame.src = ${JSON.stringify(url)};
    document.body.append(frame);
  })`);
  const shown = page.frames().filter((frame) => frame.url().startsWith(url));
  const pages = await Promise.all(shown.map((frame) => frame.locator('#page').count()));
  return pages.some((count) => count > 0);
}
