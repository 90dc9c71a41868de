import { defineHandlers, type Tasks } from '../../generated/tasks.ts';
import type { HandlerRegistry } from '../index.ts';
import { dependencyGraphRebuild } from './dependency-graph-rebuild.ts';
import { dependencyGraphReconcile } from './dependency-graph-reconcile.ts';
import { dependentTriggersResolve } from './dependent-triggers-resolve.ts';
import { exploreDiagnostics } from './explore-diagnostics.ts';
import { explorePurge, purgeExplore } from './explore-purge.ts';
import { deletePrefix, prefixDelete } from './prefix-delete.ts';
import { resourceIndexRebuild } from './resource-index-rebuild.ts';
import { resourceIndexReindex } from './resource-index-reindex.ts';
import { seatCapAudit } from './seat-cap-audit.ts';
import type { HandlerServices } from './services.ts';

export { type Analysis, readAnalysis, writeAnalysis } from './analysis.ts';
export { type ObjectStore, type ObjectStoreSettings, openObjectStore } from './object-store.ts';
export type { HandlerServices } from './services.ts';
export { analysisKey, stackPrefix } from './storage-paths.ts';
export type { ExploreTables, PlatformTables } from './tables.ts';
/** For those who do at once what a task would do soon. */
export { deletePrefix, purgeExplore };

/** The handlers of every task type, over the services given. A type without its handler does not compile. */
export function createHandlers(services: HandlerServices): HandlerRegistry<Tasks> {
  return defineHandlers({
    prefix_delete: prefixDelete(services),
    explore_purge: explorePurge(services),
    explore_diagnostics: exploreDiagnostics(services),
    resource_index_reindex: resourceIndexReindex(services),
    resource_index_rebuild: resourceIndexRebuild(services),
    dependency_graph_reconcile: dependencyGraphReconcile(services),
    dependency_graph_rebuild: dependencyGraphRebuild(services),
    dependent_triggers_resolve: dependentTriggersResolve(services),
    seat_cap_audit: seatCapAudit(services),
  });
}
