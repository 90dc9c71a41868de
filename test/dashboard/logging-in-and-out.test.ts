import { expect } from 'vitest';
import { ADMIN_TOKEN, test } from '../support/dashboard.ts';
import { insertRow } from '../support/rows.ts';

const API = 'api/v1/admin/async';

test('nothing is shown before the login, and the cookie of a login is out of reach of scripts', async ({
  db,
  dashboard,
}) => {
  await insertRow(db, { queue: 'mails' });
  const { page, context, enter, go } = dashboard;
  await go('#/queues/mails');
  await page.getByRole('heading', { name: 'Log in' }).waitFor();
  expect(await page.content()).not.toContain('mails');

  // The login leads to where it was asked for.
  await enter('#/queues/mails');
  await page.getByRole('heading', { name: 'mails' }).waitFor();
  expect(await page.evaluate('document.cookie')).toBe('');
  const [cookie] = await context.cookies();
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Strict' });
  const stored = await page.evaluate('JSON.stringify([{ ...localStorage }, { ...sessionStorage }])');
  expect(stored).not.toContain(ADMIN_TOKEN);
});

test('a login ends with the logout, also for whoever kept its cookie', async ({ dashboard }) => {
  const { page, context, url, enter } = dashboard;
  await enter();
  const [cookie] = await context.cookies();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('heading', { name: 'Log in' }).waitFor();
  expect(await context.cookies()).toEqual([]);
  const kept = await fetch(`${url}${API}/session`, {
    headers: { cookie: `${cookie?.name}=${cookie?.value}` },
  });
  expect(kept.status).toBe(401);
  await page.reload();
  await page.getByRole('heading', { name: 'Log in' }).waitFor();
});

test('the link of the terminal logs in once', async ({ browser, dashboard }) => {
  const { page, url, admin } = dashboard;
  const link = new URL(admin.loginPath(), url).href;
  await page.goto(link);
  await page.getByText('Live', { exact: true }).waitFor();
  expect(page.url()).not.toContain('once');

  const stranger = await browser.newContext();
  const other = await stranger.newPage();
  const again = await other.goto(link);
  expect(again?.ok()).toBe(false);
  await other.goto(url);
  await other.getByRole('heading', { name: 'Log in' }).waitFor();
  await stranger.close();
});

test('a wrong token is refused in words, and too many tries are told to wait', async ({ dashboard }) => {
  const { page, go } = dashboard;
  await go('');
  const token = page.getByLabel('Access token');
  const button = page.getByRole('button', { name: 'Log in' });
  for (let tries = 0; tries < 10; tries += 1) {
    await token.fill(`wrong-${tries}`);
    const answered = page.waitForResponse((response) => response.url().endsWith('/login'));
    await button.click();
    expect((await answered).status()).toBe(401);
  }
  await page.getByRole('alert').getByText('This token is not valid.').waitFor();
  // Not even the right one: who guesses must not learn that it was.
  await token.fill(ADMIN_TOKEN);
  await button.click();
  await page
    .getByRole('alert')
    .getByText(/Too many requests\. Try again in \d+ s\./)
    .waitFor();
});

test('a session that has ended meanwhile is said so, and a new login goes on at the same place', async ({
  db,
  dashboard,
}) => {
  await insertRow(db, { queue: 'mails' });
  const { page, context, enter } = dashboard;
  await enter('#/queues/mails');
  await page.getByRole('button', { name: 'Pause…' }).click();
  await context.clearCookies();
  await page.getByText('Your session has ended.', { exact: true }).waitFor();
  await page.getByLabel('Access token').fill(ADMIN_TOKEN);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('heading', { name: 'mails' }).waitFor();
  // The question that stood open went with the session.
  expect(await page.getByRole('dialog').count()).toBe(0);
});
