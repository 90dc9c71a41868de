import { defineHandlers } from '../../generated/tasks.ts';
import type { HandlerRegistry } from '../index.ts';
import { dependencyGraphReconcile } from './dependency-graph-reconcile.ts';
import { explorePurge } from './explore-purge.ts';
import { seatCapAudit } from './seat-cap-audit.ts';
import type { HandlerServices } from './services.ts';

export type { HandlerServices, PlatformTables } from './services.ts';

/** The handlers of every task type, over the services given. A type without its handler does not compile. */
export function createHandlers(services: HandlerServices): HandlerRegistry {
  return defineHandlers({
    explore_purge: explorePurge(services),
    seat_cap_audit: seatCapAudit(services),
    dependency_graph_reconcile: dependencyGraphReconcile(services),
  });
}
