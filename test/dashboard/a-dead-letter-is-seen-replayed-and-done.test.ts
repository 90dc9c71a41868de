import { expect } from 'vitest';
import { test } from '../support/dashboard.ts';
import { insertDead } from '../support/dead.ts';
import { allRows } from '../support/rows.ts';
import { enqueue } from '../support/tasks.ts';

test('a task that fails appears by itself, tells its error, is replayed, and is seen to succeed', async ({
  db,
  dashboard,
  startReplica,
}) => {
  let isMended = false;
  await startReplica({
    handlers: {
      plain: async () => {
        if (!isMended) throw new Error('the mail server said no');
        return 'done';
      },
    },
  });
  const { page, enter, mischief } = dashboard;
  await enter('#/tasks');
  await page.getByText('Nothing to do').waitFor();

  const { id } = await enqueue(db, 'plain', { n: 4 }, { maxAttempts: 1, retention: '1h' });
  // Nobody reloads: the row comes with the stream.
  const row = page.getByRole('row').filter({ hasText: 'plain' });
  await row.getByText('dead').waitFor();
  await row.getByRole('link', { name: id }).click();

  await page.getByRole('heading', { name: 'plain' }).waitFor();
  const attempts = page.getByRole('region', { name: 'Attempts' });
  await attempts.getByText('the mail server said no').first().waitFor();
  await page.getByRole('region', { name: 'Payload' }).getByText('"n": 4').waitFor();

  isMended = true;
  await page.getByRole('button', { name: 'Replay' }).click();
  await page.getByText(`Task ${id} is on its way again.`).waitFor();
  await page.locator('.facts').getByText('completed', { exact: true }).waitFor();
  await page.getByRole('region', { name: 'Timeline' }).getByText('dead.replay').waitFor();
  expect(mischief).toEqual({ foreign: [], dialogs: [], errors: [] });
});

test('a task that leaves no record is said to be finished, with what was last known of it', async ({
  db,
  dashboard,
  startReplica,
}) => {
  const [id] = await insertDead(db, 1, { error: 'the disk was full' });
  const { page, enter } = dashboard;
  await enter(`#/tasks/${id}`);
  await page.getByText('the disk was full').first().waitFor();
  await page.getByRole('button', { name: 'Replay' }).click();
  await page.locator('.facts').getByText('waiting').waitFor();
  await startReplica();
  await page.getByText('Finished, or dropped').waitFor();
  await page.getByText('the disk was full').first().waitFor();
});

test('a thousand dead letters are counted, replayed with progress, and gone', async ({ db, dashboard }) => {
  await insertDead(db, 900, { error: 'connect ECONNREFUSED 10.0.0.7:25' });
  await insertDead(db, 100, { error: 'no such customer', type: 'fragile' });
  const { page, enter } = dashboard;
  await enter('#/dead');
  await page.getByRole('button', { name: 'Group by type and error' }).click();
  const groups = page.getByRole('region', { name: 'Groups' });
  await groups.getByRole('row').filter({ hasText: 'ECONNREFUSED' }).getByText('900').waitFor();
  await groups.getByRole('row').filter({ hasText: 'no such customer' }).getByText('100').waitFor();

  await page.getByRole('button', { name: 'Replay all…' }).click();
  const dialog = page.getByRole('dialog', { name: 'Replay dead letters' });
  await dialog.getByText('1,000 dead letters would be replayed.').waitFor();
  expect(await deadCount(db)).toBe(1_000);
  await dialog.getByRole('button', { name: 'Replay 1,000' }).click();
  await dialog.getByText('1,000 replayed.').waitFor();
  expect(await deadCount(db)).toBe(0);
  await dialog.getByRole('button', { name: 'Close' }).click();
  await page.getByText('No dead letters').waitFor();
});

test('dead letters of one kind are dropped after the word was typed, and others stay', async ({
  db,
  dashboard,
}) => {
  await insertDead(db, 3, { error: 'no such customer' });
  await insertDead(db, 2, { error: 'the disk was full' });
  const { page, enter } = dashboard;
  await enter('#/dead?error=customer');
  await page.getByRole('button', { name: 'Drop these…' }).click();
  const dialog = page.getByRole('dialog', { name: 'Drop dead letters' });
  await dialog.getByText('3 dead letters would be deleted for good.').waitFor();
  const drop = dialog.getByRole('button', { name: 'Drop 3' });
  expect(await drop.isDisabled()).toBe(true);
  await dialog.getByRole('textbox').fill('drop');
  await drop.click();
  await dialog.getByText('3 dropped.').waitFor();
  expect((await allRows(db)).map(({ last_error }) => last_error)).toEqual(Array(2).fill('the disk was full'));
});

async function deadCount(db: Parameters<typeof allRows>[0]): Promise<number> {
  return (await allRows(db)).filter(({ exhausted }) => exhausted).length;
}
