import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { sql } from 'kysely';
import { expect } from 'vitest';
import { z } from 'zod';
import { checkPayloads } from '../../src/check-payloads/check-payloads.ts';
import { CHECK_PAGE_ROWS } from '../../src/domain/limits.ts';
import { createRegistry, defineTask, type TaskSet } from '../../src/index.ts';
import { readStoredPage } from '../../src/statements/stored-payloads.ts';
import { test } from '../support/replica.ts';
import { allRows, insertRow, insertRows, readLaneOf, wakeReplicas } from '../support/rows.ts';
import { TEST_SCHEMA } from '../support/schema.ts';

/** Revision 1 held `{ path }`, revision 2 `{ paths }`; 3 accepts what 2 did. */
const purge = defineTask({
  type: 'purge',
  payload: z.object({ paths: z.array(z.string()), note: z.string().optional() }),
  cursor: z.object({ page: z.number() }),
  ceiling: '5m',
  upgrades: { 2: (old) => ({ paths: [(old as { path: string }).path.toLowerCase()] }) },
});
const sweep = defineTask({ type: 'sweep', payload: z.object({ days: z.number() }), ceiling: '5m' });
const tasks: TaskSet = {
  purge: { definition: purge, revision: 3 },
  sweep: { definition: sweep, revision: 1 },
};

const DEAD = { attemptCount: 20, attemptedSecondsAgo: 60 };
const none = { live: 0, dead: 0 };

test('rows are counted by type and revision: fine, upgraded and poison, live and dead', async ({ db }) => {
  await insertRow(db, { type: 'sweep', payload: { days: 3 } });
  await insertRow(db, { type: 'purge', revision: 1, payload: { path: '/A' } });
  await insertRow(db, { type: 'purge', revision: 1, payload: { path: '/B' }, ...DEAD });
  const threw = await insertRow(db, { type: 'purge', revision: 1, payload: {}, ...DEAD });
  await insertRow(db, { type: 'purge', revision: 2, payload: { paths: [] } });
  const poison = await insertRow(db, { type: 'purge', revision: 3, payload: { paths: ['a', 1] } });
  // It runs, on its last attempt: not dead before its lease has lapsed.
  await insertRow(db, { type: 'sweep', payload: { days: 3 }, attemptCount: 20, leasedSeconds: 300 });

  const report = await checkPayloads(readLaneOf(db), tasks);

  expect(report).toEqual({
    rows: 7,
    fine: { live: 3, dead: 0 },
    upgraded: { live: 1, dead: 1 },
    poison: { live: 1, dead: 1 },
    left: [],
    revisions: [
      {
        type: 'purge',
        revision: 1,
        currentRevision: 3,
        fine: none,
        upgraded: { live: 1, dead: 1 },
        poison: { live: 0, dead: 1 },
        examples: [
          {
            id: threw,
            isDead: true,
            path: 'payload',
            expectation: 'the upgrade of revision 1 → 2 threw TypeError',
            more: 0,
          },
        ],
      },
      {
        type: 'purge',
        revision: 2,
        currentRevision: 3,
        fine: { live: 1, dead: 0 },
        upgraded: none,
        poison: none,
        examples: [],
      },
      {
        type: 'purge',
        revision: 3,
        currentRevision: 3,
        fine: none,
        upgraded: none,
        poison: { live: 1, dead: 0 },
        examples: [
          { id: poison, isDead: false, path: 'payload.paths[1]', expectation: 'expected string', more: 0 },
        ],
      },
      {
        type: 'sweep',
        revision: 1,
        currentRevision: 1,
        fine: { live: 2, dead: 0 },
        upgraded: none,
        poison: none,
        examples: [],
      },
    ],
  });
});

test('unknown types and newer revisions are counted as left to other workers, and are no poison', async ({
  db,
}) => {
  await insertRow(db, { type: 'sweep', revision: 2, payload: 'anything' });
  await insertRow(db, { type: 'sweep', revision: 2, payload: 'anything', ...DEAD });
  await insertRow(db, { type: 'of_another_service', revision: 4 });
  await insertRow(db, { type: '__proto__' });

  const report = await checkPayloads(readLaneOf(db), tasks);

  expect(report).toMatchObject({ rows: 4, revisions: [], poison: none });
  expect(report.left).toEqual([
    { type: '__proto__', revision: undefined, rows: { live: 1, dead: 0 } },
    { type: 'of_another_service', revision: undefined, rows: { live: 1, dead: 0 } },
    { type: 'sweep', revision: 2, rows: { live: 1, dead: 1 } },
  ]);
});

test('what it calls poison is what a worker with that code makes dead letters of, and nothing else', async ({
  db,
  startReplica,
}) => {
  const payloads = [{ path: '/A' }, { paths: ['/a'] }, { paths: 'x' }, {}, null, { paths: [], note: 3 }];
  for (const revision of [1, 2, 3, 4]) {
    for (const payload of payloads) await insertRow(db, { type: 'purge', revision, payload });
  }
  const sliced = await insertRow(db, { type: 'purge', revision: 3, payload: { paths: [] } });
  await db.updateTable('async_tasks').set({ cursor: '{"page":"two"}' }).where('id', '=', sliced).execute();
  const before = await allRows(db);

  const report = await checkPayloads(readLaneOf(db), tasks);
  expect(await allRows(db)).toEqual(before);
  const runnable = report.rows - (report.left[0]?.rows.live ?? 0);
  const done = async () => 'done' as const;
  const { events } = await startReplica({ registry: createRegistry(tasks, { purge: done, sweep: done }) });
  await wakeReplicas(db);
  await events.atLeast(runnable, 'settled');

  const settled = events.of('settled');
  const dead = settled.filter((event) => event.dead).map(({ task }) => task.id);
  expect(report.poison.live).toBe(dead.length);
  expect(settled).toHaveLength(report.fine.live + report.upgraded.live + report.poison.live);
  const examples = report.revisions.flatMap((of) => of.examples.map(({ id }) => id));
  expect(dead).toEqual(expect.arrayContaining(examples));
  // What a second look at the queue finds is dead letters only, the same ones.
  const after = await checkPayloads(readLaneOf(db), tasks);
  expect(after).toMatchObject({ fine: none, upgraded: none, poison: { live: 0, dead: dead.length } });
});

test('of poison rows of one revision three are described, live ones first', async ({ db }) => {
  await insertRows(db, 3, { type: 'sweep', ...DEAD });
  const live = await insertRows(db, 2, { type: 'sweep' });
  const [sweepReport] = (await checkPayloads(readLaneOf(db), tasks)).revisions;
  expect(sweepReport?.examples.map(({ id, isDead }) => [id, isDead])).toEqual([
    [live[0], false],
    [live[1], false],
    [expect.any(String), true],
  ]);
});

test('a page ends with the payload that passes its bytes, and a larger one than that comes alone', async ({
  db,
}) => {
  const large = { note: 'x'.repeat(10_000), paths: [] };
  const ids = await insertRows(db, 4, { type: 'purge', revision: 3, payload: large });
  const page = (afterId: string, bytes: number) =>
    readStoredPage(readLaneOf(db), {
      afterId,
      untilId: ids[3] as string,
      known: { purge: 3 },
      bytes,
    });
  expect((await page('0', 15_000)).map(({ id }) => id)).toEqual(ids.slice(0, 2));
  expect((await page(ids[1] as string, 1)).map(({ id }) => id)).toEqual([ids[2]]);
  expect((await page(ids[2] as string, 1_000_000)).map(({ id }) => id)).toEqual([ids[3]]);
  expect(await page(ids[3] as string, 1)).toEqual([]);
});

test('what is enqueued after the check began is not waited for', async ({ db }) => {
  await insertRows(db, 2, { type: 'sweep', payload: { days: 1 } });
  const enqueuing = defineTask({
    type: 'sweep',
    payload: z.object({ days: z.number() }).refine(async () => {
      await insertRow(db, { type: 'sweep', payload: { days: 1 } });
      return true;
    }),
    ceiling: '5m',
  });
  const report = await checkPayloads(readLaneOf(db), { sweep: { definition: enqueuing, revision: 1 } });
  expect(report.rows).toBe(2);
});

test('20,000 rows are checked page by page in the memory that 2,000 take', { timeout: 120_000 }, async ({
  db,
}) => {
  const checked = async (rows: number) => {
    await sql`truncate ${sql.table(`${TEST_SCHEMA}.async_tasks`)}`.execute(db);
    // 3 kB each: all of them at once would be 60 MB.
    const payload = { paths: ['x'.repeat(3_000)] };
    await insertRows(db, rows, { type: 'purge', revision: 3, payload });
    const pages: number[] = [];
    let heap = 0;
    let before = 0;
    const report = await checkPayloads(readLaneOf(db), tasks, {
      onProgress: ({ rows: soFar }) => {
        pages.push(soFar - before);
        before = soFar;
        if (pages.length % 4 === 0) heap = Math.max(heap, heapUsedBytes());
      },
    });
    expect(report).toMatchObject({ rows, fine: { live: rows, dead: 0 } });
    expect(Math.max(...pages)).toBe(CHECK_PAGE_ROWS);
    return heap;
  };
  const few = await checked(2_000);
  const many = await checked(20_000);
  expect(many - few).toBeLessThan(8 * 1_048_576);
});

/** What is still held, once everything that may go has gone. */
function heapUsedBytes(): number {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  return process.memoryUsage().heapUsed;
}
