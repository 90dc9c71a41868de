import type { ColumnType, Generated } from 'kysely';

// The tables of the two databases, as far as handlers and service use them.

/** The platform's business tables, in the database that also holds the queue. */
export interface PlatformTables {
  organisations: OrganisationTable;
  stacks: StackTable;
  deployments: DeploymentTable;
  edges: EdgeTable;
  triggered_runs: TriggeredRunTable;
  seat_audits: SeatAuditTable;
}

interface OrganisationTable {
  id: Generated<string>;
  name: string;
  seat_cap: number;
  /** Counts the requests for diagnostics. */
  diagnostics_generation: Generated<number>;
}

interface StackTable {
  id: Generated<string>;
  organisation_id: string;
  name: string;
  /** Names the stack's prefix in the object store. A stack that is deleted and comes back gets another one. */
  storage_key: string;
  /** Of the newest deployment; counts up with every change of the stack. */
  generation: number;
  /** Of the deployment whose edges are in the graph; 0 before the first. */
  published_generation: Generated<number>;
  /** Of the deployment whose dependent triggers are resolved; 0 before the first. */
  resolved_generation: Generated<number>;
  /** Null while the stack is live. A deployment makes a deleted stack live again. */
  deleted_at: ColumnType<Date | null, undefined, Date | null>;
}

/** What a stack was at one generation. Written once, never changed. */
interface DeploymentTable {
  stack_id: string;
  generation: number;
  change: 'deploy' | 'rename' | 'delete';
  name: string;
  /** What the stack's configuration declares. What its run found is in the analysis. */
  depends_on: string[];
  /** The object that the finished run left; null for a deletion, which runs nothing. */
  analysis_key: string | null;
  deployed_at: Generated<Date>;
}

/** An edge leads to a live stack. It belongs to the stack that it starts from. */
interface EdgeTable {
  from_stack_id: string;
  to_stack_id: string;
  /** As the publishing deployment had it, so that the graph page needs no join. */
  from_name: string;
  generation: number;
}

/** A run that is asked for because a stack below was deployed. */
interface TriggeredRunTable {
  stack_id: string;
  upstream_stack_id: string;
  upstream_generation: number;
  requested_at: Generated<Date>;
}

interface SeatAuditTable {
  organisation_id: string;
  seats_taken: number;
  seat_cap: number;
  over_cap: boolean;
  audited_at: Date;
}

/** The Explore database: what people search. All of it can be made again from the platform and the object store. */
export interface ExploreTables {
  projections: ProjectionTable;
  resources: ResourceTable;
  diagnostics: DiagnosticsTable;
  findings: FindingTable;
}

/** Which generation of a stack is in the index. It stays when the stack is deleted, or an older one could come back. */
interface ProjectionTable {
  stack_id: string;
  organisation_id: string;
  generation: number;
  projected_at: Generated<Date>;
}

interface ResourceTable {
  stack_id: string;
  path: string;
  value: string;
}

/** Which scan's findings are published. */
interface DiagnosticsTable {
  organisation_id: string;
  generation: number;
  scanned_at: Generated<Date>;
}

interface FindingTable {
  organisation_id: string;
  stack_id: string;
  rule: string;
  detail: string;
}
