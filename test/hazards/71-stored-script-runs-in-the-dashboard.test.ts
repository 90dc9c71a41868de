import { type Kysely, sql } from 'kysely';
import { expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import { test } from '../support/dashboard.ts';
import { registerPlainTypes } from '../support/registered.ts';
import { TEST_SCHEMA } from '../support/schema.ts';

// Whoever may enqueue writes texts that an operator's browser shows. Each of these would run, or load something from
// elsewhere, in a page that put it into its markup.

/** Where a script would call; nothing listens there, and no page of ours may ask for it. */
const ELSEWHERE = 'http://127.0.0.1:9/';

const HOSTILE = [
  `<img src=${ELSEWHERE}img onerror=alert(1)>`,
  `</script><script src=${ELSEWHERE}js></script><script>alert(2)</script>`,
  '" onmouseover=alert(3) autofocus onfocus=alert(4) x="',
  "' onclick='alert(5)",
  'javascript:alert(6)',
  '{{7*7}}#{7*7}<%= 7*7 %>',
  `<!-- --><svg/onload=alert(7)><link rel=stylesheet href=${ELSEWHERE}css>`,
  `<iframe srcdoc="<script>parent.alert(8)</script>"></iframe>`,
  `abc\u202egnp.exe`,
  '../..%2f%2e%2e/?q=#x',
] as const;

/** A name without a space that never ends. */
const ENDLESS = 'x'.repeat(200);

/** Behind the product's back, since the client refuses some of these names. */
async function insertHostile(db: Kysely<DB>): Promise<{ ids: string[]; queues: string[] }> {
  const table = (name: string) => sql.table(`${TEST_SCHEMA}.${name}`);
  const names = [...HOSTILE, ENDLESS].map((text) => text.slice(0, 200));
  const ids: string[] = [];
  for (const text of names) {
    const payload = JSON.stringify({ [text]: text, html: text });
    const failure = {
      attempt: 1,
      at: '2026-01-31T09:00:00Z',
      outcome: 'failure',
      message: text,
      stack: text,
    };
    const { rows } = await sql<{ id: string }>`
      insert into ${table('async_tasks')} (task_type, queue, payload, attempt_count, max_attempts, last_error, errors,
        headers, cursor, last_attempted_at)
      values (${text}, ${text}, ${payload}::jsonb, 1, 1, ${text}, ${JSON.stringify([failure])}::jsonb,
        ${JSON.stringify({ traceparent: text, [text]: text })}::jsonb, ${JSON.stringify(text)}::jsonb, now())
      returning id::text`.execute(db);
    ids.push((rows[0] as { id: string }).id);
    await registerPlainTypes(db, [text]);
    await sql`insert into ${table('async_audit')} (actor, action, subject, detail)
      values (${text}, 'dead.drop', ${text}, ${JSON.stringify({ type: text, [text]: text })}::jsonb)`.execute(
      db,
    );
    await sql`insert into ${table('async_cron_ticks')} (entry, schedule, tick, outcome)
      values (${text}, ${text}, now(), 'skipped')`.execute(db);
  }
  return { ids, queues: names };
}

test('hostile payloads, errors, names and headers are text on every page: nothing runs, nothing is fetched', async ({
  db,
  dashboard,
}) => {
  const { ids, queues } = await insertHostile(db);
  const { page, enter, go, mischief } = dashboard;
  await enter('#/');
  const literally = (text: string) => page.getByText(text, { exact: false }).first().waitFor();
  const places = ['#/', '#/queues', '#/tasks', '#/dead', '#/cron', '#/audit'];
  for (const place of places) {
    await go(place);
    await literally(HOSTILE[0]);
    await literally(HOSTILE[6]);
    await hoverAll(page);
  }
  for (const [index, id] of ids.entries()) {
    await go(`#/tasks/${id}`);
    await page
      .getByRole('region', { name: 'Attempts' })
      .getByText(queues[index] as string)
      .first()
      .waitFor();
    const payload = await page.getByRole('region', { name: 'Payload' }).locator('pre').textContent();
    expect(JSON.parse(payload ?? '')).toMatchObject({ html: queues[index] });
    for (const summary of await page.locator('summary').all()) await summary.click();
  }
  for (const queue of queues) {
    await go(`#/queues/${encodeURIComponent(queue)}`);
    await page.getByRole('region', { name: 'Task types' }).waitFor();
    expect(await page.getByRole('heading', { level: 1 }).textContent()).toBe(queue);
  }
  // As search text, in the address, as the address.
  for (const text of HOSTILE) {
    await go(`#/dead?error=${encodeURIComponent(text)}&type=${encodeURIComponent(text)}`);
    expect(await page.getByLabel('Error contains').inputValue()).toBe(text);
    await go(`#/${encodeURIComponent(text)}`);
    await page.getByText('There is no such page').waitFor();
  }
  expect(await page.locator('img, iframe, object, embed, main script').count()).toBe(0);
  expect(mischief).toEqual({ foreign: [], dialogs: [], errors: [] });
});

test('hostile groups of dead letters are text in the dialog too, and no link leads out of the page', async ({
  db,
  dashboard,
}) => {
  await insertHostile(db);
  const { page, enter, mischief } = dashboard;
  await enter('#/dead');
  await page.getByRole('button', { name: 'Group by type and error' }).click();
  await page.getByRole('region', { name: 'Groups' }).getByText(HOSTILE[0]).first().waitFor();
  await page.getByRole('button', { name: 'Replay all…' }).click();
  await page.getByRole('dialog').getByText(HOSTILE[6]).first().waitFor();
  const links = await page.locator('a').evaluateAll((all) => all.map((link) => link.getAttribute('href')));
  expect(links.filter((href) => !href?.startsWith('#'))).toEqual([]);
  expect(mischief).toEqual({ foreign: [], dialogs: [], errors: [] });
});

test('a page that runs a script of somebody else is stopped by its own policy', async ({ dashboard }) => {
  const { page, enter, mischief } = dashboard;
  await enter('#/');
  // What an injection would be, done by hand: the test above would not notice a policy that allows it.
  await page.evaluate(`document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="alert(1)">')`);
  await page.evaluate(`(() => {
    const script = document.createElement('script');
    script.textContent = 'alert(2)';
    document.body.append(script);
  })()`);
  await page.waitForFunction(`document.images.length > 0 && document.images[0].complete`);
  expect(mischief.dialogs).toEqual([]);
  expect(mischief.errors.join('\n')).toContain('Content Security Policy');
});

test('a payload of a megabyte without a space is shown, and the page stays as wide as the window', async ({
  db,
  dashboard,
}) => {
  await registerPlainTypes(db, ['plain']);
  const { rows } = await sql<{ id: string }>`
    insert into ${sql.table(`${TEST_SCHEMA}.async_tasks`)} (task_type, payload)
    values ('plain', jsonb_build_object('long', repeat('x', 1000000))) returning id::text`.execute(db);
  const { page, enter } = dashboard;
  await enter(`#/tasks/${rows[0]?.id}`);
  const code = page.getByRole('region', { name: 'Payload' }).locator('pre');
  await code.waitFor();
  expect((await code.textContent())?.length).toBeGreaterThan(1_000_000);
  const [scrollWidth, width] = (await page.evaluate(
    '[document.documentElement.scrollWidth, innerWidth]',
  )) as number[];
  expect(scrollWidth).toBeLessThanOrEqual(width as number);
});

async function hoverAll(page: import('playwright-core').Page): Promise<void> {
  await page.evaluate(`for (const element of document.querySelectorAll('main *')) {
    for (const type of ['mouseover', 'mouseenter', 'focus', 'click']) element.dispatchEvent(new Event(type));
  }`);
}
