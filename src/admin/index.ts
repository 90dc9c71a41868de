// What `taskq/admin` exports. Apart from the main entry: whoever enqueues or runs tasks loads no web server.
import { dashboardAssets } from './assets.ts';
import { type Admin, createAdmin as createServer, type AdminOptions as ServerOptions } from './server.ts';

export { type AdminAction, type AdminActionContext, adminAction } from './actions.ts';
export { API_PATH, pathSegment, type Wire } from './contracts.ts';
export { AdminProblem, type ProblemCode } from './problems.ts';
export type { Admin } from './server.ts';
export type { AdminRole, Caller } from './sessions.ts';

export interface AdminOptions extends Omit<ServerOptions, 'assets'> {
  /** Whether the web page is served too. Default true. */
  readonly dashboard?: boolean;
}

/**
 * The admin API and the dashboard, as a fetch handler. Closed by default; `docs/admin-api.md` says how it is opened.
 * @throws TaskqError `CONFIG_INVALID` without a token and without `authorize`, or with a token below 16 characters;
 *   `SCHEMA_BEHIND`, `SCHEMA_AHEAD`, `PRIVILEGE_MISSING`; database errors as they are
 */
export function createAdmin({ dashboard = true, ...options }: AdminOptions): Promise<Admin> {
  return createServer(dashboard ? { ...options, assets: dashboardAssets() } : options);
}
