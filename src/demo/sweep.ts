import { type EnqueuedTask, notedTransaction } from './ledger.ts';
import type { DemoDatabase } from './schema.ts';

/** What a sweep has enqueued, and how many rebuilds of a sweep before are still under way. */
export interface Sweep {
  readonly organisations: number;
  readonly tasks: readonly EnqueuedTask[];
  readonly underWay: number;
}

/**
 * The sweep over the whole fleet that a platform runs at night: both rebuilds of every organisation, and a scan of
 * what they make. One transaction, so that all are due at the same moment; as many slots as there are drain them.
 */
export async function sweepFleet(db: DemoDatabase): Promise<Sweep> {
  const { result, tasks } = await notedTransaction(db, async (tx, noted) => {
    const rows = await tx
      .updateTable('organisations')
      .set((each) => ({ diagnostics_generation: each('diagnostics_generation', '+', 1) }))
      .returning(['id as organisationId', 'diagnostics_generation as generation'])
      .execute();
    const organisations = rows.map(({ organisationId }) => ({ organisationId }));
    const rebuilds =
      (await noted.enqueueMany('resource_index_rebuild', organisations)) +
      (await noted.enqueueMany('dependency_graph_rebuild', organisations));
    await noted.enqueueMany('explore_diagnostics', rows);
    return { organisations: rows.length, underWay: 2 * rows.length - rebuilds };
  });
  return { ...result, tasks };
}
