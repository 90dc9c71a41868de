import type { ColumnType, Generated, Kysely } from 'kysely';

/** What the handlers need of the outside. Given to `createHandlers`; no module here keeps any of it. */
export interface HandlerServices {
  /** The platform's own tables, on the primary: what a read replica answers may be seconds old. */
  readonly primary: Kysely<PlatformTables>;
}

/** The platform's tables, as far as handlers and service use them. */
export interface PlatformTables {
  organisations: OrganisationTable;
  stacks: StackTable;
  deployments: DeploymentTable;
  edges: EdgeTable;
  explore_rows: ExploreRowTable;
  seat_audits: SeatAuditTable;
}

interface OrganisationTable {
  id: Generated<string>;
  name: string;
  seat_cap: number;
}

interface StackTable {
  id: Generated<string>;
  organisation_id: string;
  name: string;
  /** Of the newest deployment; counts up with every change of the stack. */
  generation: number;
  /** Of the deployment whose edges are in the graph; 0 before the first. */
  published_generation: Generated<number>;
  /** Null while the stack is live. A deployment makes a deleted stack live again. */
  deleted_at: ColumnType<Date | null, undefined, Date | null>;
}

/** What a stack was at one generation. Written once, never changed. */
interface DeploymentTable {
  stack_id: string;
  generation: number;
  change: 'deploy' | 'rename' | 'delete';
  name: string;
  depends_on: string[];
  deployed_at: Generated<Date>;
}

interface EdgeTable {
  from_stack_id: string;
  to_stack_id: string;
  /** As the publishing deployment had it, so that the graph page needs no join. */
  from_name: string;
  generation: number;
}

interface ExploreRowTable {
  stack_id: string;
  path: string;
  value: string;
}

interface SeatAuditTable {
  organisation_id: string;
  seats_taken: number;
  seat_cap: number;
  over_cap: boolean;
  audited_at: Date;
}
