import { expect } from 'vitest';
import { test } from '../support/dashboard.ts';
import { insertDead } from '../support/dead.ts';
import { insertRow } from '../support/rows.ts';

test('a database that is gone is said so, the last answer stays, and the page goes on by itself', async ({
  db,
  dashboard,
}) => {
  await insertRow(db, { queue: 'mails' });
  const { page, enter, network } = dashboard;
  await enter('#/queues');
  await page.getByRole('link', { name: 'mails' }).waitFor();
  network.mode = 'refuse';
  network.resetAll();
  const notice = page.getByRole('alert').filter({ hasText: 'The database does not answer' });
  await notice.waitFor();
  expect(await page.getByRole('link', { name: 'mails' }).isVisible()).toBe(true);
  await insertRow(db, { queue: 'reports' });
  network.mode = 'pass';
  await notice.waitFor({ state: 'detached' });
  await page.getByRole('link', { name: 'reports' }).waitFor();
});

test('a network that is gone is said so, and the page finds the server again', async ({ db, dashboard }) => {
  await insertDead(db, 1, { error: 'no such customer' });
  const { page, enter, context } = dashboard;
  await enter('#/dead');
  await page.getByText('no such customer').waitFor();
  await context.setOffline(true);
  await page.getByRole('button', { name: /^Replay task/ }).click();
  await page.getByText('whether it was done is not known').waitFor();
  await page.getByRole('alert').getByText('No connection to the server').waitFor();
  await page.getByText('no such customer').waitFor();
  await context.setOffline(false);
  await page.getByRole('button', { name: /^Replay task/ }).click();
  await page.getByText('is on its way again').waitFor();
});

test('a server that ends is said so, with the last answer still there', async ({ db, dashboard }) => {
  await insertRow(db, { queue: 'mails' });
  const { page, enter, admin } = dashboard;
  await enter('#/queues');
  await page.getByRole('link', { name: 'mails' }).waitFor();
  await admin.close();
  await page.getByText('The connection is lost').waitFor();
  await page.getByText('Reconnecting…').waitFor();
  expect(await page.getByRole('link', { name: 'mails' }).isVisible()).toBe(true);
});

test('a list that cannot be read offers to try again', async ({ db, dashboard }) => {
  await insertRow(db, { type: 'plain' });
  const { page, enter } = dashboard;
  const problem = {
    type: 'about:blank',
    title: 'the database did not answer',
    status: 503,
    code: 'DATABASE_UNAVAILABLE',
    detail: 'the database did not answer',
  };
  await page.route('**/async/tasks**', (route) =>
    route.fulfill({ status: 503, contentType: 'application/problem+json', body: JSON.stringify(problem) }),
  );
  await enter('#/tasks');
  await page.getByRole('alert').getByText('The database does not answer').waitFor();
  const again = page.getByRole('button', { name: 'Try again' });
  await again.waitFor();
  await page.unroute('**/async/tasks**');
  // The next snapshot may be faster, and takes the button away.
  await again.evaluate((button) => (button as unknown as { click(): void }).click()).catch(() => {});
  await page.getByRole('row').filter({ hasText: 'plain' }).waitFor();
  expect(await page.getByRole('alert').count()).toBe(0);
});

test('an empty queue says how to fill it, and each empty list what would stand there', async ({
  dashboard,
}) => {
  const { page, enter, go } = dashboard;
  await enter('#/');
  await page.getByText('No tasks yet').waitFor();
  for (const [place, text] of [
    ['#/queues', 'No queues yet'],
    ['#/tasks', 'Nothing to do'],
    ['#/tasks?type=plain', 'No task matches'],
    ['#/tasks?state=completed', 'No finished tasks'],
    ['#/dead', 'No dead letters'],
    ['#/dead?type=plain', 'No dead letter matches'],
    ['#/cron', 'No cron entries'],
    ['#/replicas', 'No replica is running'],
    ['#/audit', 'Nobody has done anything yet'],
    ['#/queues/nothing', 'Not found'],
    ['#/tasks/99', 'Not found'],
  ] as const) {
    await go(place);
    await page.getByText(text).first().waitFor();
  }
});

test('a filter that the server refuses is explained, and nothing is shown as if it were the answer', async ({
  db,
  dashboard,
}) => {
  await insertDead(db, 1);
  const { page, enter } = dashboard;
  await enter('#/dead?older_than=soon');
  await page.getByRole('alert').waitFor();
  expect(await page.getByRole('table').count()).toBe(0);
});
