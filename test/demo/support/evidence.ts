import { sql } from 'kysely';
import type { DemoDatabase } from '../../../src/demo/schema.ts';

/** Tasks in the queue's table, by type. */
export async function countTasks(platform: DemoDatabase): Promise<Record<string, number>> {
  const { rows } = await sql<{ task_type: string; tasks: number }>`
    SELECT task_type, count(*)::int AS tasks FROM taskq.async_tasks GROUP BY task_type`.execute(platform);
  return Object.fromEntries(rows.map(({ task_type, tasks }) => [task_type, tasks]));
}
