import { type Kysely, sql } from 'kysely';
import { expect } from 'vitest';
import type { DB } from '../../generated/db.ts';
import type { TaskId } from '../../src/index.ts';
import { taskq } from '../support/cli.ts';
import { insertRow } from '../support/rows.ts';
import { test } from '../support/test.ts';

test('task show and stats say how far a sliced task is', async ({ database, db }) => {
  const env = { DATABASE_URL: database.url };
  const id = await insertSliced(db, { done: 40, total: 120 });
  await insertRow(db);

  expect((await taskq(['task', 'show', id], { env })).stdout).toMatch(/^progress: +40 of 120$/m);
  const shown = await taskq(['task', 'show', id, '--json'], { env });
  expect(JSON.parse(shown.stdout)).toMatchObject({ progress: { done: 40, total: 120 } });
  expect(progressLines((await taskq(['stats'], { env })).stdout)).toEqual([
    'progress: sliced in default: 40 of 120 (1 task)',
  ]);

  await insertSliced(db, { done: 2, total: 3 });
  expect(progressLines((await taskq(['stats'], { env })).stdout)).toEqual([
    'progress: sliced in default: 42 of 123 (2 tasks)',
  ]);

  // A dead letter is no progress, and a total that one of them does not know is no total of all.
  await insertSliced(db, { done: 1_000 }, { attemptCount: 20 });
  await insertSliced(db, { done: 8 });
  expect(progressLines((await taskq(['stats'], { env })).stdout)).toEqual([
    'progress: sliced in default: 50 (3 tasks)',
  ]);
  const stats = await taskq(['stats', '--json'], { env });
  const counts = JSON.parse(stats.stdout) as { type: string; progress?: unknown }[];
  expect(counts.map(({ type, progress }) => [type, progress])).toEqual([
    ['plain', undefined],
    ['sliced', { tasks: 3, done: 50 }],
  ]);
});

const progressLines = (stdout: string) => stdout.split('\n').filter((line) => line.startsWith('progress'));

async function insertSliced(
  db: Kysely<DB>,
  progress: { done: number; total?: number },
  { attemptCount = 0 } = {},
): Promise<TaskId> {
  const id = await insertRow(db, { type: 'sliced', payload: { pages: 3 }, attemptCount });
  await sql`update taskq.async_tasks set progress = ${JSON.stringify(progress)}::jsonb where id = ${id}`.execute(
    db,
  );
  return id;
}
