import { expect } from 'vitest';
import { createCron } from '../../src/index.ts';
import { READ_TOKEN, test } from '../support/dashboard.ts';
import { insertDead } from '../support/dead.ts';
import { gate } from '../support/replica.ts';
import { insertRow, rowOf } from '../support/rows.ts';
import { enqueue, testTasks } from '../support/tasks.ts';

test('a queue is paused and resumed, and says since when', async ({ db, dashboard }) => {
  await insertRow(db, { queue: 'mails' });
  const { page, enter } = dashboard;
  await enter('#/queues');
  await page.getByRole('link', { name: 'mails' }).click();
  await page.getByRole('heading', { name: 'mails' }).waitFor();
  await page.getByRole('button', { name: 'Pause…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Pause' }).click();
  await page.getByText('mails is paused.').waitFor();
  await page.getByText('Nothing of it is claimed.').waitFor();
  const paused = await db.selectFrom('async_queues').select(['name', 'paused_at']).execute();
  expect(paused).toEqual([{ name: 'mails', paused_at: expect.any(Date) }]);

  await page.getByRole('button', { name: 'Resume' }).click();
  await page.getByText('mails goes on.').waitFor();
  await page.getByRole('button', { name: 'Pause…' }).waitFor();
  const resumed = await db.selectFrom('async_queues').select(['paused_at']).execute();
  expect(resumed.filter(({ paused_at }) => paused_at !== null)).toEqual([]);
});

test('a queue is given a weight, and its own again', async ({ db, dashboard }) => {
  await insertRow(db, { queue: 'mails' });
  const { page, enter } = dashboard;
  await enter('#/queues/mails');
  await page.getByRole('button', { name: 'Set weight…' }).click();
  await page.getByRole('spinbutton').fill('7');
  await page.keyboard.press('Enter');
  await page.getByText('mails has the weight 7.').waitFor();
  expect(await db.selectFrom('async_queues').select(['name', 'weight']).execute()).toEqual([
    { name: 'mails', weight: 7 },
  ]);
  await page.getByRole('button', { name: 'Set weight…' }).click();
  await page.getByRole('spinbutton').fill('');
  await page.keyboard.press('Enter');
  await page.getByText('mails has the weight of the configuration.').waitFor();
});

test('what was done stands in the audit, under the name of the login', async ({ db, dashboard }) => {
  const [id] = await insertDead(db, 1);
  const { page, enter, go } = dashboard;
  await enter('#/dead');
  await page.getByRole('button', { name: `Drop task ${id}` }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Drop' }).click();
  await page.getByText(`Task ${id} is dropped.`).waitFor();
  await go('#/audit');
  const row = page.getByRole('row').filter({ hasText: 'dead.drop' });
  await row.getByRole('link', { name: id as string }).waitFor();
  await row.getByText('api:token').waitFor();
});

test('a deed that comes too late is refused in words, and the page goes on', async ({ db, dashboard }) => {
  const [id] = await insertDead(db, 1);
  const { page, enter } = dashboard;
  await enter('#/dead');
  const replay = page.getByRole('button', { name: `Replay task ${id}` });
  await replay.waitFor();
  await page.route('**/archived/**', async (route) => {
    // Somebody else was faster.
    await db.deleteFrom('async_tasks').execute();
    await route.continue();
  });
  await replay.click();
  await page.getByText('the task is no dead letter of this queue (any more)').waitFor();
  await page.getByText('No dead letters').waitFor();
});

test('whoever may only read sees everything and is offered no deed', async ({ db, dashboard }) => {
  const [id] = await insertDead(db, 1, { error: 'the disk was full' });
  const { page, enter, go } = dashboard;
  await enter('#/dead', READ_TOKEN);
  await page.getByText('the disk was full').waitFor();
  expect(await page.getByRole('button', { name: /Replay|Drop|Group/ }).count()).toBe(0);
  await go(`#/tasks/${id}`);
  await page.getByText('the disk was full').first().waitFor();
  expect(await page.getByRole('button', { name: /Replay|Drop/ }).count()).toBe(0);
  await page.getByText('may only read').waitFor();
  expect((await rowOf(db, id as NonNullable<typeof id>)).exhausted).toBe(true);
});

test('the replica that works shows, with its slots', async ({ dashboard, startReplica }) => {
  const { page, enter } = dashboard;
  await enter('#/replicas');
  await page.getByText('No replica is running').waitFor();
  await startReplica({ slots: 3 });
  await page.getByRole('img', { name: '0 of 3 slots busy' }).waitFor();
  await page.getByText('alive').waitFor();
});

test('a task in slices shows how far it is, while it runs', async ({ db, dashboard, startReplica }) => {
  const held = gate();
  await startReplica({
    handlers: {
      async sliced(_payload, { cursor, advanceCursor }) {
        if (cursor !== undefined) await held.promise;
        if (cursor?.page === 3) return 'done';
        await advanceCursor({ page: (cursor?.page ?? 0) + 1 }, { done: (cursor?.page ?? 0) + 1, total: 4 });
        return 'continue';
      },
    },
  });
  const { id } = await enqueue(db, 'sliced', { pages: 4 });
  const { page, enter } = dashboard;
  await enter(`#/tasks/${id}`);
  const progress = page.getByRole('progressbar');
  await progress.waitFor();
  await page.getByText('1 of 4').waitFor();
  expect(await progress.getAttribute('aria-valuenow')).toBe('25');
  await page.getByRole('region', { name: 'Cursor' }).getByText('"page": 1').waitFor();
  held.open();
  await page.getByText('Finished, or dropped').waitFor();
});

const cron = createCron(testTasks, [
  { name: 'nightly', schedule: '0 3 * * *', timeZone: 'Europe/Berlin', task: 'plain', payload: { n: 1 } },
]);

test.override({ adminOptions: { cron } });

test('a cron entry shows its next ticks, and runs now', async ({ db, dashboard }) => {
  const { page, enter } = dashboard;
  await enter('#/cron');
  const row = page.getByRole('row').filter({ hasText: 'nightly' });
  await row.getByText('0 3 * * *').waitFor();
  await row.getByRole('listitem').first().waitFor();
  await row.getByRole('button', { name: 'Run now: nightly' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Run now' }).click();
  await page.getByText(/Enqueued as task \d+\./).waitFor();
  const rows = await db.selectFrom('async_tasks').select(['task_type', 'payload']).execute();
  expect(rows).toEqual([{ task_type: 'plain', payload: { n: 1 } }]);
});
