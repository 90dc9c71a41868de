import { readFile } from 'node:fs/promises';
import { describe, expect, test } from 'vitest';
import { type TaskType, tasks } from '../../generated/tasks.ts';

const MINUTES: Readonly<Record<TaskType, number>> = {
  prefix_delete: 60,
  explore_diagnostics: 30,
  resource_index_rebuild: 10,
  dependency_graph_rebuild: 10,
  resource_index_reindex: 5,
  dependency_graph_reconcile: 5,
  explore_purge: 5,
  seat_cap_audit: 5,
  dependent_triggers_resolve: 5,
};

describe.for(Object.entries(MINUTES))('%s', ([type, minutes]) => {
  test('has its ceiling', () => {
    expect(tasks[type as TaskType].definition.ceilingMs).toBe(minutes * 60_000);
  });

  test('has its worst case, and that ceiling, in the page about ceilings', async () => {
    const page = await readFile(new URL('../../docs/ceilings.md', import.meta.url), 'utf8');
    const rows = page.split('\n').filter((line) => line.startsWith(`| ${type} |`));
    expect(rows.length).toBeGreaterThan(0);
    for (const row of rows) expect(row).toContain(`| ${minutes} min |`);
  });
});
