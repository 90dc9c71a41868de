import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';
import { dashboardAssets } from '../../src/admin/assets.ts';
import { test } from '../support/dashboard.ts';
import { insertRow } from '../support/rows.ts';

const FOLDER = fileURLToPath(new URL('../../src/admin/dashboard/', import.meta.url));

test('every file of the page is served, with its type, and nothing else of the folder', async () => {
  const assets = dashboardAssets();
  const entries = await readdir(FOLDER, { recursive: true, withFileTypes: true });
  const files = entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(FOLDER, path.join(entry.parentPath, entry.name)).replaceAll(path.sep, '/'));
  const types = { js: /^text\/javascript/, css: /^text\/css/, svg: /^image\/svg/ };
  for (const file of files) {
    const extension = file.slice(file.lastIndexOf('.') + 1) as keyof typeof types;
    const asset = await assets(`/assets/${file}`);
    const isServed = extension in types;
    expect(asset?.contentType ?? '', file).toMatch(isServed ? types[extension] : /^$/);
  }
  expect((await assets('/assets/vendor/uplot.js'))?.contentType).toMatch(types.js);
  for (const outside of [
    '/assets/../server.ts',
    '/assets/..%2fserver.ts',
    '/assets/',
    '/app.js',
    '/index.html',
  ]) {
    expect(await assets(outside), outside).toBeUndefined();
  }
});

const testBelow = test.extend({ adminOptions: { basePath: '/ops/queue' } });

testBelow(
  'below a path of another server, the page finds its files and its API',
  async ({ db, dashboard }) => {
    await insertRow(db, { queue: 'mails/eu' });
    const { page, enter, url, mischief } = dashboard;
    expect(url).toMatch(/\/ops\/queue\/$/);
    await enter('#/queues');
    await page.getByRole('link', { name: 'mails/eu' }).click();
    await page.getByRole('heading', { name: 'mails/eu' }).waitFor();
    await page.getByRole('button', { name: 'Pause…' }).waitFor();
    expect(mischief).toEqual({ foreign: [], dialogs: [], errors: [] });
  },
);

test('queues of any name have a page of their own', async ({ db, dashboard }) => {
  const names = ['.', '..', '~.', 'a/b', '%2e%2e', 'a b?c#d&e=f', 'größe·数', '"quoted"'];
  for (const queue of names) await insertRow(db, { queue });
  const { page, enter, go } = dashboard;
  await enter('#/queues');
  for (const [index, queue] of names.entries()) {
    await go('#/queues');
    await page.getByRole('link', { name: queue, exact: true }).click();
    await page.getByRole('region', { name: 'Task types' }).waitFor();
    expect(await page.getByRole('heading', { level: 1 }).textContent()).toBe(queue);
    await page.getByRole('button', { name: 'Pause…' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Pause' }).click();
    await page.getByText('Nothing of it is claimed.').waitFor();
    const paused = await db.selectFrom('async_queues').select('name').execute();
    expect(paused.map(({ name }) => name).sort()).toEqual(names.slice(0, index + 1).sort());
  }
});

test('a tab in the background ends its stream, and opens it again when it is looked at', async ({
  dashboard,
}) => {
  const { page, enter } = dashboard;
  await enter('#/');
  const ended = page.waitForEvent('requestfailed', (request) => request.url().endsWith('/events'));
  await page.evaluate(HIDE(true));
  await ended;
  await page.getByText('Paused', { exact: true }).waitFor();
  const opened = page.waitForRequest((request) => request.url().endsWith('/events'));
  await page.evaluate(HIDE(false));
  await opened;
  await page.getByText('Live', { exact: true }).waitFor();
});

/** A browser without a screen shows every tab: it is told what a screen would make of it. */
const HIDE = (isHidden: boolean) => `
  Object.defineProperty(document, 'hidden', { configurable: true, get: () => ${isHidden} });
  document.dispatchEvent(new Event('visibilitychange'));`;
