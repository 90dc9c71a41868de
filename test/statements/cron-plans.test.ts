import { sql } from 'kysely';
import { listStatement, pruneStatement, readStatement } from '../../src/statements/cron.ts';
import { explain } from '../support/plans.ts';
import { expect, test } from '../support/test.ts';

test('a look, a list and a prune go by the index, however many ticks an entry has had', async ({ db }) => {
  await sql`insert into taskq.async_cron_ticks (entry, tick, outcome, schedule)
    select 'entry ' || entry, now() - n * interval '1 second', 'enqueued', '@every 1s'
    from generate_series(1, 5) entry, generate_series(1, 20000) n`.execute(db);
  await sql`analyze taskq.async_cron_ticks`.execute(db);
  const entries = JSON.stringify([
    { entry: 'entry 1', schedule: '@every 1s' },
    { entry: 'entry 2', schedule: 'changed' },
    { entry: 'new', schedule: '@every 1s' },
  ]);

  const look = await explain(db, readStatement, { entries });
  const list = await explain(db, listStatement, {});
  const prune = await explain(db, pruneStatement, {});

  for (const plan of [look, list, prune]) expect(plan.scanned).not.toContain('async_cron_ticks');
  // A page holds some hundred rows; the changed entry looks a thousand back, and no further.
  expect(look.buffers).toBeLessThan(200);
  expect(list.buffers).toBeLessThan(100);
  expect(prune.buffers).toBeLessThan(100);
});
