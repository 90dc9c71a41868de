import axe from 'axe-core';
import type { Page } from 'playwright-core';
import { expect } from 'vitest';
import { createCron } from '../../src/index.ts';
import { test } from '../support/dashboard.ts';
import { insertDead } from '../support/dead.ts';
import { registerPlainTypes } from '../support/registered.ts';
import { insertRow, insertRows } from '../support/rows.ts';
import { enqueue, testTasks } from '../support/tasks.ts';

const cron = createCron(testTasks, [
  { name: 'nightly', schedule: '0 3 * * *', task: 'plain', payload: { n: 1 } },
]);

test.override({ adminOptions: { cron } });

const WIDTHS = [1280, 390];
const SCHEMES = ['light', 'dark'] as const;

test('axe finds nothing on any page, wide and narrow, light and dark', async ({
  db,
  dashboard,
  startReplica,
}) => {
  await registerPlainTypes(db);
  await startReplica({ slots: 2, queues: ['nothing'] });
  await insertRows(db, 3, { type: 'plain' });
  await insertRow(db, { type: 'plain', queue: 'reports', runAtSeconds: 3_600 });
  await enqueue(db, 'fragile', {}, { headers: { traceparent: `00-${'4'.repeat(32)}-${'2'.repeat(16)}-01` } });
  const [id] = await insertDead(db, 60, { error: 'no such customer\nat line 4' });
  const { page, enter, go } = dashboard;
  await page.goto(dashboard.url);
  await page.getByRole('heading', { name: 'Log in' }).waitFor();
  expect(await violations(page), 'the login').toEqual([]);
  await enter('#/queues/default');
  await page.getByRole('button', { name: 'Pause…' }).click();
  expect(await violations(page), 'a dialog').toEqual([]);
  await page.getByRole('dialog').getByRole('button', { name: 'Pause' }).click();
  await page.getByText('Nothing of it is claimed.').waitFor();

  const places: readonly (readonly [string, string])[] = [
    ['#/', 'Throughput'],
    ['#/queues', 'reports'],
    ['#/queues/default', 'plain'],
    ['#/tasks', 'plain'],
    ['#/tasks?state=completed', 'No finished tasks'],
    [`#/tasks/${id}`, 'no such customer'],
    ['#/dead', 'no such customer'],
    ['#/cron', 'nightly'],
    ['#/replicas', 'alive'],
    ['#/audit', 'queue.pause'],
    ['#/nowhere', 'There is no such page'],
  ];
  for (const width of WIDTHS) {
    await page.setViewportSize({ width, height: 860 });
    for (const colorScheme of SCHEMES) {
      await page.emulateMedia({ colorScheme });
      for (const [place, text] of places) {
        await go(place);
        await page.locator('main').getByText(text).first().waitFor();
        const where = `${place} at ${width} px, ${colorScheme}`;
        expect(await violations(page), where).toEqual([]);
        expect(await overflow(page), `${where}: wider than the window`).toBeLessThanOrEqual(0);
      }
    }
  }
});

test('with the keyboard alone, a dead letter is found and replayed, and the focus is always seen', async ({
  db,
  dashboard,
}) => {
  const [id] = await insertDead(db, 2, { error: 'no such customer' });
  const { page, enter } = dashboard;
  await enter('#/');
  // The skip link comes first, and leads past the navigation.
  await page.locator('body').press('Tab');
  await press(page, 'Dead letters 2');
  await page.getByRole('heading', { name: 'Dead letters', level: 1 }).waitFor();
  await page.getByRole('button', { name: `Replay task ${id}` }).waitFor();
  await press(page, `Replay task ${id}`);
  await page.getByText(`Task ${id} is on its way again.`).waitFor();
  await page.getByRole('button', { name: `Replay task ${id}` }).waitFor({ state: 'detached' });

  // Into a dialog, out with Escape, and back to where it was opened.
  await press(page, 'Replay all…');
  const dialog = page.getByRole('dialog');
  await dialog.getByText('1 dead letter would be replayed.').waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  expect(await focused(page)).toBe('Replay all…');
});

test('Tab goes through the whole page and out of it: nothing holds the focus', async ({ db, dashboard }) => {
  const [id] = await insertDead(db, 1, { error: 'no such customer', queue: 'mails' });
  const { page, enter } = dashboard;
  await enter(`#/tasks/${id}`);
  await page.getByRole('button', { name: 'Replay' }).waitFor();
  const first = page.getByRole('link', { name: 'Skip to the content' });
  await first.focus();
  const seen: string[] = [];
  // Behind the last one the focus leaves the page; in a window without a frame it comes back at the first.
  do {
    seen.push(await focused(page));
    await page.keyboard.press('Tab');
  } while (!['', seen[0]].includes(await focused(page)) && seen.length < FOCUS_STEPS_MAX);
  expect(seen).toEqual(expect.arrayContaining(['Overview', 'Log out', 'Drop…', 'Replay', 'mails']));
  expect(seen.length).toBeLessThan(FOCUS_STEPS_MAX);
});

test('a list that is drawn again keeps the focus where it was', async ({ db, dashboard }) => {
  const [id] = await insertDead(db, 1);
  const { page, enter } = dashboard;
  await enter('#/dead');
  const replay = page.getByRole('button', { name: `Replay task ${id}` });
  await replay.focus();
  const [later] = await insertDead(db, 1, { runAtSeconds: -1 });
  await page.getByRole('button', { name: `Replay task ${later}` }).waitFor();
  expect(await focused(page)).toBe(`Replay task ${id}`);
});

test('colours are switched by hand, and stay so', async ({ dashboard }) => {
  const { page, enter } = dashboard;
  await page.emulateMedia({ colorScheme: 'light' });
  await enter('#/');
  const ground = () => page.evaluate('getComputedStyle(document.body).backgroundColor');
  const light = await ground();
  await page.getByRole('button', { name: 'Use dark colours' }).click();
  const dark = await ground();
  expect(dark).not.toBe(light);
  await page.reload();
  await page.getByRole('button', { name: 'Use light colours' }).waitFor();
  expect(await ground()).toBe(dark);
});

const FOCUS_STEPS_MAX = 60;

/** Walks with Tab to what has this name, looks whether it can be seen to have the focus, and presses Enter. */
async function press(page: Page, name: string): Promise<void> {
  for (let steps = 0; steps < FOCUS_STEPS_MAX; steps += 1) {
    if ((await focused(page)) === name) {
      expect(await page.evaluate('getComputedStyle(document.activeElement).outlineStyle')).toBe('solid');
      await page.keyboard.press('Enter');
      return;
    }
    await page.keyboard.press('Tab');
  }
  throw new Error(`Tab does not come to ${name}`);
}

function focused(page: Page): Promise<string> {
  return page.evaluate(`(() => {
    const element = document.activeElement;
    if (element === null || element === document.body) return '';
    return element.getAttribute('aria-label') ?? element.innerText?.replaceAll(/\\s+/g, ' ').trim() ?? '';
  })()`);
}

async function violations(page: Page): Promise<unknown> {
  await page.evaluate(`window.axe === undefined && (0, eval)(${JSON.stringify(axe.source)})`);
  return page.evaluate(`axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
    violations.map(({ id, impact, nodes }) => ({ id, impact, at: nodes.map(({ html }) => html.slice(0, 200)) })))`);
}

function overflow(page: Page): Promise<number> {
  return page.evaluate('document.documentElement.scrollWidth - innerWidth');
}
